"""Runs and backfills of ours that ended before our op body began: they count as attempts too.

A run whose process was killed while it started, whose resource could not be made, or that somebody
ended in the queue leaves no attempt behind; automation would request it again for ever.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus
from dagster._core.storage.tags import BACKFILL_ID_TAG

from examlops_dagster.core.records import Attempt, BuildState, Node
from examlops_dagster.core.status import Judge
from examlops_dagster.dagster_bridge.lineage_notes import begin_notes
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.ledger.tags import PROCESS_TAG, SLICE_TAG

FIRST_LOOK_BACK = timedelta(hours=1)
OVERLAP = timedelta(seconds=10)
BACKFILL_LOOK_BACK = timedelta(days=1)
RUN_ENDS = {
    DagsterRunStatus.FAILURE: (BuildState.DIED, "the run failed before it was built"),
    DagsterRunStatus.CANCELED: (BuildState.CANCELLED, "the run was ended before it was built"),
}
BACKFILL_ENDS = {
    BulkActionStatus.FAILED: (BuildState.DIED, "the backfill failed before it was built"),
    BulkActionStatus.CANCELED: (
        BuildState.CANCELLED,
        "the backfill was ended before it was built",
    ),
}

logger = logging.getLogger(__name__)


def note_lost_runs(location: Location, instance: DagsterInstance, judge: Judge) -> bool:
    """Write an attempt down for each node that such a run was going to build, and say if any was.

    A backfill that ended before it made a run of a node counts as a run that did.

    Parameters
    ----------
    judge
        Gives the time, and the fingerprint of each attempt.
    """
    runtime = location.runtime(instance)
    now = judge.snapshot.now
    since = (location.lost_runs_noted or now - FIRST_LOOK_BACK) - OVERLAP
    location.lost_runs_noted = now
    backfills = _backfills(location, runtime, now - BACKFILL_LOOK_BACK)
    noted = False
    for each in chain(_runs(runtime, since), backfills):
        for node in _nodes(runtime, judge, each):
            noted |= _note(location, runtime, judge, node, each)
    return noted


@dataclass(frozen=True)
class _Lost:
    """A run or backfill that ended before it had built all that it was for.

    Attributes
    ----------
    run
        With its id; of a backfill, what stands for it in lineage.
    nodes
        What it had not begun, at least.
    ended_at
        Aware UTC datetime.
    """

    run: DagsterRun
    nodes: set[Node]
    state: BuildState
    error: str
    ended_at: datetime

    @property
    def id(self) -> str:
        """Of the run or the backfill."""
        return self.run.run_id


def _runs(runtime: Runtime, since: datetime) -> Iterator[_Lost]:
    found = runtime.event_log.instance.get_run_records(
        RunsFilter(statuses=list(RUN_ENDS), tags={SLICE_TAG: "true"}, updated_after=since)
    )
    for record in found:
        run = record.dagster_run
        if PROCESS_TAG in run.tags:
            continue  # a person waited for it, and saw how it ended
        ended_at = (
            record.update_timestamp if record.end_time is None else from_epoch(record.end_time)
        )
        nodes = runtime.event_log.planned(run)
        yield _Lost(run, nodes, *RUN_ENDS[run.status], ended_at)


def _backfills(location: Location, runtime: Runtime, since: datetime) -> Iterator[_Lost]:
    log, instance = runtime.event_log, runtime.event_log.instance
    found = instance.get_backfills(
        BulkActionsFilter(
            statuses=list(BACKFILL_ENDS), tags={SLICE_TAG: "true"}, created_after=since
        )
    )
    for backfill in found:
        if backfill.asset_backfill_data is None or backfill.backfill_id in location.lost_backfills:
            continue
        state, error = BACKFILL_ENDS[backfill.status]
        said = backfill.error.message.strip() if backfill.error is not None else ""
        if said:
            error = f"{error}: {said.splitlines()[0]}"
        nodes = log.targets(backfill)
        for record in instance.get_run_records(
            RunsFilter(tags={BACKFILL_ID_TAG: backfill.backfill_id})
        ):
            run = record.dagster_run
            nodes -= log.planned(run) | runtime.ledger.of_run(run.run_id).keys()
        ended_at = from_epoch(backfill.backfill_end_timestamp or backfill.backfill_timestamp)
        if nodes:
            logger.warning("backfill %s: %s (%d nodes)", backfill.backfill_id, error, len(nodes))
            tags = {**backfill.tags, BACKFILL_ID_TAG: backfill.backfill_id}
            stand_in = DagsterRun(IMPLICIT_ASSET_JOB_NAME, backfill.backfill_id, tags=tags)
            yield _Lost(stand_in, nodes, state, error, ended_at)
        location.lost_backfills.add(backfill.backfill_id)  # its attempts are written down by now


def _nodes(runtime: Runtime, judge: Judge, lost: _Lost) -> list[Node]:
    """Give the nodes that were not begun, though nothing above them failed in it."""
    builds = runtime.ledger.of_run(lost.id)
    missing = lost.nodes - builds.keys()
    bad = missing | {node for node, build in builds.items() if build.state.holds}
    found = []
    for node in sorted(missing):
        declaration = judge.nodes.graph.declarations.get(node.asset)
        if declaration is None or declaration.function is None:
            continue
        record = judge.snapshot.records.get(node)
        if record is not None and record.built_at >= lost.ended_at:
            continue
        above = judge.nodes.upstreams(node)
        if not any(Node(edge.name, key) in bad for edge, keys in above for key in keys):
            found.append(node)
    return found


def _note(location: Location, runtime: Runtime, judge: Judge, node: Node, lost: _Lost) -> bool:
    token = secrets.token_hex(16)
    if runtime.ledger.claim(node, token, lost.id) is not None:
        return False  # somebody builds it right now
    try:
        code_version = location.code_versions.get(node.asset, "")
        attempt = Attempt(node, token, judge.fingerprint(node), code_version, {}, "", lost.id)
        notes = begin_notes(
            location.graph,
            node,
            lost.run,
            attempt,
            folder=runtime.home.folder,
            moment=judge.moment(node),
        )
        runtime.ledger.begin(attempt, notes)
        runtime.ledger.fail(attempt, lost.state, lost.error)
    finally:
        runtime.ledger.release(node, token)
    return True
