"""What may run now, over one snapshot: asked by every form of automation alike."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster import DagsterInstance
from dagster._core.scheduler.instigation import InstigatorStatus, InstigatorType

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import Plan, Step, first_slices, plan_due, without
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import Judge
from examlops_dagster.core.ticks import first_sights
from examlops_dagster.core.verdicts import Status
from examlops_dagster.dagster_bridge.admission import gates_of, note_gates, settle_all
from examlops_dagster.dagster_bridge.lost import note_lost_runs
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.translator import slug

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
    off
        Names of nodes that no run may be requested for: they are probed, or somebody turned
        their schedule off.
    """

    verdicts: dict[Node, Status]
    parts: list[list[Step]]
    nodes: Nodes
    off: frozenset[str]

    def slice_of(self, name: str) -> list[Step]:
        """Give what one run builds for a node without partitions, with its stale ancestors.

        Empty when the node is not due, or when other runs have to come first. Whoever asks for
        it by name is its own schedule, so that it is not turned off.
        """
        off = self.off - {name}
        plan = plan_due(self.nodes.graph, self.nodes, self.verdicts, only=[name])
        for part in first_slices(self.nodes.graph, self.nodes, _without(self.nodes, plan, off)):
            if any(step.node.asset == name for step in part.steps):
                return part.builds
        return []


def due(
    location: Location,
    instance: DagsterInstance,
    clock: Callable[[], datetime] = utc_now,
    seen_since: datetime | None = None,
) -> Due:
    """Judge everything once, and give what automation may request now.

    Nothing rests on a cursor or on a former tick: what is stale and may run is due, until it was
    built, or its attempts are used up.

    Parameters
    ----------
    clock
        Gives the time as an aware UTC datetime.
    seen_since
        Since when scheduled nodes that nobody noted yet count as seen; None is now.
    """
    graph, runtime = location.graph, location.runtime(instance)
    judge = _judge(location, runtime, clock(), seen_since)
    if note_lost_runs(location, instance, judge):
        judge = _judge(location, runtime, clock(), seen_since)
    verdicts = judge.all()
    note_gates(runtime, judge, verdicts)
    settle_all(runtime)
    off = location.probed | _turned_off(location, instance)
    left = off | _left_to_schedules(graph, judge.snapshot)
    plan = _without(judge.nodes, plan_due(graph, judge.nodes, verdicts), left)
    parts = [part.builds for part in first_slices(graph, judge.nodes, plan)]
    return Due(verdicts, parts, judge.nodes, off)


def has_schedule_of_its_own(declaration: Declaration) -> bool:
    """Tell whether Dagster shows a schedule for a node: a sensor or task with a cron."""
    return isinstance(declaration.freshness, Schedule) and declaration.node_type in (
        NodeType.SENSOR,
        NodeType.TASK,
    )


def schedule_name(name: str) -> str:
    """Give the name of the schedule of a node in Dagster."""
    return f"{slug(name)}_schedule"


def _judge(
    location: Location, runtime: Runtime, now: datetime, seen_since: datetime | None
) -> Judge:
    """Take a snapshot, and judge over it.

    What is in flight is read before what exists: a build that ends in between is then one that
    still runs, and not one that nobody started.
    """
    log, ledger = runtime.event_log, runtime.ledger
    dynamic = log.dynamic_keys()
    existing = Nodes(location.graph, Snapshot(now, dynamic=dynamic))
    seen = ledger.first_seen()
    sights = first_sights(existing, seen, seen_since or now)
    ledger.see(sights)
    queued, claims = log.in_flight(), ledger.claims()
    log.sync()
    log.send_left()
    holds, records = ledger.holds(), ledger.records(datasets=location.graph.datasets)
    first_seen = {**seen, **sights}
    gates = gates_of(location, runtime)
    snapshot = Snapshot(
        now, runtime.home.zone, records, holds, claims, queued, first_seen, dynamic, gates
    )
    return Judge(location.graph, snapshot, location.code_versions)


def _without(nodes: Nodes, plan: Plan, names: Collection[str]) -> Plan:
    """Leave nodes out of a plan, with what is below those of them that it would build."""
    left = {step.node for step in plan.steps if step.node.asset in names}
    return without(nodes, plan, left, left) if left else plan


def _left_to_schedules(graph: Graph, snapshot: Snapshot) -> set[str]:
    """Give the sensors and tasks whose tick has just passed: their schedule is about to ask."""
    left: set[str] = set()
    for name, declaration in graph.declarations.items():
        schedule = declaration.freshness
        if isinstance(schedule, Schedule) and has_schedule_of_its_own(declaration):
            tick = schedule.latest_tick(snapshot.now, snapshot.zone)
            if snapshot.now - tick < SCHEDULE_GRACE:
                left.add(name)
    return left


def _turned_off(location: Location, instance: DagsterInstance) -> frozenset[str]:
    """Give the sensors and tasks whose schedule somebody turned off.

    Another code location may have a schedule of the same name. Until a tick told which one this
    is, all of them count.
    """
    declared = location.graph.declarations.items()
    own = {schedule_name(n): n for n, d in declared if has_schedule_of_its_own(d)}
    if not own or instance.schedule_storage is None:
        return frozenset()
    states = instance.all_instigator_state(
        repository_selector_id=location.selector_id or None,
        instigator_type=InstigatorType.SCHEDULE,
    )
    return frozenset(
        own[state.instigator_name]
        for state in states
        if state.status is InstigatorStatus.STOPPED and state.instigator_name in own
    )
