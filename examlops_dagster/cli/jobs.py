"""Finds the batch jobs of the home, and asks their schedulers about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from examlops_dagster.cli.common import home_here

if TYPE_CHECKING:
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.ledger.jobs import HpcJobs
    from examlops_dagster.schedulers.base import JobRef, JobStatus, Scheduler


@contextmanager
def jobs_ledger() -> Iterator[HpcJobs | None]:
    """Open the jobs of the home; None where nothing was ever built."""
    from examlops_dagster.ledger.jobs import HpcJobs
    from examlops_dagster.store.engine import Database
    from examlops_dagster.store.migrations import migrate

    database = Database(home_here().database)
    if not database.exists:
        yield None
        return
    try:
        migrate(database)
        yield HpcJobs(database)
    finally:
        database.close()


def job_named(name: str) -> HpcJob:
    """Give a job by its id, or the latest one of an asset.

    Raises
    ------
    UsageError
        If there is none.
    """
    from examlops_dagster.errors import UsageError

    with jobs_ledger() as ledger:
        found = ledger.named(name) if ledger is not None else None
    if found is None:
        raise UsageError(
            f"there is no job {name!r}, nor one of an asset of that name → exa hpc jobs"
        )
    return found


def as_its_folder_says(job: HpcJob) -> HpcJob:
    """Give a job that ended while nobody waited for it as such: its row knows nothing of that.

    The request that takes it up records what it left, and how it ended.
    """
    from dataclasses import replace
    from pathlib import Path

    from examlops_dagster.schedulers.base import JobState
    from examlops_dagster.schedulers.folder import JobFolder

    if JobState[job.state].final:
        return job
    end = JobFolder(Path(job.folder), job.array_index).exit(job.token)
    if end is None:
        return job
    return replace(
        job,
        state=JobState.COMPLETING.word,
        reason=f"ended with exit code {end.code}; the next request for it records that",
        ended_at=end.time,
        exit_code=end.code,
        hosts=job.hosts or end.host,
    )


def old_jobs(moment: datetime) -> list[HpcJob]:
    """Give the jobs that ended before a moment; also those of which only their folder says so."""
    with jobs_ledger() as ledger:
        if ledger is None:
            return []
        found = ledger.ended_before(moment)
        for rows in ledger.open_before(moment).values():
            ends = [as_its_folder_says(row).ended_at for row in rows]
            if all(end is not None and end < moment for end in ends):
                found += rows
    return found


def give_up(job: HpcJob) -> None:
    """Write down that what a job left, and nobody recorded, is removed; so are its array's tasks."""
    from dataclasses import replace

    from examlops_dagster.schedulers.base import JobState

    with jobs_ledger() as ledger:
        if ledger is None:
            return
        tasks = [row for row in ledger.meant_by(job.token) if not JobState[row.state].final]
        reason = "nobody recorded its end before its folder was pruned"
        ledger.record_all(replace(t, state=JobState.LOST.word, reason=reason) for t in tasks)


def at_scheduler(job: HpcJob) -> tuple[Scheduler, JobRef]:
    """Give the scheduler that has a job, and how it is named there."""
    import os
    from pathlib import Path

    from examlops_dagster.schedulers.choose import make_scheduler
    from examlops_dagster.schedulers.folders import check_far_end
    from examlops_dagster.schedulers.tasks import ref_of

    check_far_end(Path(job.folder), os.environ)
    return make_scheduler(job.scheduler), ref_of(job)


def status_of(scheduler: Scheduler, ref: JobRef) -> JobStatus:
    """Ask for the state of a job; unknown, with the reason, where the scheduler does not answer."""
    from examlops_dagster.errors import LaunchError
    from examlops_dagster.schedulers.base import JobState, JobStatus

    try:
        return scheduler.poll([ref])[ref]
    except LaunchError as error:
        return JobStatus(JobState.UNKNOWN, reason=str(error))
