"""Sensors that say what they saw, and what is built at a tick."""

import pytest
from worlds import NOW, World, built, fails, names, sensor_of

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.records import Node


class Eye:
    """Looks at the world for a sensor; ``seen`` is what it returns next."""

    seen = (True, "first")

    def __call__(self):
        return self.seen


@pytest.fixture
def eye():
    return Eye()


@pytest.fixture
def watching(clock, eye):
    return World(
        clock,
        sensor_of("eye", function=eye),
        built("reader", Upstream("eye", "value"), function=lambda value: value),
    )


def payload(world, name):
    return world.ledger.value(Node(name)).payload


def test_a_sensor_that_says_true_makes_downstream_stale_though_its_output_is_equal(watching):
    watching.materialize("reader")
    watching.materialize("eye")
    assert watching.version("eye") == 2
    assert watching.states()["reader"] == "stale"


def test_a_sensor_that_says_false_makes_nothing_stale(watching, eye):
    watching.materialize("reader")
    eye.seen = (False, "ignored")
    assert names(watching.materialize("eye").rebuilt) == ["eye"]
    assert watching.version("eye") == 1
    assert set(watching.states().values()) == {"fresh"}


def test_downstream_reads_what_the_sensor_last_said_with_true(watching, eye):
    watching.materialize("eye")
    eye.seen = (False, "ignored")
    watching.materialize("eye")
    watching.materialize("reader")
    assert payload(watching, "reader") == b'"first"'


def test_a_sensor_that_says_false_has_answered_its_tick(clock, eye):
    world = World(clock, sensor_of("eye", function=eye, freshness=Schedule("0 * * * *")))
    world.materialize("eye")
    clock.advance(hours=1)
    eye.seen = (False, None)
    assert names(world.run_due().rebuilt) == ["eye"]
    assert world.due().is_empty
    assert world.version("eye") == 1


def test_a_sensor_that_says_false_the_first_time_exists(watching, eye):
    eye.seen = (False, "nothing yet")
    watching.materialize("reader")
    assert payload(watching, "reader") == b'"nothing yet"'


def test_a_scheduled_root_is_built_once_for_each_tick(clock):
    world = World(
        clock,
        built("a", freshness=Schedule("0 6 * * *")),
        built("b", "a"),
        first_seen={Node("a"): NOW, Node("b"): NOW},
    )
    assert world.run_due().rebuilt == []
    clock.set(NOW.replace(day=6, hour=6))
    assert names(world.run_due().rebuilt) == ["a", "b"]
    assert world.run_due().rebuilt == []
    clock.advance(days=3)
    assert names(world.run_due().rebuilt) == ["a", "b"]


def test_a_failed_tick_is_tried_again_at_the_next(clock):
    scheduled = built("a", function=fails, freshness=Schedule("0 * * * *"))
    world = World(clock, scheduled, first_seen={Node("a"): NOW})
    clock.advance(hours=1)
    world.run_due()
    world.run_due()
    assert len(world.orchestrator.called) == 1
    clock.advance(hours=1)
    world.run_due()
    assert len(world.orchestrator.called) == 2


def test_a_tick_does_not_build_a_manual_upstream(clock):
    world = World(
        clock,
        built("a", freshness=Manual),
        built("b", "a", freshness=Schedule("0 * * * *")),
        first_seen={Node("b"): NOW},
    )
    clock.advance(hours=1)
    assert world.run_due().rebuilt == []
