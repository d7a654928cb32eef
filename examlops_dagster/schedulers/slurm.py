"""Slurm: sbatch, squeue, sacct, scontrol and scancel. Measured with 22.05."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.base import JobRef, Submission, offset_in
from examlops_dagster.schedulers.commands import (
    OF_QUERIES,
    Answer,
    Runner,
    require_answer,
    run_command,
)
from examlops_dagster.schedulers.options import ranges, sbatch_options
from examlops_dagster.schedulers.resources import parse_resources
from examlops_dagster.schedulers.slurm_poll import (
    SlurmAnswers,
    accounting_since,
    chunks,
    of_cluster,
)
from examlops_dagster.schedulers.slurm_rows import read_id
from examlops_dagster.schedulers.slurm_text import is_no_answer, read_submit
from examlops_dagster.settings import ARRAY_OFFSET

_COMMENT = "examlops:"
_DEFAULT_MAX_ARRAY_SIZE = 1001
_IDS_OF_A_SCANCEL = 500


class SlurmScheduler(SlurmAnswers):
    """Batch jobs of Slurm.

    Parameters
    ----------
    runner
        Runs the commands; by default on this host.
    monotonic
        Seconds of a clock that never goes back, for what has to be seen twice.
    """

    name = "slurm"

    def __init__(
        self, runner: Runner = run_command, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(runner, monotonic)
        self._parsable = True
        self._max_array_size: int | None = None

    def submit(self, submission: Submission) -> list[JobRef]:
        """Call sbatch, once for each part that MaxArraySize makes necessary; see `Scheduler`.

        Where a later part is refused, or its reply is lost, the error is transient: `find` gives
        the parts that are in the queue, and ``submitted`` leaves them out of the next call.
        """
        try:
            request = sbatch_options(
                parse_resources(submission.resources), submission.time_limit_seconds
            )
        except UsageError as error:
            raise LaunchError(str(error)) from error
        found: list[JobRef] = []
        for offset, tasks in self._parts(submission):
            try:
                found.extend(self._submit_part(submission, request, offset, tasks))
            except LaunchError as error:
                if not found or error.transient:
                    raise
                raise LaunchError(
                    f"{error} ({len(found)} tasks of this array are in the queue already)",
                    transient=True,
                ) from error
        return found

    def find(self, token: str, since: datetime) -> list[JobRef]:
        """Look for the token in the names of squeue and sacct; see `Scheduler`."""
        argv = ["squeue", "-h", "-r", "-t", "all", "--me", "-o", "%i|%k|%j"]
        lines = [line.split("|", 2) for line in self._ask(argv).splitlines()]
        found = [
            (fields[0], fields[2])
            for fields in lines
            if len(fields) == 3 and fields[1] in ("", "(null)", f"{_COMMENT}{token}")  # noqa: PLR2004
        ]
        recorded = self._ask_accounting([*accounting_since(since), "-o", "JobID,JobName"])
        if isinstance(recorded, LaunchError):
            if not any(offset_in(name, token) is not None for _, name in found):
                raise recorded
            recorded = ""
        found += [(job, name) for job, _, name in (x.partition("|") for x in recorded.splitlines())]
        return _refs(self.name, token, since, found)

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """Call scancel with ids alone, many at a time (snakemake#2113); see `Scheduler`.

        Slurm answers the same for a job that ended or never was.
        """
        for cluster in sorted({job.cluster for job in jobs}):
            tasks: dict[str, set[int | None]] = {}
            for job in jobs:
                if job.cluster == cluster:
                    index = None if job.index is None else job.index - job.offset
                    tasks.setdefault(job.job_id, set()).add(index)
            for ids in chunks([_cancel_id(i, t) for i, t in tasks.items()], _IDS_OF_A_SCANCEL):
                answer = self._run(["scancel", *of_cluster(cluster), *ids], extra=OF_QUERIES)
                if answer.code and "already completing or completed" not in answer.words:
                    raise LaunchError(answer.trouble, transient=is_no_answer(answer.stderr))

    def _submit_part(
        self, submission: Submission, request: list[str], offset: int, tasks: list[int] | None
    ) -> list[JobRef]:
        asked_at = datetime.now(timezone.utc)
        argv = [
            f"--job-name={submission.name}{f'.{offset}' if offset else ''}",
            f"--comment={_COMMENT}{submission.token}",
            "--no-requeue",
            f"--export=ALL{f',{ARRAY_OFFSET}={offset}' if offset else ''}",
            f"--chdir={submission.folder}",
            f"--output={self._log(submission, 'stdout', offset, tasks)}",
            f"--error={self._log(submission, 'stderr', offset, tasks)}",
            "--open-mode=append",
            *request,
        ]
        if tasks is not None:
            at_once = f"%{submission.at_once}" if submission.at_once else ""
            argv.append(f"--array={ranges([task - offset for task in tasks])}{at_once}")
        argv.append(str(submission.script))
        found = read_submit(self._sbatch(argv, submission.environment or None).stdout)
        if found is None:
            raise LaunchError("sbatch printed no job id; was the job taken?", transient=True)
        ref = JobRef(self.name, found[0], submission.token, asked_at, found[1])
        if tasks is None:
            return [ref]
        return [replace(ref, index=task, offset=offset) for task in tasks]

    def _sbatch(self, argv: list[str], environment: Mapping[str, str] | None) -> Answer:
        """Run sbatch; a site's wrapper that knows no --parsable (batchtools#243) gets none."""
        first = ["sbatch", "--parsable"] if self._parsable else ["sbatch"]
        answer = self._run([*first, *argv], environment=environment)
        if answer.code == 0:
            return answer
        if self._parsable and re.search(r"(option|argument)s?\b.*parsable", answer.words):
            self._parsable = False
            return self._sbatch(argv, environment)
        doubt = answer.code < 0 or is_no_answer(answer.stderr) or read_submit(answer.stdout)
        if doubt:
            raise LaunchError(answer.trouble, transient=True)
        raise LaunchError(answer.words or answer.trouble)

    def _parts(self, submission: Submission) -> Iterator[tuple[int, list[int] | None]]:
        """Cut an array: the limit is on the index, so each part begins at 0 (submitit#1624).

        Parts are powers of ten, so that the names of the logs can be written as an offset's first
        digits and a number with leading zeros.
        """
        if submission.array is None:
            yield 0, None
            return
        limit = self._array_limit()
        size = submission.array if submission.array <= limit else _part_size(limit)
        for offset in range(0, submission.array, size):
            last = min(offset + size, submission.array)
            tasks = [task for task in range(offset, last) if task not in submission.submitted]
            if tasks:
                yield offset, tasks

    def _log(
        self, submission: Submission, stream: str, offset: int, tasks: list[int] | None
    ) -> str:
        """Give the pattern of a log. A backslash ends all expansion of it; % is doubled."""
        folder = str(submission.folder)
        if tasks is None and "\\" in folder:
            return str(Path(folder, f"{stream}.log")).replace("\\", "\\\\")
        if "\\" in folder:
            raise LaunchError(
                f"Slurm cannot write the logs of an array into a folder with a backslash: {folder}"
            )
        number = ""
        if tasks is not None:
            size = _part_size(self._array_limit())
            number = f".{offset // size}%{len(str(size)) - 1}a" if offset else ".%a"
        return f"{folder.replace('%', '%%')}/{stream}{number}.log"

    def _array_limit(self) -> int:
        if self._max_array_size is None:
            text = require_answer(self._run(["scontrol", "show", "config"], extra=OF_QUERIES))
            found = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
            self._max_array_size = int(found[1]) if found else _DEFAULT_MAX_ARRAY_SIZE
        if self._max_array_size < 10:  # noqa: PLR2004 - a part of ten is the smallest
            raise LaunchError(f"Slurm takes no arrays here (MaxArraySize={self._max_array_size})")
        return self._max_array_size


def _part_size(limit: int) -> int:
    return int(10 ** (len(str(limit)) - 1))


def _cancel_id(job_id: str, tasks: set[int | None]) -> str:
    numbers = [task for task in tasks if task is not None]
    return f"{job_id}_[{ranges(numbers)}]" if numbers else job_id


def _refs(
    scheduler: str, token: str, since: datetime, found: list[tuple[str, str]]
) -> list[JobRef]:
    """Give one JobRef for each job or task whose name is ours."""
    refs: dict[tuple[str, int | None], JobRef] = {}
    for text, name in found:
        offset, job = offset_in(name, token), read_id(text)
        if offset is None or job is None:
            continue
        job_id, tasks, _ = job
        ref = JobRef(scheduler, job_id, token, since)
        if tasks is None:
            refs[job_id, None] = ref
            continue
        for task in (task for part in tasks for task in part):
            refs[job_id, task] = replace(ref, index=task + offset, offset=offset)
    return sorted(refs.values(), key=lambda ref: (ref.index or 0, int(ref.job_id)))
