from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import pipelines
from worlds import (
    NOW,
    built,
    graph_of,
    names,
    record,
    sensor_of,
    snapshot,
    source,
    step_names,
    task_of,
)

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.mappings import keys
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import partitions
from examlops_dagster.core.plan import (
    Action,
    first_slices,
    joined,
    plan_due,
    plan_targets,
    slices,
    without,
)
from examlops_dagster.core.records import Claim, Node
from examlops_dagster.core.status import statuses
from examlops_dagster.core.verdicts import State

XY = {"key": partitions(["x", "y"])}


def view(declarations, records=None, code=None, **more):
    graph, now = graph_of(*declarations), snapshot(records, **more)
    return graph, Nodes(graph, now), statuses(graph, now, code or {})


def planned(declarations, *targets, records=None, code=None, force=False, deps=True, **more):
    found = [t if isinstance(t, Node) else Node(t) for t in targets]
    return plan_targets(*view(declarations, records, code, **more), found, force=force, deps=deps)


def due(declarations, records=None, code=None, only=None, **more):
    return plan_due(*view(declarations, records, code, **more), only)


def blocked(plan):
    return {str(b.node): b.why for b in plan.blocked}


PIPELINE = [source("a"), built("b", "a"), built("c", "b"), built("other", "a")]
FRESH = {
    "a": record(),
    "b": record(of={"a": (1, "d1")}),
    "c": record(of={"b": (1, "d1")}),
    "other": record(of={"a": (1, "d1")}),
}
CHANGED = {**FRESH, "a": record(2)}

# targets


def test_a_target_is_planned_with_its_stale_ancestors_upstreams_first():
    plan = planned(PIPELINE, "c")
    assert step_names(plan) == ["a", "b", "c"]
    assert plan.targets == (Node("c"),)


def test_a_source_is_adopted_and_the_rest_is_built():
    assert [s.action for s in planned(PIPELINE, "c").steps] == [
        Action.ADOPT,
        Action.BUILD,
        Action.BUILD,
    ]


def test_each_step_has_its_reasons_in_words():
    plan = planned(PIPELINE, "c", records=CHANGED)
    assert [s.why for s in plan.steps] == [
        ("upstream a changed (1 → 2)",),
        ("upstream b is stale",),
    ]


def test_what_is_fresh_is_skipped():
    plan = planned(PIPELINE, "c", records=CHANGED)
    assert (step_names(plan), names(plan.skipped)) == (["b", "c"], ["a"])


def test_nothing_is_planned_where_all_is_fresh():
    plan = planned(PIPELINE, "c", records=FRESH)
    assert plan.is_empty
    assert names(plan.skipped) == ["a", "b", "c"]


def test_nothing_below_or_beside_the_target_is_planned():
    assert step_names(planned(PIPELINE, "b")) == ["a", "b"]


def test_several_targets_are_one_plan():
    assert step_names(planned(PIPELINE, "c", "other")) == ["a", "b", "other", "c"]


def test_an_explicit_target_plans_a_manual_upstream_too():
    manual = [source("a"), built("b", "a", freshness=Manual), built("c", "b")]
    assert step_names(planned(manual, "c")) == ["a", "b", "c"]


def test_an_explicit_target_does_not_wait_for_a_schedule():
    assert step_names(planned([built("a", freshness=Schedule("0 6 * * *"))], "a")) == ["a"]


# force


def test_force_plans_the_target_though_it_is_fresh():
    plan = planned(PIPELINE, "c", records=FRESH, force=True)
    assert (step_names(plan), names(plan.skipped)) == (["c"], ["a", "b"])
    assert (plan.steps[0].forced, plan.steps[0].why) == (True, ("forced",))


def test_force_plans_stale_ancestors_as_usual():
    plan = planned(PIPELINE, "c", records=CHANGED, force=True)
    assert [(str(s.node), s.forced) for s in plan.steps] == [("b", False), ("c", True)]


def test_force_leaves_a_source_alone():
    plan = planned(PIPELINE, "a", records=FRESH, force=True)
    assert (step_names(plan), names(plan.skipped)) == ([], ["a"])


@pytest.mark.parametrize("declare", [sensor_of, task_of])
def test_a_sensor_or_task_that_is_named_always_runs(declare):
    plan = planned([declare("a")], "a", records={"a": record()})
    assert [s.forced for s in plan.steps] == [True]


def test_a_sensor_above_the_target_runs_only_if_it_is_stale():
    declarations = [sensor_of("a"), built("b", "a")]
    plan = planned(declarations, "b", records={"a": record()})
    assert step_names(plan) == ["b"]


# no deps


def test_without_deps_nothing_but_the_target_is_planned():
    plan = planned(PIPELINE, "c", records=CHANGED, deps=False)
    assert (step_names(plan), plan.skipped) == (["c"], ())


def test_without_deps_an_upstream_that_was_never_built_blocks_with_the_command():
    plan = planned([built("a"), built("b", "a")], "b", deps=False)
    assert plan.is_empty
    assert blocked(plan) == {"b": "upstream a was never built → exa assets materialize a"}


def test_without_deps_an_undeclared_upstream_blocks_with_the_command():
    plan = planned([source("b", upstreams=(Upstream("a"),))], "b", deps=False)
    assert "b" in blocked(plan)


def test_without_deps_a_source_is_adopted_all_the_same():
    assert step_names(planned(PIPELINE, "b", deps=False)) == ["a", "b"]


def test_without_deps_two_targets_may_build_on_each_other():
    assert step_names(planned(PIPELINE, "b", "c", deps=False)) == ["a", "b", "c"]


def test_without_deps_a_fresh_target_is_skipped():
    assert names(planned(PIPELINE, "b", records=FRESH, deps=False).skipped) == ["b"]


# blocked


def test_an_undeclared_upstream_blocks_with_the_command():
    plan = planned([source("b", upstreams=(Upstream("a"),))], "b")
    assert plan.is_empty
    assert blocked(plan) == {
        "a": "a is undeclared → exa assets declare a",
        "b": "b is declared without a production function "
        "→ load the module that has it: exa -m MODULE ... (or -f FILE)",
    }


def test_a_declaration_without_a_function_blocks_what_is_below():
    declarations = [source("a"), source("b", upstreams=(Upstream("a"),)), built("c", "b")]
    plan = planned(declarations, "c")
    assert step_names(plan) == ["a"]
    assert "load the module" in blocked(plan)["b"]
    assert blocked(plan)["c"] == "upstream b is blocked"


def test_a_plain_dagster_asset_that_was_never_materialized_blocks():
    plan = planned([Declaration("plain", NodeType.EXTERNAL), built("b", "plain")], "b")
    assert blocked(plan)["plain"].endswith("→ materialize it there")


def test_a_partition_that_does_not_exist_blocks():
    edge = Upstream("a", None, keys("a", lambda key: ["nowhere"]))
    plan = planned([built("a", space=XY), built("b", edge, space=XY)], Node("b", "x"))
    assert blocked(plan) == {
        "a[nowhere]": "a[nowhere] is not a partition of a",
        "b[x]": "upstream a[nowhere] is blocked",
    }


def test_what_is_not_below_is_not_blocked():
    declarations = [source("b", upstreams=(Upstream("a"),)), built("c"), built("d", "c")]
    plan = planned(declarations, "b", "d")
    assert step_names(plan) == ["c", "d"]


# partitions


def test_a_partition_is_planned_with_the_partitions_that_it_reads():
    plan = planned([built("a", space=XY), built("b", "a", space=XY)], Node("b", "y"))
    assert step_names(plan) == ["a[y]", "b[y]"]


def test_partitions_keep_the_order_of_their_space():
    space = {"key": partitions(["x", "c", "y", "a"])}
    targets = [Node("a", k) for k in "acxy"]
    assert step_names(planned([built("a", space=space)], *targets)) == [
        "a[x]",
        "a[c]",
        "a[y]",
        "a[a]",
    ]


# due


def test_all_that_may_run_now_is_due():
    assert step_names(due(PIPELINE)) == ["a", "b", "other", "c"]
    assert due(PIPELINE).targets == ()


def test_what_is_fresh_is_not_due():
    plan = due(PIPELINE, CHANGED)
    assert (step_names(plan), names(plan.skipped)) == (["b", "other", "c"], ["a"])


def test_a_manual_node_and_what_is_below_are_not_due():
    plan = due([source("a"), built("b", "a", freshness=Manual), built("c", "b")])
    assert step_names(plan) == ["a"]
    assert list(blocked(plan)) == ["b", "c"]
    assert blocked(plan)["b"].startswith("waiting for request: never materialized; ")


def test_what_waits_for_a_tick_is_not_due():
    plan = due([built("a", freshness=Schedule("0 6 * * *"))])
    assert plan.is_empty
    assert blocked(plan)["a"].startswith("waiting for schedule: ")


def test_what_is_running_is_neither_due_nor_blocked():
    plan = due([built("a")], claims={Node("a"): Claim("t", "h", 1, "", NOW, NOW)})
    assert (plan.steps, plan.skipped, plan.blocked) == ((), (), ())


def test_a_source_that_nobody_reads_is_not_adopted():
    assert step_names(due([source("alone"), built("b")])) == ["b"]


def test_a_declaration_without_a_function_is_not_due():
    plan = due([source("a"), source("b", upstreams=(Upstream("a"),)), built("c", "b")])
    assert step_names(plan) == ["a"]
    assert list(blocked(plan)) == ["b", "c"]


def test_a_due_plan_can_be_confined_to_names_with_their_ancestors():
    assert step_names(due(PIPELINE, only=["b"])) == ["a", "b"]


# joined plans


def test_a_joined_plan_has_each_step_once_in_order():
    graph, nodes, verdicts = view(PIPELINE, FRESH)
    first = plan_targets(graph, nodes, verdicts, [Node("c")], force=True)
    second = plan_targets(*view(PIPELINE, CHANGED), [Node("c")])
    both = joined(graph, first, second)
    assert step_names(both) == ["b", "c"]
    assert [s.forced for s in both.steps] == [False, True]


def test_what_is_below_a_root_is_left_out_with_what_is_named():
    declarations = [built("a"), built("b", "a"), built("c", "b"), built("d"), built("e", "d")]
    graph, nodes, verdicts = view(declarations)
    plan = plan_due(graph, nodes, verdicts)
    assert step_names(without(nodes, plan, [Node("d")], [Node("a")])) == ["a", "e"]


# slices


def cut(declarations, *targets, how=slices, **more):
    graph, nodes, verdicts = view(declarations, **more)
    found = [n for t in targets for n in nodes.of(t)]
    return [step_names(p) for p in how(graph, nodes, plan_targets(graph, nodes, verdicts, found))]


CHANGING = [
    built("b", space=XY),
    built("c", "b"),
    built("d", "c", space=XY),
    built("e"),
]


def test_a_plan_in_one_space_is_one_slice():
    assert cut([built("a"), built("b", "a")], "b") == [["a", "b"]]
    xs = [built("a", space=XY), built("b", "a", space=XY)]
    assert cut(xs, "b") == [["a[x]", "a[y]", "b[x]", "b[y]"]]


def test_a_slice_holds_one_partition_space():
    assert cut(CHANGING, "d", "e") == [["b[x]", "b[y]"], ["e"], ["c"], ["d[x]", "d[y]"]]


def test_a_slice_comes_after_all_that_any_of_its_steps_reads():
    declarations = [
        built("a", space=XY),
        source("s"),
        built("b", "a"),
        built("w", "s", space={"key": partitions(["z"])}),
        built("c", "w"),
    ]
    assert cut(declarations, "b", "c") == [["a[x]", "a[y]"], ["w[z]"], ["b", "c"]]


def test_the_first_slices_wait_for_no_other():
    assert cut(CHANGING, "d", "e", how=first_slices) == [["b[x]", "b[y]"], ["e"]]


def test_a_source_is_in_no_slice_since_its_reader_adopts_it():
    assert cut([source("a"), built("b", "a")], "b") == [["b"]]
    assert cut([source("a")], "a") == []


def test_a_slice_keeps_the_targets_of_its_plan():
    graph, nodes, verdicts = view([built("a")])
    plan = plan_targets(graph, nodes, verdicts, [Node("a")])
    assert slices(graph, nodes, plan) == [plan]


@given(pipelines(), st.data())
def test_slices_hold_each_build_once_and_upstreams_never_later(declarations, data):
    zs = {"key": partitions(["z"])}
    spaces = [None, *(built("x", space=space).partitions for space in (XY, zs))]
    spaced = [
        replace(d, partitions=data.draw(st.sampled_from(spaces)))
        if d.function and d.node_type is NodeType.ASSET
        else d
        for d in declarations
    ]
    graph, nodes, verdicts = view(spaced)
    plan = plan_targets(graph, nodes, verdicts, [n for d in spaced for n in nodes.of(d.name)])
    parts = slices(graph, nodes, plan)
    place = {s.node: (i, j) for i, part in enumerate(parts) for j, s in enumerate(part.steps)}
    assert sorted(place) == sorted(s.node for s in plan.steps if s.action is Action.BUILD)
    for part in parts:
        assert len({graph.declarations[s.node.asset].partitions for s in part.steps}) == 1
    for node, (i, j) in place.items():
        for edge, found in nodes.upstreams(node):
            for key in found:
                assert place.get(Node(edge.name, key), (-1, -1)) < (i, j)


# properties


@st.composite
def half_built(draw):
    """Declarations of which some nodes were built, some from what is current."""
    declarations = draw(pipelines())
    records = {}
    for d in declarations:
        if draw(st.booleans()):
            of = {u.name: (1, draw(st.sampled_from(["d1", "old"]))) for u in d.upstreams}
            records[d.name] = record(of=of, at=NOW)
    targets = draw(st.lists(st.sampled_from([d.name for d in declarations]), min_size=1))
    return declarations, records, targets


@given(half_built(), st.booleans(), st.booleans())
def test_fresh_nodes_are_never_planned_unless_forced(half, force, deps):
    declarations, records, targets = half
    graph, nodes, verdicts = view(declarations, records)
    for step in plan_targets(
        graph, nodes, verdicts, [Node(t) for t in targets], force=force, deps=deps
    ).steps:
        assert verdicts[step.node].state is not State.FRESH or step.forced
    for step in plan_due(graph, nodes, verdicts).steps:
        assert verdicts[step.node].state is State.RUNNABLE


@given(half_built())
def test_a_plan_is_closed_under_stale_ancestors(half):
    declarations, records, targets = half
    graph, nodes, verdicts = view(declarations, records)
    plan = plan_targets(graph, nodes, verdicts, [Node(t) for t in targets])
    found = {step.node for step in plan.steps}
    stale = {n for n in nodes.ancestors(plan.targets) if verdicts[n].reasons}
    assert stale <= found
    assert {n for n in nodes.ancestors(found) if verdicts[n].reasons} <= found


@given(half_built())
def test_a_due_plan_is_closed_under_stale_ancestors(half):
    declarations, records, _ = half
    graph, nodes, verdicts = view(declarations, records)
    found = {step.node for step in plan_due(graph, nodes, verdicts).steps}
    assert {n for n in nodes.ancestors(found) if verdicts[n].reasons} <= found


@given(half_built())
def test_the_steps_of_a_plan_are_in_topological_order(half):
    declarations, records, targets = half
    graph, nodes, verdicts = view(declarations, records)
    for plan in (
        plan_targets(graph, nodes, verdicts, [Node(t) for t in targets]),
        plan_due(graph, nodes, verdicts),
    ):
        position = {step.node: n for n, step in enumerate(plan.steps)}
        for node, n in position.items():
            for edge in graph.upstreams(node.asset):
                assert position.get(Node(edge.name), -1) < n
