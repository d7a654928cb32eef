"""Since when a scheduled node waits for its tick, and what is left out of a plan."""

from datetime import timedelta

from worlds import NOW, built, graph_of, sensor_of, snapshot, source, task_of

from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import daily, dynamic, partitions
from examlops_dagster.core.plan import plan_due, without
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge, statuses
from examlops_dagster.core.ticks import first_sights
from examlops_dagster.core.verdicts import State

HOUR = timedelta(hours=1)
AT_5 = Schedule("0 5 * * *")
MIDNIGHT = NOW.replace(hour=0)


def sights(declaration, seen=None, now=NOW, **more):
    nodes = Nodes(graph_of(declaration), snapshot(now=now, **more))
    found = first_sights(nodes, seen or {}, now)
    return {node.partition: at for node, at in found.items()}


def test_what_nobody_saw_is_seen_now():
    assert sights(built("a", freshness=AT_5)) == {"": NOW}
    assert sights(task_of("a", freshness=AT_5)) == {"": NOW}


def test_what_was_seen_stays_as_it_was_noted():
    assert sights(built("a", freshness=AT_5), {Node("a"): NOW - HOUR}) == {}


def test_only_scheduled_nodes_are_noted():
    assert sights(built("a")) == {}
    assert sights(sensor_of("a", freshness=Manual)) == {}


def test_all_windows_that_are_there_at_the_first_sight_are_seen_then():
    days = {"day": daily("2026-01-03")}
    found = sights(built("a", space=days, freshness=AT_5))
    assert found == {"2026-01-03": NOW, "2026-01-04": NOW}


def test_a_later_window_counts_from_its_own_end_though_nobody_looked_then():
    days = {"day": daily("2026-01-03")}
    seen = {Node("a", "2026-01-03"): NOW - 30 * HOUR}
    assert sights(built("a", space=days, freshness=AT_5), seen) == {"2026-01-04": MIDNIGHT}


def test_who_looks_once_a_day_after_the_tick_finds_each_days_partition_due():
    graph = graph_of(built("a", space={"day": daily("2026-01-03")}, freshness=AT_5))
    seen = {Node("a", "2026-01-03"): NOW - 30 * HOUR}
    morning = NOW.replace(hour=6)
    nodes = Nodes(graph, snapshot(now=morning))
    seen.update(first_sights(nodes, seen, morning))
    verdicts = statuses(graph, snapshot(now=morning, first_seen=seen), {})
    assert verdicts[Node("a", "2026-01-04")].state is State.RUNNABLE


def test_a_window_older_than_the_first_sight_is_seen_with_the_others():
    days = {"day": daily("2026-01-01")}  # the start was moved back since
    seen = {Node("a", "2026-01-03"): NOW - HOUR, Node("a", "2026-01-04"): NOW - HOUR}
    found = sights(built("a", space=days, freshness=AT_5), seen)
    assert found == {"2026-01-01": NOW - HOUR, "2026-01-02": NOW - HOUR}


def test_new_keys_of_other_spaces_wait_for_the_next_tick():
    seen = {Node("a", "x"): NOW - 30 * HOUR}
    static = built("a", space={"k": partitions("xy")}, freshness=AT_5)
    assert sights(static, seen) == {"y": NOW}
    added = built("a", space={"k": dynamic("sites")}, freshness=AT_5)
    assert sights(added, seen, dynamic={"sites": ["x", "z"]}) == {"z": NOW}


# What is left out of a plan


def due_without(left_out, roots):
    graph = graph_of(
        source("s"), built("a", "s"), built("b", "a"), built("c", "b"), built("beside", "s")
    )
    judge = Judge(graph, snapshot(), {})
    plan = plan_due(graph, judge.nodes, judge.all())
    found = without(judge.nodes, plan, set(map(Node, left_out)), set(map(Node, roots)))
    return sorted(step.node.asset for step in found.steps)


def test_a_node_is_left_out_alone():
    assert due_without(["b"], []) == ["a", "beside", "c", "s"]


def test_what_is_below_a_root_is_left_out_and_the_root_is_not():
    assert due_without([], ["a"]) == ["a", "beside", "s"]


def test_what_is_below_a_node_that_is_not_in_the_plan_is_left_out_too():
    assert due_without([], ["nosuch"]) == ["a", "b", "beside", "c", "s"]
    assert due_without(["a"], ["a"]) == ["beside", "s"]
