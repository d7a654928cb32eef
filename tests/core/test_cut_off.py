"""What makes the next walk build again: content, code, edges. Equal content does not."""

from worlds import World, built, names, says, source

from examlops_dagster.core.declarations import AssetOutput
from examlops_dagster.core.records import Node


def test_an_equal_result_leaves_what_is_below_unchanged(clock):
    world = World(clock, source("a"), built("b", "a", function=says([1, 2])), built("c", "b"))
    world.materialize("c")
    world.change_source("a")
    outcome = world.materialize("c")
    assert (names(outcome.rebuilt), names(outcome.unchanged)) == (["b"], ["c"])
    assert world.orchestrator.called == ["b", "c", "b"]
    assert (world.version("b"), world.version("c")) == (1, 1)
    assert set(world.states().values()) == {"fresh"}


def test_a_data_version_that_the_function_gives_cuts_off_too(clock):
    world = World(
        clock,
        source("a"),
        built("b", "a", function=says(AssetOutput(data_version="same"))),
        built("c", "b"),
    )
    world.materialize("c")
    world.change_source("a")
    assert names(world.materialize("c").unchanged) == ["c"]


def test_a_function_that_returns_nothing_is_new_each_time(clock):
    world = World(clock, source("a"), built("b", "a"), built("c", "b"))
    world.materialize("c")
    world.change_source("a")
    assert names(world.materialize("c").rebuilt) == ["b", "c"]


def test_content_that_comes_back_gets_a_new_number_and_is_seen(clock):
    world = World(clock, source("a"), built("b", "a"))
    for version, data in enumerate(["A", "B", "A"], start=1):
        world.ledger.report(Node("a"), data)
        assert world.version("a") == version
        assert names(world.materialize("b").rebuilt) == ["b"]


def test_content_that_comes_back_between_two_builds_needs_none(clock):
    world = World(clock, source("a"), built("b", "a"))
    world.ledger.report(Node("a"), "A")
    world.materialize("b")
    world.ledger.report(Node("a"), "B")
    world.ledger.report(Node("a"), "A")
    assert names(world.materialize("b").skipped) == ["a", "b"]


def test_changed_code_rebuilds_from_there(world):
    world.code = {"features": "old", "model": "same"}
    world.materialize("model")
    world.code = {"features": "new", "model": "same"}
    assert world.why("features") == ("code changed",)
    assert names(world.materialize("model").rebuilt) == ["features", "model"]
    assert set(world.states().values()) == {"fresh", "never built"}


def test_a_removed_dep_rebuilds(world):
    world.materialize("model")
    world.declare(source("PM100"), built("features", "PM100"), built("model"))
    assert world.why("model") == ("upstream features removed",)
    assert names(world.materialize("model").rebuilt) == ["model"]
