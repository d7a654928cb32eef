"""What a walk gives to a function and records, while upstreams move or stand still."""

from datetime import datetime, timezone

import pytest
from worlds import World, built, names, says, source

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.partitions import daily
from examlops_dagster.core.records import Node


def test_versions_of_deps_are_given_and_recorded(world):
    world.materialize("model")
    [request] = [r for r in world.orchestrator.requests if r.node.asset == "model"]
    read = world.ledger.records()[Node("model")].built_from
    assert request.arguments == {"features": 1}
    assert request.built_from == read
    assert read[Node("features")].version == 1


def test_values_of_inputs_are_given(clock):
    world = World(
        clock,
        built("prices", function=says({"apple": 3})),
        built("report", Upstream("prices", "value"), function=lambda value: value["apple"] * 2),
    )
    world.materialize("report")
    assert world.ledger.value(Node("report")).payload == b"6"


def test_a_function_that_returns_nothing_keeps_no_value(world):
    world.materialize("model")
    assert world.ledger.value(Node("model")) is None


def test_the_request_holds_the_limits_of_the_declaration(clock):
    world = World(clock, built("a", timeout_seconds=7.0, resources={"gpus": 1}))
    world.materialize("a")
    [request] = world.orchestrator.requests
    assert (request.timeout_seconds, request.resources, request.attempt) == (7.0, {"gpus": 1}, 1)


@pytest.mark.parametrize(
    ("freshness", "zone", "ds"),
    [
        (Manual, "UTC", "2026-01-05"),
        (Manual, "Pacific/Kiritimati", "2026-01-06"),
        (Schedule("0 18 * * *"), "UTC", "2026-01-04"),
        (Schedule("0 6 * * *", "Asia/Tokyo"), "UTC", "2026-01-05"),
    ],
)
def test_ds_is_the_date_of_the_tick_or_the_run_in_its_zone(clock, freshness, zone, ds):
    seen = []
    asks = built("a", function=lambda ds: seen.append((ds,)), freshness=freshness)
    first_seen = {Node("a"): datetime(2026, 1, 1, tzinfo=timezone.utc)}
    World(clock, asks, zone=zone, first_seen=first_seen).materialize("a")
    assert seen == [(ds,)]


def test_ds_is_the_date_of_the_partition(clock):
    seen = []
    space = {"day": daily("2024-02-03", "2024-02-05")}
    world = World(clock, built("a", function=lambda day, ds: seen.append((day, ds)), space=space))
    world.materialize(Node("a", "2024-02-04"))
    assert seen == [("2024-02-04", "2024-02-04")]


def test_an_upstream_that_moves_during_the_build_leaves_the_result_stale(clock):
    world = World(clock, source("a"), built("b", "a"))
    world.materialize("b")

    def slow(**upstream):
        world.change_source("a")
        seen.append(upstream)

    seen = []
    world.change_source("a")
    world.declare(source("a"), built("b", "a", function=slow))
    outcome = world.materialize("b")
    assert names(outcome.rebuilt) == ["b"]
    assert seen == [{"a": 2}]
    assert world.why("b") == ("upstream a changed (2 → 3)",)


def test_an_upstream_that_moves_before_its_turn_is_read_as_it_is_then(clock):
    world = World(clock, source("a"), source("other"), built("b", "other"), built("c", "a", "b"))

    def moves(**upstream):
        world.change_source("a")

    world.materialize("c")
    world.change_source("other")
    world.declare(
        source("a"), source("other"), built("b", "other", function=moves), built("c", "a", "b")
    )
    world.materialize("c")
    assert world.orchestrator.requests[-1].arguments == {"a": 2, "b": 2}
    assert world.states()["c"] == "fresh"
