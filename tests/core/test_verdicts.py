"""The words of the states."""

import pytest
from situations import state
from worlds import built, judged, record

from examlops_dagster.core.verdicts import State


@pytest.mark.parametrize(
    ("state_", "value", "shown"),
    [
        (State.FRESH, "fresh", "fresh"),
        (State.RUNNABLE, "runnable_stale", "stale"),
        (State.WAITING_FOR_SCHEDULE, "stale_waiting_for_schedule", "waiting for schedule"),
        (State.WAITING_FOR_UPSTREAM, "stale_waiting_for_upstream", "waiting for upstream"),
        (State.WAITING_FOR_REQUEST, "stale_waiting_for_request", "waiting for request"),
        (State.RUNNING, "running", "running"),
        (State.FAILED, "failed", "failed"),
        (State.HISTORICAL, "historical", "historical"),
        (State.UNDECLARED, "undeclared", "undeclared"),
    ],
)
def test_a_state_has_the_words_of_the_design(state_, value, shown):
    assert (state_.value, state_.shown) == (value, shown)


def test_those_in_order_are_fresh_running_and_historical():
    assert {s for s in State if s.in_order} == {State.FRESH, State.RUNNING, State.HISTORICAL}


def test_a_runnable_node_is_shown_as_never_built_or_as_stale():
    verdicts = judged([built("a"), built("b")], {"b": record(code="old")}, {"b": "new"})
    assert state(verdicts["a"]) == (State.RUNNABLE, "never built")
    assert state(verdicts["b"]) == (State.RUNNABLE, "stale")
