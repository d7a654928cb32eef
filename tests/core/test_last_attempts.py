"""A fresh node whose last attempt failed: the version stands, and the failure is told."""

from datetime import timedelta

import pytest
from worlds import NOW, World, built, judged, record, source, step_names

from examlops_dagster.core.records import BuildState, Hold, Node

FRESH_PAIR = (source("PM100"), built("features", "PM100"))
RECORDS = {"PM100": record(), "features": record(of={"PM100": (1, "d1")})}


def last_attempt(state, error="", after=timedelta(minutes=1)):
    """Judge features, fresh at NOW, after an attempt at it that ended then."""
    hold = Hold("forced", 1, 0, state, error, NOW + after)
    return judged(FRESH_PAIR, RECORDS, holds={Node("features"): hold})["features"]


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        (BuildState.FAILED, "ValueError: bad", "last attempt failed: ValueError: bad"),
        (BuildState.TIMED_OUT, "after 1 s", "last attempt timed out: after 1 s"),
        (BuildState.CANCELLED, "interrupted", "last attempt cancelled: interrupted"),
        (BuildState.DIED, "", "last attempt failed: process died"),
    ],
)
def test_a_fresh_node_stays_fresh_and_says_how_its_last_attempt_ended(state, error, said):
    verdict = last_attempt(state, error)
    assert (verdict.shown, verdict.version, verdict.reasons) == ("fresh", 1, ())
    assert verdict.why == (said,)


def test_a_result_that_came_later_makes_a_failure_history():
    assert last_attempt(BuildState.FAILED, "bad", after=-timedelta(minutes=1)).why == ()


def test_a_forced_rebuild_that_fails_makes_nothing_due(clock):
    broken = []

    def model(**upstream):
        if broken:
            raise ValueError("bad")

    world = World(clock, source("PM100"), built("model", "PM100", function=model))
    world.materialize("model")
    clock.advance(minutes=1)
    broken.append(True)
    world.materialize("model", force=True)
    assert world.states()["model"] == "fresh"
    assert world.why("model") == ("last attempt failed: ValueError: bad",)
    assert step_names(world.due()) == []
    broken.clear()
    world.materialize("model", force=True)
    assert world.why("model") == ()
