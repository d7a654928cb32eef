"""What the second seed lets people declare, and what it refuses."""

import inspect

import pytest
from platforms import refused

from examlops_dagster import (
    Always,
    DefinitionError,
    Manual,
    Schedule,
    asset,
    partitions,
    sensor,
    sink,
    task,
)
from examlops_dagster.core.declarations import Declaration, NodeType, Sink, Upstream
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph


def test_always_is_the_default_of_assets_and_tasks_and_manual_of_sensors():
    @asset()
    def a(): ...

    @task()
    def t(): ...

    @sensor()
    def s(): ...

    assert [declaration_of(f).freshness for f in (a, t, s)] == [Always, Always, Manual]


@pytest.mark.parametrize("freshness", [Always, Manual, Schedule("0 5 * * *")])
@pytest.mark.parametrize("decorate", [asset, task])
def test_assets_and_tasks_take_each_of_the_three_kinds(decorate, freshness):
    @decorate(freshness=freshness)
    def node(): ...

    build_graph({"node": declaration_of(node)})
    assert declaration_of(node).freshness == freshness


@pytest.mark.parametrize("freshness", [Manual, Schedule("*/5 * * * *")])
def test_sensors_take_manual_and_schedule(freshness):
    @sensor(freshness=freshness)
    def node(): ...

    build_graph({"node": declaration_of(node)})
    assert declaration_of(node).freshness == freshness


def test_always_is_not_valid_for_sensors():
    @sensor(freshness=Always)
    def inbox(): ...

    text = refused(inbox)
    assert f"{__file__}:" in text
    assert "sensor 'inbox'" in text
    assert "Manual or Schedule" in text


SEEDS = {
    asset: ("name inputs partitions serializer freshness timeout_seconds description tags"),
    sensor: "name freshness timeout_seconds description tags",
    task: ("name inputs freshness timeout_seconds retries retry_backoff description tags"),
}


@pytest.mark.parametrize("decorate", SEEDS)
def test_the_decorators_take_every_argument_of_the_seed(decorate):
    given = {
        "name": "other",
        "freshness": Schedule("0 5 * * *"),
        "timeout_seconds": 7,
        "description": "words",
        "tags": {"team": "data"},
        "inputs": {"x": "upstream"},
        "partitions": {"ticker": partitions(["AAPL"])},
        "serializer": "json",
        "retries": 2,
        "retry_backoff": 1.5,
    }
    wanted = SEEDS[decorate].split()

    @decorate(**{name: given[name] for name in wanted})
    def node(**anything): ...

    declaration = declaration_of(node)
    assert declaration.name == "other"
    for name in set(wanted) - {"name", "inputs", "partitions"}:
        assert getattr(declaration, name) == given[name]
    assert [(u.parameter, u.name) for u in declaration.upstreams] == (
        [("x", "upstream")] if "inputs" in wanted else []
    )


def test_a_decorated_function_is_usable_as_before():
    @asset
    @sink("./a.json")
    def a(x: int = 2) -> int:
        return x + 1

    assert a(3) == 4
    assert inspect.signature(a).parameters["x"].default == 2


def test_a_task_must_not_be_an_input_to_an_asset():
    @task
    def mail(): ...

    @asset(inputs={"mail": mail})
    def reader(mail): ...

    text = refused(mail, reader)
    assert "asset 'reader' has task 'mail' as upstream" in text


def test_a_task_must_not_be_an_input_to_a_sensor():
    with pytest.raises(TypeError, match="@sensor takes no inputs"):
        sensor(inputs={"mail": "mail"})
    tasks = Declaration("mail", NodeType.TASK, function=print)
    reads = Declaration(
        "inbox", NodeType.SENSOR, function=print, upstreams=(Upstream("mail"),), freshness=Manual
    )
    with pytest.raises(DefinitionError, match="sensor 'inbox' has task 'mail' as upstream"):
        build_graph({"mail": tasks, "inbox": reads})


def test_sinks_are_stacked_below_asset_on_any_fsspec_path():
    @asset(freshness=Always)
    @sink("./report.json")
    @sink("s3://my-bucket/report.json")
    def report() -> dict:
        return {"rows": 42}

    build_graph({"report": declaration_of(report)})
    assert declaration_of(report).sinks == (
        Sink("./report.json"),
        Sink("s3://my-bucket/report.json"),
    )
    assert report() == {"rows": 42}
