"""What the schedulers say of jobs that nobody waits for at the moment.

Their rows are as the last waiter wrote them. A scheduler is asked as those who wait ask it: one
command for all jobs, at most one in an interval for all processes of this host together, so that
``watch exa hpc jobs`` is no load. Nothing is written down: that is for who takes a job up again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.schedulers.base import JobRef, JobStatus

LIMIT_SECONDS = 5.0
"""How long a list may wait for one command of a scheduler."""


def as_the_scheduler_says(jobs: Sequence[HpcJob]) -> list[HpcJob]:
    """Give jobs as their scheduler sees them, where it is on this host and answers.

    Over SSH nobody is asked: a list should not log in, and a short limit would cost others the
    connection.
    """
    from examlops_dagster.schedulers.tasks import ref_of

    refs = {job.key: ref_of(job) for job in jobs if _is_open(job)}
    if not refs:
        return list(jobs)
    told = _asked(refs.values())
    return [_seen(job, told[refs[job.key]]) if refs.get(job.key) in told else job for job in jobs]


def _is_open(job: HpcJob) -> bool:
    """Tell whether only its scheduler can say more of a job than its row and its folder do."""
    from examlops_dagster.schedulers.base import JobState
    from examlops_dagster.schedulers.folders import far_end_of

    known = JobState[job.state].final or job.exit_code is not None or not job.job_id
    return not known and Path(job.folder).is_dir() and not far_end_of(Path(job.folder)).host


def _asked(refs: Iterable[JobRef]) -> Mapping[JobRef, JobStatus]:
    from examlops_dagster.errors import ExamlopsError
    from examlops_dagster.schedulers.choose import at_hand
    from examlops_dagster.schedulers.watcher import Watcher

    by_name: dict[str, list[JobRef]] = {}
    for ref in refs:
        by_name.setdefault(ref.scheduler, []).append(ref)
    told: dict[JobRef, JobStatus] = {}
    for name, own in by_name.items():
        scheduler = at_hand(name, os.environ, LIMIT_SECONDS)
        if scheduler is None:
            continue
        try:
            told.update(Watcher(scheduler, os.environ).statuses(own))
        except (ExamlopsError, OSError):  # the list is what was asked for
            continue
    return told


def _seen(job: HpcJob, status: JobStatus) -> HpcJob:
    from examlops_dagster.schedulers.base import JobState

    if status.seen_at is None:
        return job
    state, reason = status.state, status.reason
    if state.final and state is not JobState.LOST:
        ended = f"{state.word}: {reason}" if reason else state.word
        reason = f"the scheduler says {ended}; the next request for it records that"
        state = JobState.COMPLETING if state is JobState.COMPLETED else state
    return replace(
        job,
        state=state.word,
        reason=reason,
        started_at=status.started_at or job.started_at,
        ended_at=status.ended_at or job.ended_at,
        exit_code=status.exit_code if state.final else job.exit_code,
        hosts=status.nodes or job.hosts,
    )
