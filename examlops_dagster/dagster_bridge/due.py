"""What may run now, over one snapshot: asked by every form of automation alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster import DagsterInstance

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph, Nodes
from examlops_dagster.core.plan import Action, Plan, Step, first_slices, plan_due
from examlops_dagster.core.seams import Node, Snapshot
from examlops_dagster.core.status import Judge, Status
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.ledger.builds import utc_now

SCHEDULE_GRACE = timedelta(seconds=90)
"""How long a tick of a sensor or task is left to its own schedule in Dagster; later it is one
that the schedule had to skip, since an upstream was not settled."""


@dataclass(frozen=True)
class Due:
    """The verdicts of one moment, and what may be requested at once.

    Attributes
    ----------
    parts
        One for each run: nodes without partitions, or of one partition space.
    nodes
        The partitions that exist.
    """

    verdicts: dict[Node, Status]
    parts: list[list[Step]]
    nodes: Nodes
    snapshot: Snapshot


def due(
    location: Location,
    instance: DagsterInstance,
    clock: Callable[[], datetime] = utc_now,
) -> Due:
    """Judge everything once, and give what automation may request now.

    Nothing rests on a cursor or on a former tick: what is stale and may run is due, until it was
    built, or its attempts are used up.
    """
    runtime = location.runtime(instance)
    runtime.event_log.sync()
    graph = location.graph
    now = clock()
    dynamic = runtime.event_log.dynamic_keys()
    existing = Nodes(graph, Snapshot(now, dynamic=dynamic))
    seen = runtime.ledger.first_seen()
    runtime.ledger.see([node for node in existing.scheduled() if node not in seen], now)
    snapshot = Snapshot(
        now,
        runtime.home.zone,
        runtime.ledger.records(),
        runtime.ledger.holds(),
        runtime.ledger.claims(),
        runtime.event_log.in_flight(),
        runtime.ledger.first_seen(),
        dynamic,
    )
    judge = Judge(graph, snapshot, location.code_versions)
    verdicts = judge.all()
    plan = plan_due(graph, judge.nodes, verdicts)
    parts = first_slices(graph, judge.nodes, _without_fresh_ticks(graph, plan, snapshot))
    return Due(verdicts, [_builds(part) for part in parts], judge.nodes, snapshot)


def has_schedule_of_its_own(declaration: Declaration) -> bool:
    """Tell whether Dagster shows a schedule for a node: a sensor or task with a cron."""
    return isinstance(declaration.freshness, Schedule) and declaration.node_type in (
        NodeType.SENSOR,
        NodeType.TASK,
    )


def _builds(part: Plan) -> list[Step]:
    return [step for step in part.steps if step.action is Action.BUILD]


def _without_fresh_ticks(graph: Graph, plan: Plan, snapshot: Snapshot) -> Plan:
    """Leave what just became due by its own schedule to that schedule, with what is below it."""
    left: set[str] = set()
    for step in plan.steps:
        declaration = graph.declarations[step.node.asset]
        schedule = declaration.freshness
        if has_schedule_of_its_own(declaration) and isinstance(schedule, Schedule):
            tick = schedule.latest_tick(snapshot.now, snapshot.zone)
            if snapshot.now - tick < SCHEDULE_GRACE:
                left.add(step.node.asset)
    if not left:
        return plan
    below = graph.descendants(left)
    kept = tuple(step for step in plan.steps if step.node.asset not in below)
    return Plan(plan.targets, kept, plan.skipped, plan.blocked)
