"""Cancels the jobs of many threads with few commands (snakemake#2113).

An interrupt reaches all who wait at about the same time. Each would call the scheduler, and ask
it each second whether its job is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus, Scheduler

GATHER_SECONDS = 0.2
"""For others to join who want the same."""

CancelAll = Callable[[Scheduler, Sequence[JobRef], float], Mapping[JobRef, JobStatus]]
"""Cancels jobs, and waits for so many seconds until they are gone."""


@dataclass
class _Batch:
    jobs: list[JobRef] = field(default_factory=list)
    found: Mapping[JobRef, JobStatus] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class Cancelling:
    """Gathers what is to be cancelled; whoever is first does it for all.

    Parameters
    ----------
    scheduler
        Has the jobs.
    cancel_all
        Cancels many of them.
    """

    def __init__(self, scheduler: Scheduler, cancel_all: CancelAll) -> None:
        self._scheduler = scheduler
        self._cancel_all = cancel_all
        self._lock = threading.Lock()
        self._open: _Batch | None = None

    def cancel(self, job: JobRef, seconds: float) -> JobStatus:
        """Cancel a job, and wait for so many seconds until it is gone; gives what it is then."""
        with self._lock:
            leads = self._open is None
            batch = self._open = self._open or _Batch()
            batch.jobs.append(job)
        if leads:
            try:
                time.sleep(GATHER_SECONDS)
            finally:
                with self._lock:
                    self._open = None
            try:
                batch.found = self._cancel_all(self._scheduler, batch.jobs, seconds)
            finally:
                batch.done.set()
        else:
            batch.done.wait()
        return batch.found.get(job, JobStatus(JobState.UNKNOWN))
