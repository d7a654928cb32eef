"""How Slurm is asked about jobs: squeue first, then sacct and scontrol for what it does not know.

Absence is no evidence of an end, and a command that failed no evidence of anything: four of nine
launchers take one of them for success (facts/hpc.md 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus, is_ours
from examlops_dagster.schedulers.commands import OF_QUERIES, Answer, Runner
from examlops_dagster.schedulers.slurm_rows import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    Row,
    read_exit,
    read_id,
    sacct_rows,
    scontrol_rows,
    squeue_rows,
)
from examlops_dagster.schedulers.slurm_text import is_no_answer, status_of

_IDS_OF_A_SQUEUE = 2000
_IDS_OF_A_SACCT = 400
_SCONTROLS_OF_A_POLL = 10
_SLACK = timedelta(hours=1)
"""Between our clock and the controller's; the token decides, so a wide window harms nobody."""
_PREEMPTED_SECONDS = 60.0
"""Slurm may start it again: it is over only when it stays so (submitit PR 1770)."""
_EMPTY_FAILURE_SECONDS = 20.0
"""An outage of slurmdbd shows FAILED 0:0 for what is 4:0 a little later (facts/slurm.md 3.5)."""

_Item = TypeVar("_Item")


def chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Cut a sequence into parts of a size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def of_cluster(cluster: str) -> list[str]:
    """Name the cluster only where it is known: -M needs slurmdbd (…-plugin-slurm#397)."""
    return ["-M", cluster] if cluster else []


def accounting_since(moment: datetime) -> list[str]:
    """Begin a command that reads accounting from a submit on (snakemake#1227).

    Every attempt (-D, MFC#1311), and no steps.
    """
    begin = (moment.astimezone(timezone.utc) - _SLACK).strftime("%Y-%m-%dT%H:%M:%S")
    return ["sacct", "-n", "-P", "-X", "-D", "-S", begin]


class SlurmAnswers:
    """The asking half of SlurmScheduler."""

    def __init__(self, runner: Runner, monotonic: Callable[[], float]) -> None:
        self._run = runner
        self._monotonic = monotonic
        self._no_accounting = ""
        self._doubtful: dict[JobRef, tuple[str, float]] = {}

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """Ask squeue about all jobs, and sacct and scontrol about the absent; see `Scheduler`."""
        found: dict[JobRef, JobStatus] = {}
        for cluster in sorted({job.cluster for job in jobs}):
            found.update(self._poll(cluster, [job for job in jobs if job.cluster == cluster]))
        return {job: found[job] for job in jobs}

    def _poll(self, cluster: str, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        now = datetime.now(timezone.utc)
        rows = _newest(jobs, self._squeue(cluster, _ids(jobs)))
        failed = [job for job, row in rows.items() if row.state == "FAILED"]
        codes = self._exit_codes(cluster, _ids(failed)) if failed else {}
        found = {}
        for job, row in rows.items():
            code = codes.get((job.job_id, _task(job)))
            found[job] = self._settled(job, status_of(replace(row, exit=code), now), row.exit)
        absent = [job for job in jobs if job not in found]
        found.update(self._absent(cluster, absent, now))
        return found

    def _squeue(self, cluster: str, ids: list[str]) -> list[Row]:
        base = ["squeue", "-h", "-r", "-t", "all", *of_cluster(cluster)]
        rows: list[Row] = []
        for part in chunks(ids, _IDS_OF_A_SQUEUE):
            answer = self._run([*base, "-j", ",".join(part), "-o", SQUEUE_FORMAT], extra=OF_QUERIES)
            if "Invalid job id specified" in answer.stderr:
                if len(part) == 1:  # purged, or never was (fractal-server#1681)
                    continue
                answer = self._run([*base, "--me", "-o", SQUEUE_FORMAT], extra=OF_QUERIES)
            rows.extend(squeue_rows(_checked(answer)))
        return rows

    def _exit_codes(
        self, cluster: str, ids: list[str]
    ) -> Mapping[tuple[str, int | None], tuple[int, int] | None]:
        """Ask how failed jobs ended, in one command; nothing is known where that fails."""
        found = {}
        for part in chunks(ids, _IDS_OF_A_SQUEUE):
            argv = ["squeue", "-h", "-r", "-t", "all", *of_cluster(cluster), "-j", ",".join(part)]
            try:
                answer = self._run([*argv, "-O", "JobArrayID:64|,exit_code:16|"], extra=OF_QUERIES)
            except LaunchError:
                return {}
            for line in answer.stdout.splitlines():
                text, _, code = line.strip().rstrip("|").partition("|")
                job = read_id(text)
                if job is not None:
                    found[job[0], job[1][0][0] if job[1] else None] = read_exit(code)
        return found

    def _absent(
        self, cluster: str, jobs: Sequence[JobRef], now: datetime
    ) -> dict[JobRef, JobStatus]:
        """Look for jobs that squeue does not know; it forgets them some minutes after the end."""
        if not jobs:
            return {}
        found: dict[JobRef, JobStatus] = {}
        recorded = self._sacct(cluster, jobs)
        trouble = str(recorded) if isinstance(recorded, LaunchError) else ""
        rows = {} if isinstance(recorded, LaunchError) else _newest(jobs, recorded)
        unknown = [job for job in jobs if job not in rows]
        for job in unknown[:_SCONTROLS_OF_A_POLL]:
            row = self._scontrol(cluster, job)
            if row is not None:
                rows[job] = row
        for job in jobs:
            seen = now if not trouble or job in rows else None
            status = JobStatus(
                JobState.UNKNOWN, reason=trouble or "Slurm does not know the job", seen_at=seen
            )
            if job in rows:
                status = self._settled(job, status_of(rows[job], now), rows[job].exit)
                if not status.state.final and status.state is not JobState.UNKNOWN:
                    # accounting lags behind the end (gc3pie#524): squeue would show a live job
                    status = replace(
                        status,
                        state=JobState.UNKNOWN,
                        reason=f"squeue does not show it; accounting says {status.native}",
                        never_starts=False,
                    )
            found[job] = status
        return found

    def _sacct(self, cluster: str, jobs: Sequence[JobRef]) -> list[Row] | LaunchError:
        """Read accounting; an error where it gave no answer."""
        since = accounting_since(min(job.submitted_at for job in jobs))
        base = [*since, *of_cluster(cluster), "-o", SACCT_FORMAT]
        rows: list[Row] = []
        for part in chunks(_ids(jobs), _IDS_OF_A_SACCT):
            answer = self._ask_accounting([*base, "-j", ",".join(part)])
            if isinstance(answer, LaunchError):
                return answer
            rows.extend(sacct_rows(answer))
        return sorted(rows, key=lambda row: row.submitted)

    def _scontrol(self, cluster: str, job: JobRef) -> Row | None:
        task = _task(job)
        name = job.job_id if task is None else f"{job.job_id}_{task}"
        try:
            answer = self._run(
                ["scontrol", *of_cluster(cluster), "-o", "show", "job", name], extra=OF_QUERIES
            )
        except LaunchError:
            return None
        rows = _newest([job], scontrol_rows(answer.stdout)) if answer.code == 0 else {}
        return rows.get(job)

    def _settled(self, job: JobRef, status: JobStatus, ended: tuple[int, int] | None) -> JobStatus:
        """Hold back an end that has to be seen again after a while before it counts."""
        if status.state is JobState.PREEMPTED:
            doubt, wait = "preempted; Slurm may start it again", _PREEMPTED_SECONDS
        elif status.state is JobState.FAILED and ended == (0, 0):
            doubt, wait = "accounting says FAILED 0:0, which may be stale", _EMPTY_FAILURE_SECONDS
        else:
            self._doubtful.pop(job, None)
            return status
        now = self._monotonic()
        word, first = self._doubtful.get(job, ("", now))
        if word != status.native:
            self._doubtful[job] = status.native, now
        elif now - first >= wait:
            return status
        return replace(status, state=JobState.UNKNOWN, reason=doubt, exit_code=None)

    def _ask(self, argv: list[str]) -> str:
        return _checked(self._run(argv, extra=OF_QUERIES))

    def _ask_accounting(self, argv: list[str]) -> str | LaunchError:
        """Run sacct; empty where there is no accounting, an error where it gave no answer."""
        if self._no_accounting:
            return ""
        try:
            answer = self._run(argv, extra=OF_QUERIES)
        except LaunchError as error:
            return error
        if "accounting storage is disabled" in answer.stderr:
            self._no_accounting = answer.words
            return ""
        try:
            return _checked(answer)
        except LaunchError as error:
            return error


def _checked(answer: Answer) -> str:
    """Give stdout; an empty one beside a complaint is no answer, whatever the exit code says."""
    if answer.code or (
        not answer.stdout.strip() and answer.stderr.strip() and is_no_answer(answer.stderr)
    ):
        raise LaunchError(answer.trouble, transient=True)
    return answer.stdout


def _task(job: JobRef) -> int | None:
    return None if job.index is None else job.index - job.offset


def _ids(jobs: Iterable[JobRef]) -> list[str]:
    return list(dict.fromkeys(job.job_id for job in jobs))


def _newest(jobs: Sequence[JobRef], rows: Iterable[Row]) -> dict[JobRef, Row]:
    """Give the last row of each job; a name without our token is another's (submitit#1660)."""
    by_id: dict[str, list[Row]] = {}
    exact: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row.tasks is not None and len(row.tasks) == 1 and len(row.tasks[0]) == 1:
            exact[row.job_id, row.tasks[0][0]] = row
        else:
            by_id.setdefault(row.job_id, []).append(row)
    found = {}
    for job in jobs:
        task = _task(job)
        one = exact.get((job.job_id, task)) if task is not None else None
        for row in [*by_id.get(job.job_id, ()), *([one] if one else ())]:
            if row.covers(task) and is_ours(row.name, job.token):
                found[job] = row
    return found
