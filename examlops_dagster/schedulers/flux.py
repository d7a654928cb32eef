"""Flux: flux submit, batch, jobs and cancel. Measured with flux-core 0.88.0."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.base import (
    JobRef,
    JobState,
    JobStatus,
    Submission,
    is_ours,
    offset_in,
)
from examlops_dagster.schedulers.commands import (
    OF_QUERIES,
    Answer,
    Runner,
    require_answer,
    run_command,
)
from examlops_dagster.schedulers.flux_text import (
    BROKER_LINE,
    is_no_answer,
    read_id,
    read_jobs,
    status_of,
)
from examlops_dagster.schedulers.options import FluxRequest, flux_request, ranges
from examlops_dagster.schedulers.resources import parse_resources

_IDS_OF_A_COMMAND = 1000
_ASCII_IDS = {"FLUX_F58_FORCE_ASCII": "1"}
_UNKNOWN_JOB = re.compile(r"JobID \S+ unknown")
_OVER = re.compile(r"job is inactive|unknown job id")
_DIRECTIVE = re.compile(r"^\s*#?\s*flux:", re.MULTILINE)


class FluxScheduler:
    """Batch jobs of a Flux instance, which FLUX_URI names.

    Parameters
    ----------
    runner
        Runs the commands; by default on this host.
    """

    name = "flux"
    tasks_have_ids = True
    """Each task of an array is a job with an id of its own."""
    own_lines = BROKER_LINE
    """What it writes itself into the logs of a job."""

    def __init__(self, runner: Runner = run_command) -> None:
        self._run = runner

    def submit(self, submission: Submission) -> list[JobRef]:
        """Call ``flux submit`` (``--cc`` for an array), ``flux batch`` beyond one task.

        An array of nested instances has no ``--cc``: each of its tasks is one ``flux batch``.
        """
        _check_paths(submission)
        try:
            request = flux_request(
                parse_resources(submission.resources), submission.time_limit_seconds
            )
        except UsageError as error:
            raise LaunchError(str(error)) from error
        if submission.array is None:
            return [self._submit_one(submission, request, None)]
        tasks = [task for task in range(submission.array) if task not in submission.submitted]
        if not request.nested:
            return self._submit_many(submission, request, tasks)
        found: list[JobRef] = []
        for task in tasks:
            try:
                found.append(self._submit_one(submission, request, task))
            except LaunchError as error:
                if not found or error.transient:
                    raise
                raise LaunchError(
                    f"{error} ({len(found)} tasks of this array are in the queue already)",
                    transient=True,
                ) from error
        return found

    def find(self, token: str, since: datetime) -> list[JobRef]:
        """Look for the token in the names of all jobs of the instance; see `Scheduler`."""
        text = self._ask(["flux", "jobs", "-a", "-c0", "--json"])
        return [
            replace(ref, submitted_at=since) for ref in self._refs(token, since, read_jobs(text))
        ]

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """Call ``flux jobs --json`` with all ids; see `Scheduler`.

        An id is unknown after the instance was restarted or the site's age limit, and may be
        another job's then: that is no end, and no failure.
        """
        told: dict[str, dict[str, Any]] = {}
        now = datetime.now(timezone.utc)
        ids = list(dict.fromkeys(job.job_id for job in jobs))
        for start in range(0, len(ids), _IDS_OF_A_COMMAND):
            part = ids[start : start + _IDS_OF_A_COMMAND]
            answer = self._run(["flux", "jobs", "--json", *part], extra=OF_QUERIES)
            told.update((str(job["id"]), job) for job in read_jobs(_known(answer)))
        found = {}
        for job in jobs:
            one = told.get(job.job_id)
            if one is not None and is_ours(str(one.get("name")), job.token):
                found[job] = status_of(one, now)
            else:
                found[job] = JobStatus(
                    JobState.UNKNOWN, reason="this Flux instance does not know the job", seen_at=now
                )
        return found

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """Call ``flux cancel`` with ids; one that ended keeps no other (facts/flux.md 5)."""
        ids = list(dict.fromkeys(job.job_id for job in jobs))
        for start in range(0, len(ids), _IDS_OF_A_COMMAND):
            part = ids[start : start + _IDS_OF_A_COMMAND]
            answer = self._run(["flux", "cancel", *part], extra=OF_QUERIES)
            complaints = [line for line in answer.stderr.splitlines() if line.strip()]
            if answer.code and not (complaints and all(map(_OVER.search, complaints))):
                raise LaunchError(answer.trouble, transient=is_no_answer(answer.stderr))

    def _submit_one(self, submission: Submission, request: FluxRequest, task: int | None) -> JobRef:
        asked_at = datetime.now(timezone.utc)
        number = "" if task is None else f".{task}"
        own = {} if task is None else {"FLUX_JOB_CC": str(task)}
        argv = _argv(submission, request, number)
        ids = self._submit(argv, submission.environment or None, own)
        if len(ids) != 1:
            raise LaunchError("flux printed no job id; was the job taken?", transient=True)
        return JobRef(self.name, ids[0], submission.token, asked_at, index=task)

    def _submit_many(
        self, submission: Submission, request: FluxRequest, tasks: list[int]
    ) -> list[JobRef]:
        if not tasks:
            return []
        asked_at = datetime.now(timezone.utc)
        argv = _argv(submission, request, ".{cc}", f"--cc={ranges(tasks)}")
        ids = self._submit(argv, submission.environment or None, {})
        told = read_jobs(self._ask(["flux", "jobs", "--json", *ids])) if ids else []
        found = self._refs(submission.token, asked_at, told)
        if [ref.index for ref in found] != tasks:
            raise LaunchError(
                f"Flux knows {len(found)} of {len(tasks)} tasks of this array", transient=True
            )
        return found

    def _submit(
        self, argv: list[str], environment: Mapping[str, str] | None, own: Mapping[str, str]
    ) -> list[str]:
        answer = self._run(argv, environment=environment, extra={**_ASCII_IDS, **own})
        ids = [found for found in map(read_id, answer.stdout.splitlines()) if found is not None]
        if answer.code == 0:
            return ids
        if ids or answer.code < 0 or is_no_answer(answer.stderr):
            raise LaunchError(answer.trouble, transient=True)
        raise LaunchError(f"Flux refused the job: {answer.words}")

    def _refs(self, token: str, when: datetime, jobs: Sequence[Mapping[str, Any]]) -> list[JobRef]:
        """Give one JobRef for each job of ours; a task of an array has its index in the name."""
        found = []
        for job in jobs:
            name = str(job.get("name"))
            number = offset_in(name, token)
            if number is not None:
                index = number if re.search(r"\.\d+$", name) else None
                found.append(JobRef(self.name, str(job["id"]), token, when, index=index))
        return sorted(found, key=lambda ref: (ref.index or 0, int(ref.job_id)))

    def _ask(self, argv: list[str]) -> str:
        return require_answer(self._run(argv, extra=OF_QUERIES))


def _argv(submission: Submission, request: FluxRequest, number: str, *more: str) -> list[str]:
    """Write the line that avoids Flux's traps (facts/flux.md 11).

    stdin would be waited for; a PMI socket that a child keeps would keep the job running. A line
    ``flux: ...`` in a batch script would be read as options, so the script is one constant line.
    """
    script = str(submission.script)
    return [
        "flux",
        "batch" if request.nested else "submit",
        f"--job-name={submission.name}{number}",
        f"--setattr=user.examlops_token={submission.token}",
        "--input=/dev/null",
        f"--output={submission.folder}/stdout{number}.log",
        f"--error={submission.folder}/stderr{number}.log",
        f"--cwd={submission.folder}",
        *([] if request.nested else ["--setopt=pmi=off"]),
        *request.options,
        *more,
        *(["--wrap", f"exec {shlex.quote(script)}"] if request.nested else ["--", script]),
    ]


def _check_paths(submission: Submission) -> None:
    """Refuse what Flux would expand: it knows no escape for its templates."""
    paths = f"{submission.folder}\n{submission.script}"
    if "{{" in paths or (submission.array is not None and "{" in paths):
        raise LaunchError(f"Flux would expand the braces in the job's folder: {submission.folder}")
    if _DIRECTIVE.search(str(submission.script)):
        raise LaunchError(f"Flux would read options in the script's name: {submission.script}")


def _known(answer: Answer) -> str:
    """Give what ``flux jobs`` told; it exits 1 when no id is known, and when it cannot connect."""
    complaints = [line for line in answer.stderr.splitlines() if line.strip()]
    if answer.code and complaints and all(map(_UNKNOWN_JOB.fullmatch, complaints)):
        return ""
    return require_answer(answer)
