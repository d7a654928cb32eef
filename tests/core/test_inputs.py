from datetime import datetime, timezone

import pytest
from worlds import built, graph_of, record, snapshot, source

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.inputs import (
    arguments,
    date_of,
    inputs_as_read,
    values_by_parameter,
)
from examlops_dagster.core.mappings import all_keys, same_key
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import daily, hourly, partitions
from examlops_dagster.core.records import Node
from examlops_dagster.errors import AssetBuildError

XY = {"key": partitions(["x", "y"])}
RECORDS = {
    Node("a"): record(3),
    Node("p", "x"): record(1),
    Node("p", "y"): record(2),
}


def read_by(declaration, partition=""):
    """What a build reads, and the arguments that its function gets."""
    node = Node(declaration.name, partition)
    graph = graph_of(source("a"), source("dataset:PM100"), built("p", space=XY), declaration)
    nodes = Nodes(graph, snapshot(RECORDS))
    records = {**RECORDS, Node("dataset:PM100"): record(7)}
    read = inputs_as_read(nodes, node, records)
    values = values_by_parameter(nodes, node, lambda n: f"value of {n}")
    return read, arguments(nodes, node, read, values, datetime(2026, 1, 5, tzinfo=timezone.utc))


def test_a_dep_gives_its_version_to_the_parameter_of_its_name():
    _, given = read_by(built("b", "a", function=lambda a: 0))
    assert given == {"a": 3}


def test_deps_give_their_versions_as_upstream():
    _, given = read_by(built("b", "a", "dataset:PM100", "p"))
    assert given == {"a": 3, "dataset:PM100": 7, "p": {"x": 1, "y": 2}}


def test_a_function_that_takes_no_dep_gets_none():
    read, given = read_by(built("b", "a", function=lambda: 0))
    assert given == {}
    assert list(read) == [Node("a")]


def test_an_input_gives_its_value_and_not_its_version():
    read, given = read_by(built("b", Upstream("a", "value"), function=lambda value: 0))
    assert given == {"value": "value of a"}
    assert read[Node("a")].version == 3


def test_one_upstream_may_give_both():
    _, given = read_by(built("b", "a", Upstream("a", "value")))
    assert given == {"a": 3, "value": "value of a"}


def test_all_keys_of_an_input_are_a_dict():
    _, given = read_by(built("b", Upstream("p", "value")))
    assert given == {"value": {"x": "value of p[x]", "y": "value of p[y]"}}


def test_the_same_key_of_an_input_is_one_value():
    edge = Upstream("p", "value", same_key("p"))
    assert read_by(built("b", edge, space=XY), "y")[1] == {"value": "value of p[y]", "key": "y"}


def test_all_keys_are_a_dict_even_where_there_is_one():
    one = {"key": partitions(["x"])}
    edge = Upstream("p", "value", all_keys("p"))
    graph = graph_of(built("p", space=one), built("b", edge, space=one))
    nodes = Nodes(graph, snapshot(RECORDS))
    assert values_by_parameter(nodes, Node("b", "x"), str) == {"value": {"x": "p[x]"}}


def test_the_version_of_a_partition_is_given_by_its_key():
    assert read_by(built("b", "p", space=XY), "y")[1] == {"p": {"y": 2}, "key": "y"}


def test_each_dimension_is_a_parameter():
    both = {"day": daily("2024-01-01"), "region": partitions(["eu"])}
    _, given = read_by(built("b", space=both), "2024-01-01|eu")
    assert given == {"day": "2024-01-01", "region": "eu"}


def test_versions_and_data_versions_are_read_of_everything():
    read, _ = read_by(built("b", "a", "p"))
    assert {str(n): tuple(r) for n, r in read.items()} == {
        "a": (3, "d3"),
        "p[x]": (1, "d1"),
        "p[y]": (2, "d2"),
    }


def test_an_upstream_that_was_never_built_cannot_be_read():
    nodes = Nodes(graph_of(source("a"), built("b", "a")), snapshot())
    with pytest.raises(AssetBuildError, match="upstream a was never built → exa assets mat"):
        inputs_as_read(nodes, Node("b"), {})


MOMENT = datetime(2026, 1, 5, 23, 30, tzinfo=timezone.utc)


def test_ds_is_the_date_of_the_moment():
    assert date_of(built("a"), Node("a"), MOMENT) == "2026-01-05"


def test_ds_is_the_date_of_the_partition():
    declaration = built("a", space={"region": partitions(["eu"]), "hour": hourly("2024-01-01")})
    assert date_of(declaration, Node("a", "2024-02-03-04:00|eu"), MOMENT) == "2024-02-03"


def test_ds_of_a_partition_without_a_date_is_that_of_the_moment():
    assert date_of(built("a", space=XY), Node("a", "x"), MOMENT) == "2026-01-05"


def test_only_a_function_that_asks_for_ds_gets_it():
    assert read_by(built("b", function=lambda ds: 0))[1] == {"ds": "2026-01-05"}
    assert read_by(built("b"))[1] == {}
