"""The order of a graph, its cycles, and every problem told at once."""

from itertools import pairwise

import pytest
from hypothesis import given
from problems import only_problem, problems_of
from strategies import pipelines
from worlds import built, graph_of, sensor_of, source

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.declarations import Upstream, closed_over, merge
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.decorators import asset, task
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import build_graph
from examlops_dagster.errors import DefinitionError, Problem


def test_the_order_has_upstreams_first():
    graph = graph_of(built("c", "b"), built("b", "a"), source("a"))
    assert list(graph.declarations) == ["a", "b", "c"]


def test_downstreams_are_the_names_that_read():
    graph = graph_of(source("a"), built("b", "a"), built("c", "a"))
    assert graph.downstreams == {"a": ("b", "c"), "b": (), "c": ()}


def test_a_dep_that_is_an_input_too_is_one_edge():
    graph = graph_of(source("a"), built("b", "a", Upstream("a", "value")))
    assert graph.downstreams["a"] == ("b",)


def test_ancestors_and_descendants_hold_the_names_themselves():
    graph = graph_of(source("a"), built("b", "a"), built("c", "b"), built("d", "a"))
    assert graph.ancestors(["c"]) == {"a", "b", "c"}
    assert graph.descendants(["b"]) == {"b", "c"}


@given(pipelines())
def test_the_order_is_topological(declarations):
    graph = graph_of(*declarations)
    position = {name: n for n, name in enumerate(graph.declarations)}
    assert len(position) == len(declarations)
    for declaration in declarations:
        for edge in declaration.upstreams:
            assert position[edge.name] < position[declaration.name]


@given(pipelines())
def test_ancestors_are_those_reached_one_step_at_a_time(declarations):
    graph = graph_of(*declarations)
    for d in declarations:
        one_by_one = {d.name}.union(*(graph.ancestors([u.name]) for u in d.upstreams))
        assert graph.ancestors([d.name]) == one_by_one


def test_a_cycle_is_named_in_full():
    problem = only_problem(built("a", "c"), built("b", "a"), built("c", "b"))
    assert problem == ("pipeline.py:a: cycle: a ← c ← b ← a → remove one of these dependencies")


def test_a_self_loop_is_a_cycle():
    assert "cycle: a ← a →" in only_problem(built("a", "a"))


def test_two_disjoint_cycles_are_both_told():
    found = problems_of(built("a", "b"), built("b", "a"), built("c", "d"), built("d", "c"))
    assert ["cycle: a ← b ← a" in found[0], "cycle: c ← d ← c" in found[1]] == [True, True]


def test_a_cycle_is_told_though_another_one_is_met_first():
    found = problems_of(
        built("x", "d", "y"), built("y", "x"), built("d", "loop"), built("loop", "loop")
    )
    assert len(found) == 2
    assert "cycle: loop ← loop" in found[0]
    assert "cycle: x ← y ← x" in found[1]


def test_what_lies_below_a_cycle_is_no_part_of_it():
    problem = only_problem(built("below", "a"), built("a", "b"), built("b", "a", "s"), source("s"))
    assert "below" not in problem


def test_a_cycle_through_declarations_of_the_command_line_is_told():
    a = source("a", upstreams=(Upstream("b"),))
    b = source("b", upstreams=(Upstream("a"),))
    assert only_problem(a, b).startswith("command line: cycle: a ← b ← a")


@given(pipelines(max_size=7))
def test_an_edge_against_the_order_is_told_as_a_cycle_that_exists(declarations):
    by_name = {d.name: d for d in declarations if d.upstreams}
    if not by_name:
        return
    first = next(iter(by_name))
    root = min(build_graph({d.name: d for d in declarations}).ancestors([first]) - {first})
    above = next(d for d in declarations if d.name == root)
    looped = built(root, *above.upstreams, first)
    found = problems_of(*[d for d in declarations if d.name != root], looped)
    [cycle] = [p for p in found if "cycle: " in p]
    members = cycle.split("cycle: ")[1].split(" → ")[0].split(" ← ")
    edges = {(d.name, u.name) for d in [*declarations, looped] for u in d.upstreams}
    assert members[0] == members[-1]
    assert all(pair in edges for pair in pairwise(members))


def test_every_problem_is_told_at_once_in_the_order_of_the_files():
    before = Problem("a.py:1", "found while merging", "rename it")
    declarations = [
        built("a", "b"),
        built("b", "a"),
        built("c", "nowhere", kind="Model", retries=-1),
        sensor_of("d", freshness=Schedule("bad")),
    ]
    with pytest.raises(DefinitionError) as caught:
        build_graph({d.name: d for d in declarations}, [before])
    text = str(caught.value)
    assert text.splitlines()[0] == "6 problems in the declarations:"
    assert text.splitlines()[1] == "  a.py:1: found while merging → rename it"
    for words in ("cycle", "nowhere", "kind", "retries", "cron"):
        assert words in text
    assert [p.where for p in caught.value.problems] == sorted(
        p.where for p in caught.value.problems
    )


def test_one_problem_is_told_in_the_singular():
    with pytest.raises(DefinitionError, match=r"^1 problem in the declarations:"):
        graph_of(built("a", "a"))


def test_a_problem_of_a_decorated_function_has_its_file_and_line():
    @task("x", retries=-1)
    def produce(): ...

    line = produce.__code__.co_firstlineno
    assert only_problem(declaration_of(produce)).startswith(f"{__file__}:{line}: task 'x': retries")


def test_datasets_and_aliases_need_no_declaration_of_their_own():
    @asset(deps=[Dataset("s3://x"), DatasetAlias("out")])
    def reader(): ...

    found, _ = merge(closed_over([declaration_of(reader)]), ())
    assert set(graph_of(*found.values()).declarations) == {"s3://x", "out", "reader"}
