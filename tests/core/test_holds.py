"""What holds a node back as failed, and what lifts that."""

from dataclasses import replace
from datetime import timedelta

import pytest
from situations import BASE, CODE, DAILY, RECORDS, YESTERDAY, fingerprint, held, state, under
from worlds import NOW, built, judged, record, source

from examlops_dagster.core.records import Attempt, BuildState, Hold, Node
from examlops_dagster.core.verdicts import State


def test_attempts_that_are_used_up_are_failed_with_the_last_line_of_the_error():
    verdict = under(held())
    assert state(verdict) == (State.FAILED, "failed")
    assert verdict.why == ("never materialized", "ValueError: no")


def test_one_attempt_fewer_may_be_tried_again():
    assert under(held(failures=1)).state is State.RUNNABLE


@pytest.mark.parametrize("retries", [0, 3])
def test_the_budget_is_one_attempt_and_the_retries(retries):
    declaration = replace(BASE, retries=retries)
    assert under(held(failures=retries), declaration).state is State.RUNNABLE
    assert under(held(failures=retries + 1), declaration).state is State.FAILED


@pytest.mark.parametrize("how", [BuildState.TIMED_OUT, BuildState.CANCELLED])
def test_how_it_failed_is_shown(how):
    assert state(under(held(how=how))) == (State.FAILED, how.value)


def test_a_cancelled_build_is_held_at_once():
    assert under(held(failures=1, how=BuildState.CANCELLED)).state is State.FAILED


def test_the_third_death_in_a_row_holds():
    assert under(held(failures=0, deaths=2, how=BuildState.DIED)).state is State.RUNNABLE
    verdict = under(held(failures=0, deaths=3, how=BuildState.DIED, error=""))
    assert state(verdict) == (State.FAILED, "failed")
    assert verdict.note == "process died"


@pytest.mark.parametrize(
    "change",
    [
        {"declaration": replace(BASE, resources={"gpus": 2})},
        {"declaration": replace(BASE, command=("other.sh",))},
        {"declaration": replace(BASE, orchestrator="local")},
        {"declaration": replace(BASE, timeout_seconds=600)},
        {"declaration": replace(BASE, timeout_seconds=None)},
        {"code": {"b": "c2"}},
        {"records": {"a": record(2)}},
        {"records": {}},
    ],
    ids=["resources", "command", "orchestrator", "timeout", "no timeout", "code", "input", "none"],
)
def test_a_change_of_what_it_would_be_built_from_lifts_the_hold(change):
    assert under(held(), **change).state is State.RUNNABLE


def test_a_tick_lifts_the_hold():
    declaration = built("b", freshness=DAILY)
    records = {"b": record(at=YESTERDAY - timedelta(days=1), code="c1")}
    yesterday = fingerprint(declaration, records, now=YESTERDAY)
    hold = held(fingerprint=yesterday)
    assert under(hold, declaration, records, now=YESTERDAY).state is State.FAILED
    assert under(hold, declaration, records).state is State.RUNNABLE


def test_a_tick_lifts_the_hold_of_an_asset_that_does_not_tick_by_itself_too():
    declaration = built("b", "a", freshness=DAILY)
    built_long_ago = record(of={"a": (1, "d1")}, at=YESTERDAY - timedelta(days=1), code="c1")
    records = {"a": record(2, "d2"), "b": built_long_ago}
    hold = held(fingerprint=fingerprint(declaration, records, now=YESTERDAY))
    assert under(hold, declaration, records, now=YESTERDAY).state is State.FAILED
    assert under(hold, declaration, records).state is State.RUNNABLE


@pytest.mark.parametrize(
    "same",
    [
        {"declaration": replace(BASE, timeout_seconds=300.0)},
        {"declaration": replace(BASE, description="words", tags={"a": "b"}, where="moved.py:7")},
        {"records": {"a": record(2, "d1")}},
        {"now": NOW + timedelta(days=9)},
    ],
    ids=["stated timeout", "words", "same content", "time"],
)
def test_what_changes_nothing_about_the_build_does_not_lift_the_hold(same):
    assert under(held(), **same).state is State.FAILED


def test_a_node_that_is_not_stale_is_not_failed():
    records = {"a": record(), "b": record(of={"a": (1, "d1")}, code="c1")}
    assert under(held(), records=records).state is State.FRESH


def test_below_a_failed_node_the_retry_is_named():
    declarations = [source("a"), BASE, built("c", "b")]
    verdict = judged(declarations, RECORDS, CODE, holds={Node("b"): held()})["c"]
    assert verdict.note == "upstream b is failed: exa assets retry b"


def test_ends_over_one_fingerprint_are_counted_together():
    attempt = Attempt(Node("b"), "1", "fp", "", {}, "local", "run")
    one = Hold.after(None, attempt, BuildState.FAILED, "first", NOW)
    two = Hold.after(one, attempt, BuildState.TIMED_OUT, "second", NOW)
    assert (one.failures, two.failures, two.error, two.run_id) == (1, 2, "second", "run")


def test_ends_over_another_fingerprint_are_forgotten():
    former = Hold("old", 5, 2, BuildState.FAILED, "", NOW)
    attempt = Attempt(Node("b"), "1", "new", "", {}, "local")
    found = Hold.after(former, attempt, BuildState.FAILED, "", NOW)
    assert (found.fingerprint, found.failures, found.deaths) == ("new", 1, 0)


def test_deaths_count_in_a_row_and_apart_from_failures():
    attempt = Attempt(Node("b"), "1", "fp", "", {}, "local")
    hold = None
    counted = []
    for how in (BuildState.DIED, BuildState.DIED, BuildState.FAILED, BuildState.DIED):
        hold = Hold.after(hold, attempt, how, "", NOW)
        counted.append((hold.failures, hold.deaths))
    assert counted == [(0, 1), (0, 2), (1, 0), (1, 1)]
