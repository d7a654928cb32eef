"""What the keys of an array share: one look at the folder, at the scheduler, at the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from examlops_dagster.core.jobs import HpcJob, JobsLedger
from examlops_dagster.core.records import Node
from examlops_dagster.errors import ExamlopsError, LaunchError
from examlops_dagster.orchestrators import submitting
from examlops_dagster.orchestrators.batch import BatchBuild
from examlops_dagster.orchestrators.ends import Watch
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus


class BufferedJobs:
    """Keeps what is to be remembered of many jobs, and writes it down together.

    Parameters
    ----------
    jobs
        Where it is written; None forgets it.
    """

    def __init__(self, jobs: JobsLedger | None) -> None:
        self._jobs = jobs
        self._waiting: dict[tuple[str, int | None], HpcJob] = {}

    def record(self, job: HpcJob) -> None:
        """See JobsLedger; written at the next `flush`."""
        self._waiting[job.key] = job

    def record_all(self, jobs: Iterable[HpcJob]) -> None:
        """See JobsLedger."""
        for job in jobs:
            self.record(job)

    def unclaimed(self, node: Node, fingerprint: str) -> Sequence[HpcJob]:
        """See JobsLedger."""
        return () if self._jobs is None else self._jobs.unclaimed(node, fingerprint)

    def unclaimed_of(self, asset: str) -> Mapping[Node, Sequence[HpcJob]]:
        """See JobsLedger."""
        return {} if self._jobs is None else self._jobs.unclaimed_of(asset)

    def flush(self) -> None:
        """Write down what waits; where that fails, it is told, and written the next time."""
        with submitting.Quiet():
            self.must_flush()

    def must_flush(self) -> None:
        """Write down what waits.

        Raises
        ------
        ExamlopsError
            If it cannot be written.
        """
        waiting, self._waiting = self._waiting, {}
        if waiting and self._jobs is not None:
            try:
                self._jobs.record_all(waiting.values())
            except ExamlopsError:
                self._waiting = {**waiting, **self._waiting}
                raise


class Listing:
    """The names in one folder, as of the last look; a look also makes NFS ask its server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: frozenset[str] = frozenset()

    def look(self) -> None:
        """List it."""
        try:
            self._names = frozenset(os.listdir(self._path))  # noqa: PTH208 - names alone
        except OSError:
            self._names = frozenset()

    def names(self) -> frozenset[str]:
        """Give the names."""
        return self._names


class SharedWatch:
    """A watch that is asked for all jobs of an array at once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._last: dict[JobRef, JobStatus] = {}
        self._error: LaunchError | None = None

    @property
    def trouble(self) -> str:
        """See Watch."""
        return self._watch.trouble

    def look(self, jobs: Sequence[JobRef]) -> None:
        """Ask for all of them; what follows answers from that."""
        self._error = None
        try:
            self._last = self._watch.statuses([job for job in jobs if job.job_id])
        except LaunchError as error:
            self._error = error

    def status(self, job: JobRef) -> JobStatus:
        """See Watch."""
        if self._error is not None:
            raise self._error
        return self._last.get(job, JobStatus(JobState.UNKNOWN))

    def statuses(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """See Watch."""
        return {job: self.status(job) for job in jobs}

    def forget(self, job: JobRef) -> None:
        """See Watch."""
        self._watch.forget(job)


class FindOnce:
    """Looks each submit up once, however many tasks it has."""

    def __init__(self) -> None:
        self._found: dict[str, list[JobRef]] = {}

    def of(self, build: BatchBuild) -> Callable[[HpcJob], list[JobRef]]:
        """Give what looks a submit up for one of its keys."""

        def find(row: HpcJob) -> list[JobRef]:
            if row.token not in self._found:
                self._found[row.token] = build.submitting.find(row)
            return self._found[row.token]

        return find
