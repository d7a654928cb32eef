"""Graphs of thousands of nodes: no recursion, and time that grows with their number."""

import random
import time

import pytest
from problems import only_problem, problems_of
from worlds import built, graph_of, snapshot, source

from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import (
    partitions,
)
from examlops_dagster.core.plan import plan_targets
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import statuses


def chain(size):
    return [source("n0"), *(built(f"n{i}", f"n{i - 1}") for i in range(1, size))]


def wide(size):
    return [source("n0"), *(built(f"n{i}", "n0") for i in range(1, size - 1)),
            built("end", *(f"n{i}" for i in range(1, size - 1)))]  # fmt: skip


def ladder(size):
    found = [built("a0"), built("b0")]
    for n in range(1, size // 2):
        found += [built(f"{side}{n}", f"a{n - 1}", f"b{n - 1}") for side in "ab"]
    return found


SHAPES = pytest.mark.parametrize("shape", [chain, wide, ladder])


def look(declarations):
    """Do all that a plan of everything needs, and give the plan."""
    shuffled = list(declarations)
    random.Random(7).shuffle(shuffled)
    graph = graph_of(*shuffled)
    now = snapshot()
    nodes = Nodes(graph, now)
    last = declarations[-1].name
    assert graph.ancestors([last])
    return plan_targets(graph, nodes, statuses(graph, now, {}), [Node(last)])


@SHAPES
def test_ten_thousand_nodes_are_planned_in_order_without_recursion(shape):
    declarations = shape(10_000)
    position = {step.node.asset: n for n, step in enumerate(look(declarations).steps)}
    assert len(position) >= 9_999
    for declaration in declarations:
        for edge in declaration.upstreams:
            if declaration.name in position:
                assert position[edge.name] < position[declaration.name]


def partitioned(size):
    """A partitioned asset, one that shares a dimension with it, and one that reads it all."""
    keys_ = {"key": partitions(map(str, range(size // 3)))}
    both = keys_ | {"side": partitions(["x"])}
    return [built("a", space=keys_), built("b", "a", space=both), built("c", "a", "b")]


@pytest.mark.parametrize("shape", [chain, wide, ladder, partitioned])
def test_the_time_of_a_plan_is_linear_in_the_nodes(shape):
    def seconds(size):
        best = float("inf")
        declarations = shape(size)
        for _ in range(3):
            start = time.process_time()
            look(declarations)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4_000) < 12 * seconds(1_000)  # quadratic: 16 and more, exponential: never


def test_a_cycle_of_ten_thousand_is_told_without_recursion():
    problem = only_problem(built("n0", "n9999"), *chain(10_000)[1:])
    assert problem.count("←") == 10_000


def test_many_unknown_upstreams_are_told_in_good_time():
    declarations = [built(f"asset_{n}", f"elsewhere_{n}") for n in range(3_000)]
    start = time.process_time()
    assert len(problems_of(*declarations)) == 3_000
    assert time.process_time() - start < 20  # 80 s where each is compared with every name
