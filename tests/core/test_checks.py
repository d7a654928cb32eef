"""What can be wrong with one declaration by itself."""

import pytest
from problems import declared, only_problem, problems_of
from worlds import built, graph_of, source

from examlops_dagster.core.checks import RESOURCES
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.decorators import asset, sensor
from examlops_dagster.core.freshness import Always, Schedule
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.partitions import daily, partitions


@pytest.mark.parametrize("name", ["a name", "a:b", "a//b", "/a", "a/", "ü", "a\n", ""])
def test_a_bad_name_with_a_function_is_told(name):
    assert any("the name may hold letters" in p for p in problems_of(built(name)))


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "a/b/c", "1"])
def test_a_good_name_is_accepted(name):
    assert name in graph_of(built(name)).declarations


@pytest.mark.parametrize("name", ["dataset:PM100", "a name", "größe", "s3://bucket//key"])
def test_a_source_may_have_any_printable_name(name):
    assert name in graph_of(source(name)).declarations


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[31m"])
def test_a_source_may_not_hide_its_name(name):
    assert "empty or holds a control character" in only_problem(source(name))


@pytest.mark.parametrize("kind", ["Model", "a model", "", None, 7])
def test_a_kind_that_is_no_lower_case_word_is_told(kind):
    assert f"kind {kind!r} is not a lower-case word" in only_problem(built("a", kind=kind))


def test_a_bad_cron_is_told_with_the_place_and_the_name():
    problem = only_problem(built("a", freshness=Schedule("61 * * * *")))
    assert problem == "pipeline.py:a: asset 'a': cron '61 * * * *' cannot be read"


def test_freshness_of_another_type_is_told():
    assert "freshness 'always' is not Always" in only_problem(built("a", freshness="always"))


def test_always_on_a_sensor_is_told_with_what_to_use():
    problem = only_problem(declared(sensor, lambda: (True, 1), freshness=Always))
    assert "sensor 'x': a sensor cannot be Always fresh" in problem
    assert problem.endswith("→ use Manual or Schedule(...)")


def test_an_input_that_the_function_does_not_take_is_told():
    problem = only_problem(source("a"), declared(asset, lambda b=1: 0, inputs={"value": "a"}))
    assert "the function takes no parameter 'value' for input 'value'" in problem


def test_a_partition_dimension_that_the_function_does_not_take_is_told():
    problem = only_problem(declared(asset, lambda: 0, partitions={"day": daily("2024-01-01")}))
    assert "the function takes no parameter 'day' for partition dimension 'day'" in problem


def test_a_parameter_that_is_an_input_and_a_dimension_is_told():
    found = declared(
        asset, lambda day: 0, inputs={"day": "a"}, partitions={"day": daily("2024-01-01")}
    )
    assert "'day' is an input and a partition dimension" in only_problem(source("a"), found)


@pytest.mark.parametrize("more", [{"deps": ["a"]}, {"inputs": {"a": "a"}}])
def test_a_parameter_that_cannot_be_given_by_keyword_is_told(more):
    problem = only_problem(source("a"), declared(asset, lambda a, /: 0, **more))
    assert "the function takes a by position only, and is called by keyword" in problem
    assert problem.endswith("→ take the '/' out of its parameters")


def test_a_positional_parameter_with_a_default_keeps_it():
    graph_of(source("a"), declared(asset, lambda a=1, /: 0, deps=["a"]))


def test_the_parameters_of_a_function_that_a_command_replaces_are_not_looked_at():
    graph_of(declared(asset, lambda a, /: 0, command=["true"]))


def test_a_parameter_that_nothing_supplies_is_told():
    problem = only_problem(source("a"), declared(asset, lambda a, b, c: 0, deps=["a"]))
    assert "nothing supplies parameter b, c" in problem


def test_parameters_with_a_default_and_those_of_the_platform_need_nothing():
    def produce(ds, outlet_events, inlet_events, given=1): ...

    graph_of(declared(asset, produce))


def test_a_function_that_takes_no_dep_is_called_without():
    graph_of(source("a"), declared(asset, lambda: 0, deps=["a"]))


def test_a_command_takes_the_parameters_itself():
    graph_of(source("a"), declared(asset, lambda b: 0, inputs={"x": "a"}, command=["run.sh"]))


def test_an_unknown_resource_is_told_with_the_nearest():
    problem = only_problem(built("a", resources={"gpu": 1, "time": "1:00"}))
    assert "unknown resource 'gpu'; known: account, " in problem
    assert problem.endswith("→ did you mean gpus?")


def test_every_resource_of_the_vocabulary_is_known():
    graph_of(built("a", resources=dict.fromkeys(RESOURCES, 1)))


def test_an_unknown_orchestrator_is_told_with_the_known_ones():
    problem = only_problem(built("a", orchestrator="sheduler"))
    assert "unknown orchestrator 'sheduler'; known: local, prefect, scheduler" in problem
    assert problem.endswith("→ did you mean scheduler?")


def test_an_orchestrator_of_an_installed_package_is_known():
    declarations = {"a": built("a", orchestrator="theirs")}
    assert build_graph(declarations, orchestrators=["local", "theirs"]).undeclared == frozenset()


def test_an_unknown_serializer_is_told():
    assert "serializer 'yaml' is none of json, pickle" in only_problem(
        built("a", serializer="yaml")
    )


@pytest.mark.parametrize("owner", ["somebody", "team:", "team:a b", "a@b", 7])
def test_an_owner_that_dagster_refuses_is_told(owner):
    assert f"owner {owner!r} is neither an e-mail" in only_problem(built("a", owners=(owner,)))


def test_owners_that_dagster_takes_are_accepted():
    graph_of(built("a", owners=("team:ml-ops", "somebody@example.com")))


@pytest.mark.parametrize(
    "tags", [{"a b": "x"}, {"a/b/c": "x"}, {"": "x"}, {"a": "x y"}, {"a": 1}, {"a": "x" * 64}]
)
def test_a_tag_that_dagster_refuses_is_told(tags):
    assert "tag " in only_problem(built("a", tags=tags))


def test_tags_that_dagster_takes_are_accepted():
    graph_of(built("a", tags={"team/name": "ml", "x": ""}))


def test_a_group_that_dagster_refuses_is_told():
    assert "group 'a-b' may hold letters" in only_problem(built("a", group="a-b"))


@pytest.mark.parametrize("timeout", [0, -1, "300", True, float("nan")])
def test_a_timeout_that_is_no_number_above_0_is_told(timeout):
    problem = only_problem(built("a", timeout_seconds=timeout))
    assert f"timeout_seconds={timeout!r} is not a number above 0" in problem


@pytest.mark.parametrize("timeout", [None, 0.5, 86400])
def test_no_timeout_is_a_timeout_too(timeout):
    graph_of(built("a", timeout_seconds=timeout))


@pytest.mark.parametrize("retries", [-1, 1.5, True, "1"])
def test_retries_that_are_no_number_of_attempts_are_told(retries):
    assert f"retries={retries!r} is not" in only_problem(built("a", retries=retries))


@pytest.mark.parametrize("backoff", [-1, True, "1"])
def test_a_backoff_that_is_no_number_of_seconds_is_told(backoff):
    assert f"retry_backoff={backoff!r} is not" in only_problem(built("a", retry_backoff=backoff))


def test_a_bad_partition_space_is_told():
    problem = only_problem(built("a", space={"key": partitions(["x", "x"])}))
    assert "asset 'a': partition dimension 'key': a key stands there twice" in problem


def test_a_thing_without_a_code_object_has_a_place_too():
    @asset("x", retries=-1)
    class Callable:
        def __call__(self): ...

    assert only_problem(declaration_of(Callable)).startswith("test_checks:")
