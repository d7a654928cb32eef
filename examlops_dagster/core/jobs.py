"""What is remembered of batch jobs: one row a job or task of an array, and the verbs over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from examlops_dagster.core.records import Node


@dataclass(frozen=True)
class HpcJob:
    """One job, or one task of an array; ``exa hpc jobs`` lists them beside training runs.

    Attributes
    ----------
    token
        Ours, on disk before the submit; the tasks of an array share it.
    scheduler, cluster, job_id
        As the scheduler calls it, a task of a Slurm array ``1234_7``; the id is empty until its
        reply came.
    submitted_at
        Aware UTC datetime, by our clock, before the submit.
    model
        ``asset:<name>``, as ExaMLOps writes it.
    node, fingerprint, build_id, run_id
        The attempt that it was submitted for.
    folder
        Path of its folder, which the tasks of an array share.
    state
        Word of a JobState.
    reason
        Why it waits, or ended so.
    started_at, ended_at
        Aware UTC datetimes, where known.
    exit_code
        Of the program; None where it is not known.
    hosts
        Where it runs or ran, as the scheduler writes it.
    nodes, gpus, cpus
        What it asked for; None where it did not.
    array_index
        Of a task, as we count them; None for a job by itself.
    """

    token: str
    scheduler: str
    submitted_at: datetime
    node: Node
    folder: str
    job_id: str = ""
    cluster: str = ""
    model: str = ""
    fingerprint: str = ""
    build_id: str = ""
    run_id: str = ""
    state: str = "SUBMITTING"
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    hosts: str = ""
    nodes: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    array_index: int | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells it from all others."""
        return self.token, self.array_index


class JobsLedger(Protocol):
    """Remembers jobs, so that a process that comes later finds those of one that died."""

    def record(self, job: HpcJob) -> None:
        """Write a job down, in place of what was known of it."""
        ...

    def record_all(self, jobs: Iterable[HpcJob]) -> None:
        """Write many jobs down in one transaction."""
        ...

    def unclaimed(self, node: Node, fingerprint: str) -> Sequence[HpcJob]:
        """Give the jobs of a fingerprint whose end nobody has recorded, newest first.

        Those that still run, those that ended unseen, and those whose success was seen by a
        process that died before it could record a version.
        """
        ...

    def unclaimed_of(self, asset: str) -> Mapping[Node, Sequence[HpcJob]]:
        """Give the jobs of an asset whose end nobody has recorded, whatever their fingerprint."""
        ...
