import functools
from types import SimpleNamespace

import pytest
from worlds import built, source

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.declarations import (
    NodeType,
    Parameters,
    closed_over,
    merge,
)
from examlops_dagster.core.declared import declaration_of, declarations_of
from examlops_dagster.core.decorators import asset
from examlops_dagster.core.graph import build_graph


def only(function):
    found = declaration_of(function)
    assert found is not None
    return found


def names_of(declarations):
    return [d.name for d in declarations]


@asset("up/there")
def decorated(): ...


DAGSTER_ASSET = SimpleNamespace(key=SimpleNamespace(path=["plain", "asset"]))


def merged(*in_code, outside=()):
    found, problems = merge(closed_over(in_code), outside)
    return found, [str(p) for p in problems]


def test_upstreams_given_as_objects_are_declared_with_the_asset():
    @asset(deps=[decorated, Dataset("s3://x")], outlets=DatasetAlias("out"))
    def produce(): ...

    found, problems = merged(only(produce))
    assert {n: d.node_type for n, d in found.items()} == {
        "produce": NodeType.ASSET,
        "up/there": NodeType.ASSET,
        "s3://x": NodeType.DATASET,
        "out": NodeType.ALIAS,
    }
    assert problems == []


def test_declarations_keep_their_order():
    found, _ = merged(built("c"), built("a"), built("b"))
    assert list(found) == ["c", "a", "b"]


def test_two_declarations_of_one_name_are_a_clash_that_names_both_places():
    _, [problem] = merged(built("x"), built("x", kind="model"))
    assert problem.startswith("pipeline.py:x: asset 'x' is also declared at pipeline.py:x as asset")


def test_the_clash_of_two_functions_has_both_files_and_lines(module):
    found = module("""
        @asset("x")
        def one(): ...

        @task("x")
        def two(): ...
        """)
    _, [problem] = merged(*declarations_of(found))
    assert (
        f"{found.__file__}:6: task 'x' is also declared at {found.__file__}:3 as asset" in problem
    )
    assert problem.endswith("give one of the two another name")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("other", [Dataset("x"), DatasetAlias("x")])
def test_assets_datasets_and_aliases_share_one_name_space(other, order):
    @asset(deps=[other])
    def reader(): ...

    found, [problem] = merged(*[built("x"), only(reader)][::order])
    assert "share one name space" in problem
    assert found["x"].node_type is NodeType.ASSET


def test_a_dataset_and_an_alias_of_one_name_clash():
    @asset(deps=[Dataset("x"), DatasetAlias("x")])
    def reader(): ...

    _, [problem] = merged(only(reader))
    assert "share one name space" in problem


def test_a_dataset_may_be_named_by_many():
    @asset(deps=Dataset("s3://x", {"rows": 1}))
    def one(): ...

    @asset(deps=Dataset("s3://x"), outlets=Dataset("s3://x"))
    def two(): ...

    found, problems = merged(only(one), only(two))
    assert problems == []
    assert found["s3://x"].metadata == {"rows": 1}


@pytest.mark.parametrize("order", [1, -1])
def test_the_key_of_an_asset_of_ours_is_no_clash(order):
    @asset("plain/asset")
    def ours(): ...

    @asset(deps=[DAGSTER_ASSET.key])
    def reader(): ...

    found, problems = merged(*[only(ours), only(reader)][::order])
    assert problems == []
    assert found["plain/asset"].node_type is NodeType.ASSET


def test_the_key_of_an_asset_may_be_met_before_the_asset():
    @asset("plain/asset")
    def ours(): ...

    @asset(deps=[DAGSTER_ASSET.key, ours])
    def reader(): ...

    found, problems = merged(only(reader))
    assert problems == []
    assert found["plain/asset"].function is ours


def test_the_key_of_a_source_declared_outside_is_that_source():
    @asset(deps=[DAGSTER_ASSET.key])
    def reader(): ...

    found, problems = merged(only(reader), outside=[source("plain/asset", kind="trace")])
    assert problems == []
    assert found["plain/asset"].is_source


def test_code_wins_in_what_it_states():
    @asset("x", kind="model", deps=["a"], description="by code")
    def produce(**upstream): ...

    outside = built("x", "b", kind="report", description="by hand", function=None, outside=True)
    found, problems = merged(only(produce), outside=[outside])
    assert problems == []
    assert (found["x"].kind, found["x"].description) == ("model", "by code")
    assert names_of(found["x"].upstreams) == ["a"]


def test_the_outside_declaration_fills_the_rest():
    @asset("x")
    def produce(**upstream): ...

    outside = built("x", "b", kind="report", description="by hand", function=None, outside=True)
    found, _ = merged(only(produce), outside=[outside])
    assert (found["x"].kind, found["x"].description) == ("report", "by hand")
    assert names_of(found["x"].upstreams) == ["b"]
    assert found["x"].function is produce


def test_a_name_declared_outside_alone_is_kept():
    found, _ = merged(outside=[source("PM100")])
    assert found["PM100"].is_source


def test_merged_declarations_make_a_graph():
    @asset(deps=[decorated])
    def produce(): ...

    found, problems = merge(closed_over([only(produce)]), [source("PM100")])
    assert set(build_graph(found, problems).declarations) == {"produce", "up/there", "PM100"}


# sources, roots and parameters


def test_a_source_has_neither_upstream_nor_function():
    assert source("a").is_source
    assert not built("a").is_source
    assert built("a").is_root
    assert not built("a", "b").is_root
    assert not built("a", "b", function=None).is_source


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: 0, Parameters()),
        (lambda a, b=1: 0, Parameters(("a", "b"), frozenset("a"))),
        (lambda a, *, b, c=1: 0, Parameters(("a", "b", "c"), frozenset("ab"))),
        (lambda *a, **b: 0, Parameters((), frozenset(), takes_any=True)),
        (lambda a, *b, c=2, **d: 0, Parameters(("a", "c"), frozenset("a"), takes_any=True)),
        (lambda a, b, /, c, d=1: 0, Parameters(("c", "d"), frozenset("c"), positional=("a", "b"))),
        (lambda a, b=1, /, c=2: 0, Parameters(("c",), frozenset(), positional=("a",))),
    ],
)
def test_the_parameters_of_a_function_are_read_as_inspect_reads_them(function, expected):
    assert Parameters.of(function) == expected
    slow = functools.partial(function)  # has no code object
    assert Parameters.of(slow) == expected
