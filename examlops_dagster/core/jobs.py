"""What is remembered of batch jobs: one row a job, and the verbs that an orchestrator needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from examlops_dagster.core.seams import Node


@dataclass(frozen=True)
class HpcJob:
    """One job; ``exa hpc jobs`` lists them beside training runs.

    Attributes
    ----------
    token
        Ours, on disk before the submit.
    scheduler, cluster, job_id
        As the scheduler calls it; the id is empty until its reply came.
    submitted_at
        Aware UTC datetime, by our clock, before the submit.
    model
        ``asset:<name>``, as ExaMLOps writes it.
    node, fingerprint, build_id, run_id
        The attempt that it was submitted for.
    folder
        Path of its folder.
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


class JobsLedger(Protocol):
    """Remembers jobs, so that a process that comes later finds those of one that died."""

    def record(self, job: HpcJob) -> None:
        """Write a job down, in place of what was known of its token."""
        ...

    def unclaimed(self, node: Node, fingerprint: str) -> Sequence[HpcJob]:
        """Give the jobs of a fingerprint whose end nobody has recorded, newest first.

        Those that still run, those that ended unseen, and those whose success was seen by a
        process that died before it could record a version.
        """
        ...
