"""What our Pipes clients need of a step: its names, its jobs, and what an interrupt means."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagster import OpExecutionContext
from dagster._core.storage.tags import ASSET_RESUME_RETRY_TAG, RESUME_RETRY_TAG

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.interrupts import is_here, is_meant
from examlops_dagster.dagster_bridge.pauses import stop_here
from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.schedulers.folder import JobFolder

_MOST_ANCESTORS = 64
_LOOKED_AT = 1000
"""Latest jobs of a name among which a retry looks for one that has succeeded."""


@dataclass(frozen=True)
class Step:
    """What is known of a step.

    Attributes
    ----------
    key
        Of the step.
    node
        Under which its jobs are listed.
    retry_number
        How often the step was tried before, in this run.
    is_again
        Whether it may have been tried before, so that a job of it may have succeeded.
    extras, range
        What Dagster's own context leaves out for a step over a range of partitions.
    """

    key: str
    node: Node
    retry_number: int = 0
    is_again: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)
    range: Mapping[str, Any] = field(default_factory=dict)


def context_of(context: OpExecutionContext, name: str | None) -> Step:
    """Read the context of a step, also that of a function that is called directly in a test."""
    key = op = context.op_def.name
    with suppress(Exception):  # there is no step behind a direct call
        key = context.get_step_execution_context().step.key
    if name is None:
        keys = sorted(context.selected_asset_keys) if context.has_assets_def else []
        name = keys[0].to_user_string() if len(keys) == 1 else op
    partition = context.partition_key if context.has_partition_key else ""
    retry = 0
    with suppress(Exception):  # as above
        retry = context.retry_number
    again = retry > 0 or len(runs_of(context)) > 1
    extras: dict[str, Any] = {}
    span: dict[str, Any] = {}
    if not partition and getattr(context, "has_partition_key_range", False):
        named = context.partition_key_range
        span = {"partition_key_range": {"start": named.start, "end": named.end}}
        extras = {"partition_keys": list(context.partition_keys)}
    return Step(key, Node(name, partition), retry, again, extras, span)


def runs_of(context: OpExecutionContext) -> list[str]:
    """Give the run, and those that it retries from their failure, whose jobs it may take up."""
    found = [context.run_id]
    with suppress(Exception):  # there is no run behind a direct call
        run: Any = context.run
        while len(found) < _MOST_ANCESTORS and run is not None and run.parent_run_id:
            tags = run.tags
            if "true" not in (tags.get(RESUME_RETRY_TAG), tags.get(ASSET_RESUME_RETRY_TAG)):
                break
            found.append(run.parent_run_id)
            run = context.instance.get_run_by_id(run.parent_run_id)
    return found


def was_meant(context: OpExecutionContext) -> Callable[[int | None], bool]:
    """Give what tells whether an interrupt asks for the end of the job.

    Terminate does. Ctrl-C does where the run is part of this process, as in a notebook; a run
    that Dagster launched gets the same signal when Dagster itself is stopped.
    """
    stop = stop_here()

    def meant(number: int | None) -> bool:
        tags = context.run.tags
        if stop is not None and stop.is_asked:
            number, ends = stop.number, stop.is_meant
        else:
            ends = is_meant(context.instance, context.run_id, tags, number)
        return ends or (number == signal.SIGINT and is_here(tags))

    return meant


class StepJobs:
    """The jobs of one step, of its run and of those that it retries; a JobsLedger.

    Parameters
    ----------
    jobs
        Where they are kept.
    fingerprints
        Of the call, in each of the runs.
    again
        Whether a job that has succeeded may be taken, since its step did not.
    """

    def __init__(self, jobs: HpcJobs, fingerprints: Sequence[str], *, again: bool) -> None:
        self._jobs = jobs
        self._fingerprints = tuple(fingerprints)
        self._again = again
        self.last: HpcJob | None = None

    def record(self, job: HpcJob) -> None:
        """See JobsLedger."""
        self.last = job
        self._jobs.record(job)

    def record_all(self, jobs: Iterable[HpcJob]) -> None:
        """See JobsLedger."""
        for job in jobs:
            self.record(job)

    def unclaimed(self, node: Node, fingerprint: str) -> Sequence[HpcJob]:
        """See JobsLedger."""
        del fingerprint  # there is one in each of the runs
        found = [job for each in self._fingerprints for job in self._jobs.unclaimed(node, each)]
        if self._again:
            found += [
                job
                for job in self._jobs.listed(asset=node.asset, limit=_LOOKED_AT)
                if job.fingerprint in self._fingerprints
                and job.state == "COMPLETED"
                and JobFolder(Path(job.folder)).exit(job.token) is not None
            ]
        return found

    def unclaimed_of(self, asset: str) -> Mapping[Node, Sequence[HpcJob]]:
        """See JobsLedger; a step has no tasks of an array."""
        del asset
        return {}
