import functools
import importlib
import inspect
import sys
import textwrap
from types import SimpleNamespace

import pytest
from worlds import built, source

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.declarations import (
    DEFAULT_TIMEOUT,
    NodeType,
    Parameters,
    Sink,
    closed_over,
    merge,
)
from examlops_dagster.core.declared import declaration_of, declarations_of
from examlops_dagster.core.decorators import asset, sensor, sink, task
from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.partitions import all_keys, daily, keys, same_key
from examlops_dagster.errors import DefinitionError

ARGUMENTS = {
    "kind": "model",
    "deps": ["a"],
    "inputs": {"x": "a"},
    "outlets": Dataset("s3://bucket"),
    "inlets": [DatasetAlias("out")],
    "partitions": {"day": daily("2024-01-01")},
    "serializer": "json",
    "freshness": Schedule("0 6 * * *"),
    "timeout_seconds": 1.5,
    "retries": 2,
    "retry_backoff": 3.0,
    "resources": {"gpus": 4},
    "command": ["run.sh", 1],
    "orchestrator": "local",
    "code_version": "7",
    "code_deps": "helpers.py",
    "group": "daily",
    "pool": "gpu",
    "description": "words",
    "tags": {"team": "ml"},
    "owners": "team:ml",
    "metadata": {"answer": 42},
}
NOT_OF_A_SENSOR = {"deps", "inputs", "partitions"}
NOT_OF_A_TASK = {"partitions", "serializer", "kind"}
KEPT = {
    "outlets": (Dataset("s3://bucket"),),
    "inlets": (DatasetAlias("out"),),
    "command": ("run.sh", "1"),
    "code_deps": ("helpers.py",),
    "owners": ("team:ml",),
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of the user, and import it."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(text, name="users_pipeline"):
        path = tmp_path / f"{name}.py"
        head = "from examlops_dagster import asset, sensor, sink, task, Dataset, DatasetAlias\n"
        path.write_text(head + textwrap.dedent(text))
        importlib.invalidate_caches()
        written.append(name)
        return importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def only(function):
    found = declaration_of(function)
    assert found is not None
    return found


def names_of(declarations):
    return [d.name for d in declarations]


# decorators


@pytest.mark.parametrize("decorator", [asset, sensor, task])
def test_a_decorator_returns_the_function_unchanged(decorator):
    def produce():
        return 7

    assert decorator(produce) is produce
    assert decorator("named")(produce) is produce
    assert produce() == 7


@pytest.mark.parametrize(
    ("decorator", "node_type"),
    [(asset, NodeType.ASSET), (sensor, NodeType.SENSOR), (task, NodeType.TASK)],
)
def test_a_bare_decorator_takes_the_name_of_the_function(decorator, node_type):
    @decorator
    def produce(): ...

    assert (only(produce).name, only(produce).node_type) == ("produce", node_type)


def test_a_called_decorator_without_a_name_takes_the_name_of_the_function():
    @asset(kind="model")
    def produce(): ...

    assert (only(produce).name, only(produce).kind) == ("produce", "model")


def test_a_given_name_wins():
    @asset("jpcp/features")
    def produce(): ...

    assert only(produce).name == "jpcp/features"


def test_a_function_given_directly_keeps_the_other_arguments():
    def produce(): ...

    asset(produce, kind="model")
    assert only(produce).kind == "model"


def test_a_name_that_is_not_text_is_a_type_error():
    with pytest.raises(TypeError, match="takes a name, not 7"):
        asset(7)


@pytest.mark.parametrize("argument", sorted(ARGUMENTS))
@pytest.mark.parametrize(
    ("decorator", "refused"), [(asset, set()), (sensor, NOT_OF_A_SENSOR), (task, NOT_OF_A_TASK)]
)
def test_a_decorator_takes_exactly_the_arguments_of_the_design(decorator, refused, argument):
    given = {argument: ARGUMENTS[argument]}

    def produce(): ...

    if argument in refused:
        with pytest.raises(TypeError, match=f"takes no {argument}"):
            decorator("x", **given)
        return
    found = only(decorator("x", **given)(produce))
    assert found.problems == ()
    if argument == "deps":
        assert names_of(found.upstreams) == ["a"]
    elif argument == "inputs":
        assert [(u.name, u.parameter) for u in found.upstreams] == [("a", "x")]
    elif argument == "partitions":
        assert found.partitions.dimensions == (("day", daily("2024-01-01")),)
    else:
        assert getattr(found, argument) == KEPT.get(argument, ARGUMENTS[argument])


@pytest.mark.parametrize("decorator", [asset, sensor, task])
def test_an_unknown_argument_is_a_type_error_that_names_the_known_ones(decorator):
    with pytest.raises(TypeError, match=r"takes no retrys; it takes .*retries"):
        decorator("x", retrys=1)


@pytest.mark.parametrize("decorator", [asset, sensor, task])
def test_a_second_positional_argument_is_a_type_error(decorator):
    with pytest.raises(TypeError):
        decorator("x", "model")


@pytest.mark.parametrize(
    ("decorator", "freshness"), [(asset, Always), (sensor, Manual), (task, Always)]
)
def test_the_defaults_are_those_of_the_design(decorator, freshness):
    @decorator
    def produce(): ...

    found = only(produce)
    assert found.freshness is freshness
    assert found.timeout_seconds is DEFAULT_TIMEOUT
    assert (found.retries, found.retry_backoff, found.resources) == (0, 0.0, {})
    assert (found.command, found.orchestrator, found.kind) == ((), None, "dataset")


def test_the_default_timeout_is_worth_300_and_told_apart_from_a_stated_300():
    @asset(timeout_seconds=300)
    def stated(): ...

    assert DEFAULT_TIMEOUT == 300
    assert only(stated).timeout_seconds is not DEFAULT_TIMEOUT


def test_where_is_the_file_and_line_of_the_function():
    line = inspect.currentframe().f_lineno + 2

    @asset
    def produce(): ...

    assert only(produce).where == f"{__file__}:{line}"


def test_one_function_can_be_two_assets():
    @asset("a")
    @asset("b")
    def produce(): ...

    module = SimpleNamespace(produce=produce)
    assert sorted(names_of(declarations_of(module))) == ["a", "b"]


# upstreams


def upstreams_of(*deps, **inputs):
    @asset("down", deps=list(deps), inputs=inputs)
    def produce(**anything): ...

    found = only(produce)
    assert found.problems == ()
    return found.upstreams


def test_deps_take_one_as_well_as_many():
    @asset(deps="PM100")
    def produce(): ...

    assert names_of(only(produce).upstreams) == ["PM100"]


@asset("up/there")
def decorated(): ...


DAGSTER_ASSET = SimpleNamespace(key=SimpleNamespace(path=["plain", "asset"]))


@pytest.mark.parametrize(
    ("thing", "name", "node_type"),
    [
        ("dataset:PM100", "dataset:PM100", None),
        (decorated, "up/there", NodeType.ASSET),
        (Dataset("s3://bucket/key"), "s3://bucket/key", NodeType.DATASET),
        (DatasetAlias("out"), "out", NodeType.ALIAS),
        (DAGSTER_ASSET, "plain/asset", NodeType.EXTERNAL),
        (DAGSTER_ASSET.key, "plain/asset", NodeType.EXTERNAL),
    ],
    ids=["name", "function", "Dataset", "DatasetAlias", "object with key", "key"],
)
def test_an_upstream_may_be_of_every_kind_as_dep_and_as_input(thing, name, node_type):
    dep, given = upstreams_of(thing, x=thing)
    assert (dep.name, dep.parameter) == (name, None)
    assert (given.name, given.parameter) == (name, "x")
    assert (dep.declared.node_type if dep.declared else None) is node_type


@pytest.mark.parametrize(
    ("mapped", "kind", "missing"),
    [
        (same_key(decorated), "same_key", "wait"),
        (all_keys(decorated, missing="skip"), "all_keys", "skip"),
        (keys(decorated, list), "keys", "wait"),
    ],
)
def test_a_mapping_goes_around_any_kind_of_upstream(mapped, kind, missing):
    dep, given = upstreams_of(mapped, x=mapped)
    for edge in (dep, given):
        assert (edge.name, edge.mapped.kind, edge.mapped.missing) == ("up/there", kind, missing)


@pytest.mark.parametrize("thing", [7, None, object(), textwrap, lambda: None, {"a": 1}])
def test_anything_else_as_upstream_is_a_problem_of_the_declaration(thing):
    @asset(deps=[thing])
    def produce(): ...

    [problem] = only(produce).problems
    assert problem.startswith("upstream ")
    assert "neither a name" in problem


@pytest.mark.parametrize("argument", ["outlets", "inlets"])
@pytest.mark.parametrize("thing", ["a name", None, 7])
def test_an_outlet_that_is_no_dataset_or_alias_is_a_problem(argument, thing):
    @asset(**{argument: thing})
    def produce(): ...

    [problem] = only(produce).problems
    assert problem == f"{argument}: {thing!r} is neither a Dataset nor a DatasetAlias"
    assert closed_over([only(produce)]) == [only(produce)]


def test_partitions_that_are_no_mapping_are_a_problem():
    @asset(partitions=daily("2024-01-01"))
    def produce(): ...

    [problem] = only(produce).problems
    assert problem.startswith("partitions TimeWindowSpace")


# sinks


def test_a_sink_below_the_asset_is_kept():
    @asset
    @sink("./first.json")
    @sink("s3://bucket/second", serializer="parquet")
    def produce(): ...

    assert only(produce).sinks == (
        Sink("./first.json"),
        Sink("s3://bucket/second", "parquet"),
    )


def test_a_sink_above_the_asset_is_told_with_its_place():
    def declare():
        @sink("./report.json")
        @asset
        def produce(): ...

    with pytest.raises(DefinitionError, match=r"test_declarations\.py:\d+: @sink stands above"):
        declare()


# modules


def test_declarations_of_a_module_come_in_the_order_of_the_file(module):
    found = module("""
        @asset
        def second(): ...
        @sensor
        def first(): ...
        """)
    assert names_of(declarations_of(found)) == ["second", "first"]


def test_declarations_made_in_a_loop_are_found(module):
    found = module("""
        for n in range(3):
            @asset(f"part_{n}")
            def part(): ...
        """)
    assert names_of(declarations_of(found)) == ["part_0", "part_1", "part_2"]


def test_declarations_made_in_a_factory_that_keeps_nothing_are_found(module):
    module(
        """
        def factory(name):
            @asset(name)
            def part(): ...
        """,
        "users_factory",
    )
    found = module("""
        from users_factory import factory
        factory("one")
        """)
    assert names_of(declarations_of(found)) == ["one"]
    assert names_of(declarations_of(sys.modules["users_factory"])) == []


def test_declarations_of_imported_functions_are_found_and_once(module):
    module("@asset\ndef shared(): ...\n", "users_library")
    found = module("""
        from users_library import shared
        from users_library import shared as again
        @asset(deps=shared)
        def own(): ...
        """)
    assert sorted(names_of(declarations_of(found))) == ["own", "shared"]


def test_a_reloaded_module_does_not_double_its_declarations(module):
    found = module("""
        for n in range(2):
            @asset(f"part_{n}")
            def part(): ...
        @asset
        def whole(): ...
        """)
    before = names_of(declarations_of(found))
    found = importlib.reload(found)
    assert names_of(declarations_of(found)) == before == ["part_0", "part_1", "whole"]
    assert merge(closed_over(declarations_of(found)), ())[1] == []


def test_objects_that_answer_to_any_name_are_no_declarations(module):
    found = module("from unittest.mock import call, MagicMock\nmock = MagicMock()\n")
    assert declarations_of(found) == []


def test_nothing_is_found_in_a_module_that_declares_nothing():
    assert declarations_of(textwrap) == []


# closure and merging


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
    ],
)
def test_the_parameters_of_a_function_are_read_as_inspect_reads_them(function, expected):
    assert Parameters.of(function) == expected
    slow = functools.partial(function)  # has no code object
    assert Parameters.of(slow) == expected
