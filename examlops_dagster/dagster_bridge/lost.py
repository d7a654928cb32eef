"""Runs of ours that ended before our op body began: they count as attempts too.

A run whose process was killed while it started, whose resource could not be made, or that somebody
ended in the queue leaves no attempt behind; automation would request it again for ever.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from examlops_dagster.core.seams import Attempt, BuildState, Node
from examlops_dagster.core.status import Judge
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.ledger.tags import PROCESS_TAG, SLICE_TAG

FIRST_LOOK_BACK = timedelta(hours=1)
OVERLAP = timedelta(seconds=10)
ENDS = {
    DagsterRunStatus.FAILURE: (BuildState.DIED, "the run failed before it was built"),
    DagsterRunStatus.CANCELED: (BuildState.CANCELLED, "the run was ended before it was built"),
}


def note_lost_runs(location: Location, instance: DagsterInstance, judge: Judge) -> bool:
    """Write an attempt down for each node that such a run was going to build, and say if any was.

    Parameters
    ----------
    judge
        Gives the time, and the fingerprint of each attempt.
    """
    runtime = location.runtime(instance)
    now = judge.snapshot.now
    since = (location.lost_runs_noted or now - FIRST_LOOK_BACK) - OVERLAP
    location.lost_runs_noted = now
    found = instance.get_run_records(
        RunsFilter(statuses=list(ENDS), tags={SLICE_TAG: "true"}, updated_after=since)
    )
    noted = False
    for record in found:
        run = record.dagster_run
        if PROCESS_TAG in run.tags:
            continue  # a person waited for it, and saw how it ended
        ended_at = (
            record.update_timestamp if record.end_time is None else from_epoch(record.end_time)
        )
        for node in _lost(runtime, run, judge, ended_at):
            noted |= _note(location, runtime, judge, node, run)
    return noted


def _lost(runtime: Runtime, run: DagsterRun, judge: Judge, ended_at: datetime) -> list[Node]:
    """Give the nodes of a run that it did not begin, though nothing above them failed in it."""
    builds = runtime.ledger.of_run(run.run_id)
    missing = runtime.event_log.planned(run) - builds.keys()
    bad = missing | {node for node, build in builds.items() if build.state.holds}
    lost = []
    for node in sorted(missing):
        declaration = judge.nodes.graph.declarations.get(node.asset)
        if declaration is None or declaration.function is None:
            continue
        record = judge.snapshot.records.get(node)
        if record is not None and record.built_at >= ended_at:
            continue
        above = judge.nodes.upstreams(node)
        if not any(Node(edge.name, key) in bad for edge, keys in above for key in keys):
            lost.append(node)
    return lost


def _note(location: Location, runtime: Runtime, judge: Judge, node: Node, run: DagsterRun) -> bool:
    state, error = ENDS[run.status]
    token = secrets.token_hex(16)
    if runtime.ledger.claim(node, token, run.run_id) is not None:
        return False  # somebody builds it right now
    try:
        code_version = location.code_versions.get(node.asset, "")
        attempt = Attempt(node, token, judge.fingerprint(node), code_version, {}, "", run.run_id)
        runtime.ledger.begin(attempt)
        runtime.ledger.fail(attempt, state, error)
    finally:
        runtime.ledger.release(node, token)
    return True
