"""The nodes of a graph at a moment, and the partitions that each reads."""

from datetime import datetime, timedelta, timezone

from worlds import NOW, built, graph_of, record, snapshot

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.mappings import all_keys, keys
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import daily, dynamic, hourly, partitions
from examlops_dagster.core.records import Node
from examlops_dagster.core.windows import TimeWindowSpace


def test_the_nodes_of_an_asset_are_its_partitions():
    graph = graph_of(built("a", space={"key": partitions(["x", "y"])}), built("b", "a"))
    nodes = Nodes(graph, snapshot())
    assert nodes.of("a") == [Node("a", "x"), Node("a", "y")]
    assert nodes.of("b") == [Node("b")]


def test_keys_of_a_dynamic_space_come_from_the_snapshot():
    graph = graph_of(built("a", space={"key": dynamic("regions")}))
    assert Nodes(graph, snapshot(dynamic={"regions": ["eu"]})).keys("a") == ["eu"]


def test_at_another_moment_the_keys_are_those_of_that_moment():
    declared_spaces = {
        "a": {"day": daily("2026-01-01", timezone="Asia/Kathmandu")},
        "b": {"region": dynamic("regions")},
        "c": {"hour": hourly("2026-01-01", timezone="Australia/Lord_Howe")},
    }
    graph = graph_of(*(built(name, space=space) for name, space in declared_spaces.items()))
    nodes = Nodes(graph, snapshot())
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in range(40):
        now = first + timedelta(minutes=7 * number, seconds=number)
        there = snapshot(now=now, dynamic={"regions": ["eu", "us"][: number % 3]})
        nodes = nodes.at(there)
        for name in declared_spaces:
            assert list(nodes.keys(name)) == list(Nodes(graph, there).keys(name))


def test_what_exists_is_listed_once_for_many_moments_of_a_quarter(monkeypatch):
    calls = []
    real = TimeWindowSpace.keys_at
    monkeypatch.setattr(
        TimeWindowSpace, "keys_at", lambda space, now: calls.append(now) or real(space, now)
    )
    nodes = Nodes(graph_of(built("a", space={"day": daily("2026-01-01")})), snapshot())
    for seconds in range(100):
        nodes = nodes.at(snapshot(now=NOW + timedelta(seconds=seconds)))
        nodes.keys("a")
    assert len(calls) == 1


def test_ancestors_of_a_partition_are_the_partitions_that_it_reads():
    graph = graph_of(
        built("a", space={"key": partitions(["x", "y"])}),
        built("b", "a", space={"key": partitions(["x", "y"])}),
    )
    found = Nodes(graph, snapshot()).ancestors([Node("b", "x")])
    assert found == {Node("b", "x"), Node("a", "x")}


def test_keys_that_were_never_built_can_be_skipped():
    space = {"key": partitions(["x", "y"])}
    edge = Upstream("a", None, all_keys("a", missing="skip"))
    graph = graph_of(built("a", space=space), built("b", edge))
    [(_, found)] = Nodes(graph, snapshot({Node("a", "y"): record()})).upstreams(Node("b"))
    assert found == ["y"]


def test_equal_spaces_are_one_object():
    spaces = [{"key": partitions(["x", "y"])} for _ in range(2)]
    graph = graph_of(built("a", space=spaces[0]), built("b", space=spaces[1]), built("c"))
    nodes = Nodes(graph, snapshot())
    assert nodes.space("a") is nodes.space("b")
    assert nodes.space("c") is None


def test_a_shared_dimension_is_read_by_its_key():
    day, region = daily("2026-01-03"), partitions(["eu", "us"])
    graph = graph_of(
        built("a", space={"day": day, "region": region}), built("b", "a", space={"day": day})
    )
    [(_, found)] = Nodes(graph, snapshot()).upstreams(Node("b", "2026-01-04"))
    assert found == ["2026-01-04|eu", "2026-01-04|us"]


def test_the_functions_of_a_mapping_are_called_for_each_key_alone():
    asked = []
    edge = Upstream("a", None, keys("a", lambda key: asked.append(key) or [key]))
    space = {"key": partitions(["x", "y"])}
    nodes = Nodes(graph_of(built("a", space=space), built("b", edge, space=space)), snapshot())
    nodes.upstreams(Node("b", "x"))
    assert asked == ["x"]
