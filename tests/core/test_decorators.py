import functools
import inspect
import textwrap
from types import SimpleNamespace

import pytest

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.declarations import (
    DEFAULT_TIMEOUT,
    NodeType,
    Sink,
    closed_over,
)
from examlops_dagster.core.declared import declaration_of, declarations_of
from examlops_dagster.core.decorators import asset, sensor, sink, task
from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.mappings import all_keys, keys, same_key
from examlops_dagster.core.partitions import daily
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


def only(function):
    found = declaration_of(function)
    assert found is not None
    return found


def names_of(declarations):
    return [d.name for d in declarations]


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
    with pytest.raises(TypeError, match=r"takes no retrys; did you mean retries\? It takes "):
        decorator("x", retrys=1)


@pytest.mark.parametrize("decorator", [asset, sensor, task])
def test_a_second_positional_argument_is_a_type_error(decorator):
    with pytest.raises(TypeError):
        decorator("x", "model")


@pytest.mark.parametrize(
    ("decorator", "freshness", "kind"),
    [(asset, Always, "dataset"), (sensor, Manual, "sensor"), (task, Always, "task")],
)
def test_the_defaults_are_those_of_the_design(decorator, freshness, kind):
    @decorator
    def produce(): ...

    found = only(produce)
    assert found.freshness is freshness
    assert found.timeout_seconds is DEFAULT_TIMEOUT
    assert (found.retries, found.retry_backoff, found.resources) == (0, 0.0, {})
    assert (found.command, found.orchestrator, found.kind) == ((), None, kind)


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


def test_a_wrapper_around_an_asset_as_upstream_is_told_with_what_to_do():
    @asset(deps=[functools.wraps(decorated)(lambda: None)])
    def produce(): ...

    [problem] = only(produce).problems
    assert "is a wrapper around 'up/there'" in problem
    assert problem.endswith("put the decorator that wraps below @asset")


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

    with pytest.raises(DefinitionError, match=r"test_decorators\.py:\d+: @sink stands above"):
        declare()


def wrapped(function):
    @functools.wraps(function)
    def wrapper(): ...

    return wrapper


def test_an_asset_around_another_one_has_none_of_its_sinks():
    @asset("inner")
    @sink("inner.json")
    def produce(): ...

    assert only(asset("outer")(wrapped(produce))).sinks == ()
    own = asset("own")(sink("own.json")(wrapped(produce)))
    assert only(own).sinks == (Sink("own.json"),)
    assert only(produce).sinks == (Sink("inner.json"),)


def test_a_sink_below_the_wrapper_of_an_asset_is_kept():
    @sink("report.json")
    def produce(): ...

    assert only(asset("x")(wrapped(produce))).sinks == (Sink("report.json"),)


def test_two_assets_of_one_function_have_its_sinks_both():
    @asset("a")
    @asset("b")
    @sink("{key}.json")
    def produce(): ...

    both = declarations_of(SimpleNamespace(produce=produce))
    assert [d.sinks for d in both] == [(Sink("{key}.json"),)] * 2
