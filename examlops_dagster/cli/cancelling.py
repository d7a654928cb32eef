"""Cancels batch jobs, once policy lets it, and sees that they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from examlops_dagster.cli.common import home_here
from examlops_dagster.cli.jobs import as_its_folder_says, at_scheduler, jobs_ledger, status_of

if TYPE_CHECKING:
    from examlops_dagster.cli.common import Options
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.schedulers.base import JobStatus

_CANCEL_SECONDS = 60.0


@contextmanager
def governed_cancel(jobs: list[HpcJob]) -> Iterator[None]:
    """Ask policy before jobs are cancelled, and record it."""
    from examlops_dagster.governance.decision import Action
    from examlops_dagster.governance.governor import Governor
    from examlops_dagster.store.engine import Database

    home = home_here()
    asset = jobs[0].node.asset
    database = Database(home.database)
    try:
        governor = Governor(home, database)
        governor.require(Action.CANCEL, asset, orchestrator="scheduler")
        ids = [job.job_id for job in jobs]
        with governor.recorded(Action.CANCEL, asset, jobs=ids, scheduler=jobs[0].scheduler):
            yield
    finally:
        database.close()


def cancel_tasks(chosen: Options, jobs: list[HpcJob]) -> None:
    """Cancel the tasks of an array that have not ended, and see that they are gone.

    Raises
    ------
    UsageError
        If they never got an id.
    LaunchError
        If some are still there.
    """
    import os
    from pathlib import Path

    from examlops_dagster.errors import LaunchError, UsageError
    from examlops_dagster.orchestrators.submitting import cancel_all
    from examlops_dagster.schedulers.base import JobState
    from examlops_dagster.schedulers.choose import make_scheduler
    from examlops_dagster.schedulers.folders import check_far_end
    from examlops_dagster.schedulers.tasks import ref_of

    name = jobs[0].node.asset
    jobs = [as_its_folder_says(job) for job in jobs]
    states = Counter(job.state for job in jobs)
    jobs = [j for j in jobs if not JobState[j.state].final and j.exit_code is None]
    if not jobs:
        counted = ", ".join(f"{count} {word}" for word, count in sorted(states.items()))
        chosen.say(f"The tasks of {name} had ended: {counted}", tasks=0)
        return
    jobs = [job for job in jobs if job.job_id]
    if not jobs:
        raise UsageError(f"the tasks of {name} never got an id")
    check_far_end(Path(jobs[0].folder), os.environ)
    scheduler = make_scheduler(jobs[0].scheduler)
    found = cancel_all(scheduler, [ref_of(job) for job in jobs], _CANCEL_SECONDS)
    left = [ref for ref, status in found.items() if not status.state.final]
    if left:
        raise LaunchError(
            f"{len(left)} of {len(jobs)} tasks of {name} were cancelled, but are still there",
            transient=True,
        )
    gone = [job for job in jobs if found[ref_of(job)].state is JobState.CANCELLED]
    _record_cancelled({job.key: found[ref_of(job)] for job in gone}, gone)
    chosen.say(f"Cancelled {len(gone)} tasks", tasks=len(gone))


def cancel_job(chosen: Options, job: HpcJob) -> None:
    """Cancel one job, and see that it is gone.

    Raises
    ------
    UsageError
        If it never got an id.
    LaunchError
        If it is still there.
    """
    from examlops_dagster.errors import LaunchError, UsageError
    from examlops_dagster.orchestrators.submitting import cancel_all
    from examlops_dagster.schedulers.base import JobState

    if not job.job_id:
        raise UsageError(f"job {job.token[:8]} of {job.node} never got an id ({job.state})")
    seen = as_its_folder_says(job)
    if seen is not job:
        text = f"Job {job.job_id} of {job.node} {seen.reason}"
        chosen.say(text, job=job.job_id, state=seen.state)
        return
    scheduler, ref = at_scheduler(job)
    before = status_of(scheduler, ref)
    ended = before.state if before.state.final else JobState[job.state]
    if ended.final:
        text = f"Job {job.job_id} of {job.node} had ended: {ended.word}"
        chosen.say(text, job=job.job_id, state=ended.word)
        return
    status = cancel_all(scheduler, [ref], _CANCEL_SECONDS)[ref]
    if not status.state.final:
        raise LaunchError(
            f"job {job.job_id} was cancelled, but {scheduler.name} still shows it as "
            f"{status.native or status.state.word}",
            transient=True,
        )
    if status.state is JobState.CANCELLED:
        _record_cancelled({job.key: status}, [job])
    chosen.say(f"Cancelled job {job.job_id} of {job.node}", job=job.job_id, state=status.state.word)


def _record_cancelled(
    statuses: Mapping[tuple[str, int | None], JobStatus], jobs: list[HpcJob]
) -> None:
    """Write down that jobs were cancelled, where nobody who waits for them did meanwhile."""
    from dataclasses import replace

    from examlops_dagster.schedulers.base import JobState

    with jobs_ledger() as ledger:
        if ledger is None:
            return
        current = {
            job.key: job for name in {j.token for j in jobs} for job in ledger.meant_by(name)
        }
        open_jobs = [current[j.key] for j in jobs if not JobState[current[j.key].state].final]
        ledger.record_all(
            replace(
                job,
                state=statuses[job.key].state.word,
                reason="cancelled with exa hpc cancel",
                ended_at=statuses[job.key].ended_at,
            )
            for job in open_jobs
        )
