"""Upstreams that are unknown, that may not be read, or not in that way; and the keys of Dagster."""

import pytest
from problems import declared, only_problem, problems_of
from worlds import built, graph_of, source, task_of

from examlops_dagster.core.aliases import Dataset
from examlops_dagster.core.declarations import NodeType, Upstream, closed_over, merge
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.decorators import asset
from examlops_dagster.core.graph import key_path
from examlops_dagster.core.mappings import all_keys, keys, same_key
from examlops_dagster.core.partitions import daily, partitions


def test_an_unknown_upstream_is_told_with_place_nearest_names_and_remedy():
    problem = only_problem(source("PM100"), built("model", "PM10"))
    assert problem == (
        "pipeline.py:model: model: unknown upstream 'PM10' → did you mean PM100? or declare it: "
        "exa assets declare PM10"
    )


def test_an_unknown_upstream_with_nothing_near_names_the_command():
    problem = only_problem(built("model", "a file"))
    assert problem.endswith("unknown upstream 'a file' → declare it: exa assets declare 'a file'")


def test_an_upstream_name_with_a_control_character_is_told():
    assert "bad upstream name 'a\\n'" in only_problem(built("model", "a\n"))
    assert "bad upstream name ' '" in only_problem(built("model", " "))


def test_an_unknown_upstream_is_told_once_for_each_reader():
    assert len(problems_of(built("a", "x", Upstream("x", "y")), built("b", "x"))) == 2


def test_an_unknown_upstream_of_the_command_line_is_undeclared():
    graph = graph_of(source("model", upstreams=(Upstream("PM10"),)))
    assert graph.undeclared == {"PM10"}
    assert list(graph.declarations) == ["PM10", "model"]
    assert graph.downstreams["PM10"] == ("model",)


def space_edge(mapped, own, theirs):
    edge = Upstream("up", mapped=mapped)
    return built("up", space=theirs), built("down", edge, space=own)


DAYS = {"day": daily("2024-01-01")}

REGIONS = {"region": partitions(["eu", "us"])}


def test_the_same_key_of_a_space_that_cannot_have_it_is_told():
    problem = only_problem(*space_edge(same_key("up"), DAYS | REGIONS, DAYS))
    assert problem == (
        "pipeline.py:down: down: upstream 'up' is read by same_key between keys of day (daily) and "
        "region (eu, us) and those of day (daily), which do not match → use keys(x, "
        "function), all_keys(x) or no mapping"
    )


@pytest.mark.parametrize("own", [DAYS, None])
@pytest.mark.parametrize("mapped", [None, all_keys("up"), keys("up", list)])
def test_any_other_mapping_goes_between_any_two_spaces(mapped, own):
    graph_of(*space_edge(mapped, own, REGIONS))


@pytest.mark.parametrize(("own", "theirs"), [(DAYS, None), (None, DAYS), (DAYS, DAYS)])
def test_the_same_key_is_read_in_the_same_space_and_where_there_is_none(own, theirs):
    graph_of(*space_edge(same_key("up"), own, theirs))


def test_a_task_as_upstream_of_an_asset_is_told():
    problem = only_problem(task_of("mail"), built("report", "mail"))
    assert problem == (
        "pipeline.py:report: asset 'report' has task 'mail' as upstream → a task always runs "
        "anew, so only another task may depend on it"
    )


def test_a_task_may_depend_on_a_task():
    graph_of(task_of("mail"), task_of("log", "mail"))


def test_a_bad_upstream_is_told_with_the_declaration():
    assert "asset 'x': upstream 7 is neither" in only_problem(declared(asset, lambda: 0, deps=[7]))


def test_names_with_one_dagster_key_are_told():
    @asset(deps=[Dataset("s3://bucket/key")])
    def reader(): ...

    found, problems = merge(closed_over([declaration_of(reader), built("s3/bucket/key")]), ())
    assert problems == []
    problem = only_problem(*found.values())
    assert "have the same Dagster key s3/bucket/key" in problem


@pytest.mark.parametrize(
    ("declaration", "path"),
    [
        (built("a/b"), ("a", "b")),
        (source("s3://bucket//key/"), ("s3", "bucket", "key")),
        (source("dataset:PM100"), ("dataset:PM100",)),
        (source("///"), ("///",)),
        (source("x", node_type=NodeType.EXTERNAL, metadata={"path": ("a/b", "c")}), ("a/b", "c")),
    ],
)
def test_a_name_gives_the_parts_of_a_dagster_key(declaration, path):
    assert key_path(declaration) == path
