from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from worlds import (
    NOW,
    built,
    graph_of,
    judged,
    record,
    sensor_of,
    snapshot,
    source,
    task_of,
)

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.graph import Nodes
from examlops_dagster.core.partitions import all_keys, daily, hourly, keys, partitions
from examlops_dagster.core.seams import Attempt, BuildState, Claim, Hold, Node
from examlops_dagster.core.status import Judge, State, first_sights

DAILY = Schedule("0 6 * * *")
YESTERDAY = NOW - timedelta(days=1)
TODAY_5 = NOW.replace(hour=5)
TODAY_7 = NOW.replace(hour=7)
CLAIM = Claim("token", "host", 1, "", NOW, NOW)
XY = {"key": partitions(["x", "y"])}


def state(verdict):
    return verdict.state, verdict.shown


def read(node, *edges):
    """Records of upstreams at v1, and of a node that was built from them."""
    return {edge: record() for edge in edges} | {node: record(of=dict.fromkeys(edges, (1, "d1")))}


# reasons


def test_reason_1_it_was_never_materialized():
    verdict = judged([built("a")])["a"]
    assert verdict.why == ("never materialized",)
    assert verdict.version == 0


def test_reason_2_its_code_changed():
    verdict = judged([built("a")], {"a": record(code="old")}, {"a": "new"})["a"]
    assert verdict.why == ("code changed",)


@pytest.mark.parametrize(("recorded", "loaded"), [("x", {"a": "x"}), (None, {"a": "x"}), ("x", {})])
def test_code_that_is_equal_or_unknown_is_no_reason(recorded, loaded):
    assert judged([built("a")], {"a": record(code=recorded)}, loaded)["a"].state is State.FRESH


def test_reason_3_an_upstream_was_declared_since():
    verdict = judged([source("a"), built("b", "a")], {"a": record(), "b": record()})["b"]
    assert verdict.why == ("upstream a not recorded at build",)


def test_reason_4_an_upstream_changed():
    records = {"a": record(4), "b": record(of={"a": (3, "d3")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (3 → 4)",)


def test_an_upstream_with_a_new_number_and_the_same_content_is_no_reason():
    records = {"a": record(5, "same"), "b": record(of={"a": (3, "same")})}
    assert judged([source("a"), built("b", "a")], records)["b"].state is State.FRESH


def test_an_upstream_with_the_same_number_and_new_content_is_a_reason():
    records = {"a": record(3, "new"), "b": record(of={"a": (3, "old")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (3 → 3)",)


def test_reason_5_an_upstream_was_removed():
    verdict = judged([built("b")], {"b": record(of={"a": (1, "d1")})})["b"]
    assert verdict.why == ("upstream a removed",)


def test_reason_6_a_tick_passed():
    verdict = judged([built("a", freshness=DAILY)], {"a": record(at=TODAY_5)})["a"]
    assert verdict.why == ("tick 2026-01-05 06:00 passed",)


def test_reason_7_an_upstream_is_stale():
    verdicts = judged([source("a"), built("b", "a"), built("c", "b")], read("c", "b"))
    assert verdicts["c"].why == ("upstream b is stale",)


def test_all_reasons_are_given():
    declarations = [source("a"), built("b", "a"), built("new"), built("c", "b", "a", "new")]
    records = {
        "a": record(2),
        "b": record(of={"a": (1, "d1")}),
        "new": record(),
        "c": record(of={"b": (1, "d1"), "a": (1, "d1"), "gone": (1, "d1")}, code="old"),
    }
    verdict = judged(declarations, records, {"c": "new"})["c"]
    assert verdict.why == (
        "code changed",
        "upstream a changed (1 → 2)",
        "upstream new not recorded at build",
        "upstream gone removed",
        "upstream b is stale",
    )


def test_an_upstream_that_is_a_dep_and_an_input_gives_its_reasons_once():
    records = {"a": record(2), "b": record(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a", Upstream("a", "value"))], records)["b"]
    assert verdict.why == ("upstream a changed (1 → 2)",)


def test_what_was_built_from_what_exists_is_fresh():
    verdicts = judged([source("a"), built("b", "a")], read("b", "a"))
    assert [v.state for v in verdicts.values()] == [State.FRESH] * 4


# states and their words


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


def test_below_a_runnable_node_is_runnable_too():
    verdicts = judged([built("a"), built("b", "a"), built("c", "b")])
    assert [verdicts[n].state for n in "abc"] == [State.RUNNABLE] * 3


def test_an_unadopted_source_is_settled():
    verdicts = judged([source("a"), built("b", "a")])
    assert [verdicts[n].state for n in "ab"] == [State.RUNNABLE] * 2


def test_an_unadopted_source_settles_even_where_it_is_manual():
    assert judged([source("a", freshness=Manual), built("b", "a")])["b"].state is State.RUNNABLE


def test_a_name_that_only_the_command_line_refers_to_is_undeclared():
    verdict = judged([source("b", upstreams=(Upstream("a b"),))])["a b"]
    assert state(verdict) == (State.UNDECLARED, "undeclared")
    assert verdict.note == "declare it: exa assets declare a b"


def test_below_an_undeclared_name_the_command_is_named():
    verdict = judged([source("b", upstreams=(Upstream("a"),))])["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.why[-1] == "upstream a is undeclared: exa assets declare a"


def test_a_record_that_nobody_declares_is_historical():
    verdicts = judged([built("a")], {"a": record(), "old": record(7)})
    assert state(verdicts["old"]) == (State.HISTORICAL, "historical")
    assert (verdicts["old"].version, verdicts["old"].why) == (7, ())


def test_a_partition_that_is_gone_is_historical():
    verdicts = judged([built("a", space=XY)], {Node("a", "z"): record()})
    assert verdicts[Node("a", "z")].state is State.HISTORICAL


def test_a_plain_dagster_asset_that_was_never_materialized_waits_for_request():
    external = Declaration("plain", NodeType.EXTERNAL)
    verdicts = judged([external, built("b", "plain")])
    assert verdicts["plain"].state is State.WAITING_FOR_REQUEST
    assert verdicts["b"].note == (
        "upstream plain is waiting for request: an asset of plain Dagster: materialize it there"
    )


def test_a_plain_dagster_asset_that_exists_is_fresh():
    external = Declaration("plain", NodeType.EXTERNAL)
    assert judged([external], {"plain": record()})["plain"].state is State.FRESH


# running


@pytest.mark.parametrize(
    "how", [{"claims": {Node("a"): CLAIM}}, {"queued": frozenset([Node("a")])}], ids=str
)
@pytest.mark.parametrize("records", [{}, {"a": record()}], ids=["stale", "fresh"])
def test_what_is_claimed_or_queued_is_running(how, records):
    assert state(judged([built("a")], records, **how)["a"]) == (State.RUNNING, "running")


def test_below_a_running_node_waits_for_it():
    verdict = judged([built("a"), built("b", "a")], claims={Node("a"): CLAIM})["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.note == "upstream a is running"


def test_running_keeps_the_reasons():
    assert judged([built("a")], claims={Node("a"): CLAIM})["a"].why == ("never materialized",)


# Manual


def test_a_stale_manual_node_waits_for_request_with_the_command():
    verdict = judged([built("a", freshness=Manual)])["a"]
    assert verdict.state is State.WAITING_FOR_REQUEST
    assert verdict.why == ("never materialized", "Manual: exa assets materialize a")


def test_a_fresh_manual_node_is_fresh():
    assert judged([built("a", freshness=Manual)], {"a": record()})["a"].state is State.FRESH


def test_a_stale_manual_node_blocks_what_is_below_transitively():
    declarations = [built("a", freshness=Manual), built("b", "a"), built("c", "b")]
    verdicts = judged(declarations, {"a": record(code="old")}, {"a": "new"})
    assert [verdicts[n].state for n in "bc"] == [State.WAITING_FOR_UPSTREAM] * 2
    assert verdicts["b"].note == "upstream a is waiting for request: exa assets materialize a"
    assert verdicts["c"].note == "upstream b is waiting for upstream: exa assets materialize b"


def test_a_fresh_manual_node_does_not_block():
    declarations = [built("a", freshness=Manual), built("b", "a")]
    assert judged(declarations, {"a": record()})["b"].state is State.RUNNABLE


# Schedule


def test_a_root_is_made_stale_by_its_tick_and_may_run_then():
    verdict = judged([built("a", freshness=DAILY)], {"a": record(at=YESTERDAY)})["a"]
    assert verdict.state is State.RUNNABLE


def test_a_root_built_after_its_tick_is_fresh():
    verdict = judged([built("a", freshness=DAILY)], {"a": record(at=TODAY_7)})["a"]
    assert verdict.state is State.FRESH


def test_a_tick_at_the_very_end_of_the_build_is_not_later():
    at_6 = NOW.replace(hour=6)
    assert judged([built("a", freshness=DAILY)], {"a": record(at=at_6)})["a"].state is State.FRESH


def test_missed_ticks_count_once():
    records = {"a": record(at=NOW - timedelta(days=30))}
    verdict = judged([built("a", freshness=DAILY)], records)["a"]
    assert verdict.why == ("tick 2026-01-05 06:00 passed",)


def test_an_asset_with_upstreams_is_not_made_stale_by_a_tick():
    records = read("b", "a") | {"b": record(of={"a": (1, "d1")}, at=YESTERDAY)}
    assert (
        judged([source("a"), built("b", "a", freshness=DAILY)], records)["b"].state is State.FRESH
    )


def test_rebuild_always_makes_it_stale_by_the_tick():
    always = Schedule("0 6 * * *", rebuild="always")
    records = read("b", "a") | {"b": record(of={"a": (1, "d1")}, at=YESTERDAY)}
    verdict = judged([source("a"), built("b", "a", freshness=always)], records)["b"]
    assert verdict.why == ("tick 2026-01-05 06:00 passed",)


@pytest.mark.parametrize("declare", [sensor_of, task_of])
def test_sensors_and_tasks_tick(declare):
    records = {"a": record(at=YESTERDAY)}
    verdict = judged([declare("a", freshness=DAILY)], records)["a"]
    assert verdict.why == ("tick 2026-01-05 06:00 passed",)


def test_a_task_with_upstreams_ticks_too():
    records = read("b", "a") | {"b": record(of={"a": (1, "d1")}, at=YESTERDAY)}
    verdict = judged([source("a"), task_of("b", "a", freshness=DAILY)], records)["b"]
    assert verdict.state is State.RUNNABLE


@pytest.mark.parametrize("freshness", [Always, Manual])
def test_without_a_schedule_nothing_ticks(freshness):
    records = {"a": record(at=NOW - timedelta(days=999))}
    assert judged([built("a", freshness=freshness)], records)["a"].state is State.FRESH


def test_a_stale_node_waits_for_its_next_tick_which_is_shown_in_its_zone():
    schedule = Schedule("0 6 * * *", "Europe/Berlin")
    records = {"a": record(2), "b": record(of={"a": (1, "d1")}, at=TODAY_7)}
    verdict = judged([source("a"), built("b", "a", freshness=schedule)], records)["b"]
    assert verdict.state is State.WAITING_FOR_SCHEDULE
    assert verdict.why[-1] == "next tick 2026-01-06 06:00 Europe/Berlin"


def test_a_schedule_without_a_zone_takes_that_of_the_platform():
    records = {"a": record(at=NOW.replace(hour=5, minute=30))}
    there = judged([built("a", freshness=DAILY)], records, zone="Europe/Berlin")["a"]
    assert there.state is State.FRESH  # 06:00 in Berlin was 05:00 UTC
    assert judged([built("a", freshness=DAILY)], records)["a"].state is State.RUNNABLE


def test_a_stale_node_may_run_once_its_tick_has_come():
    records = {"a": record(2), "b": record(of={"a": (1, "d1")}, at=TODAY_5)}
    verdict = judged([source("a"), built("b", "a", freshness=DAILY)], records)["b"]
    assert verdict.state is State.RUNNABLE


@pytest.mark.parametrize("declare", [built, sensor_of, task_of])
def test_a_scheduled_node_that_was_never_built_waits_for_a_tick_after_it_was_first_seen(declare):
    declaration = declare("a", freshness=DAILY)
    never = judged([declaration])["a"]
    after = judged([declaration], first_seen={Node("a"): TODAY_7})["a"]
    before = judged([declaration], first_seen={Node("a"): TODAY_5})["a"]
    assert [v.state for v in (never, after, before)] == [
        State.WAITING_FOR_SCHEDULE,
        State.WAITING_FOR_SCHEDULE,
        State.RUNNABLE,
    ]


def test_a_scheduled_upstream_that_waits_blocks():
    verdict = judged([built("a", freshness=DAILY), built("b", "a")])["b"]
    assert verdict.note == "upstream a is waiting for schedule"


def test_a_partition_of_a_time_window_ticks_until_its_first_success_after_the_window():
    space = {"day": daily("2026-01-03")}
    declaration = built("a", space=space, freshness=DAILY)
    records = {
        Node("a", "2026-01-03"): record(at=datetime(2026, 1, 4, tzinfo=timezone.utc)),
        Node("a", "2026-01-04"): record(at=datetime(2026, 1, 4, 7, tzinfo=timezone.utc)),
    }
    verdicts = judged([declaration], records)
    assert verdicts[Node("a", "2026-01-03")].state is State.FRESH
    assert verdicts[Node("a", "2026-01-04")].why == ("tick 2026-01-05 06:00 passed",)


def test_a_partition_without_a_window_ticks_for_ever():
    declaration = built("a", space=XY, freshness=DAILY)
    verdicts = judged([declaration], {Node("a", "x"): record(at=YESTERDAY)})
    assert verdicts[Node("a", "x")].why == ("tick 2026-01-05 06:00 passed",)


# holds


BASE = built("b", "a", resources={"gpus": 1}, command=("run.sh",), retries=1)
RECORDS = {"a": record()}
CODE = {"b": "c1"}


def fingerprint(declaration=BASE, records=None, code=None, **more):
    now = snapshot(RECORDS if records is None else records, **more)
    return Judge(graph_of(source("a"), declaration), now, code or CODE).fingerprint(Node("b"))


def held(failures=2, deaths=0, how=BuildState.FAILED, error="ValueError: no", **more):
    return Hold(more.pop("fingerprint", None) or fingerprint(), failures, deaths, how, error, NOW)


def under(hold, declaration=BASE, records=None, code=None, **more):
    found = {"a": record()} if records is None else records
    holds = {Node("b"): hold}
    return judged([source("a"), declaration], found, code or CODE, holds=holds, **more)["b"]


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


# precedence


def test_undeclared_goes_before_running():
    declarations = [source("b", upstreams=(Upstream("a"),))]
    verdict = judged(declarations, claims={Node("a"): CLAIM})["a"]
    assert verdict.state is State.UNDECLARED


def test_running_goes_before_failed():
    assert under(held(), claims={Node("b"): CLAIM}).state is State.RUNNING


def test_failed_goes_before_waiting_for_schedule():
    declaration = replace(BASE, freshness=DAILY)
    assert under(held(fingerprint=fingerprint(declaration)), declaration).state is State.FAILED


def test_waiting_for_schedule_goes_before_waiting_for_upstream():
    verdict = judged([built("a", freshness=Manual), built("b", "a", freshness=DAILY)])["b"]
    assert verdict.state is State.WAITING_FOR_SCHEDULE


def test_waiting_for_upstream_goes_before_waiting_for_request():
    verdict = judged([built("a", freshness=Manual), built("b", "a", freshness=Manual)])["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM


# records made outside


def outside(**more):
    return record(build_id="", **more)


def test_rule_4_holds_for_a_record_made_outside_which_says_so():
    records = {"a": record(2), "b": outside(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (1 → 2)", "inputs not recorded")


def test_rule_4_says_so_where_something_else_holds_it_up_too():
    records = {"a": record(2), "b": outside(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a", freshness=Manual)], records)["b"]
    assert verdict.note == "inputs not recorded; Manual: exa assets materialize b"


def test_rule_2_does_not_hold_for_a_record_made_outside():
    verdict = judged([built("a")], {"a": outside(code="old")}, {"a": "new"})["a"]
    assert verdict.state is State.FRESH


@pytest.mark.parametrize("of", [{}, {"other": (1, "d1")}])
def test_rule_3_does_not_hold_for_a_record_made_outside(of):
    declarations = [source("a"), source("other"), built("b", "a", *of)]
    records = {"a": record(), "other": record(), "b": outside(of=of)}
    assert judged(declarations, records)["b"].state is State.FRESH


def test_a_record_whose_inputs_nobody_knows_is_fresh():
    records = {"a": record(), "b": replace(outside(), built_from=None)}
    assert judged([source("a"), built("b", "a")], records)["b"].state is State.FRESH


# partitions


def test_every_rule_is_judged_for_each_partition():
    records = {
        Node("a", "x"): record(2),
        Node("a", "y"): record(),
        Node("b", "x"): record(of={Node("a", "x"): (1, "d1")}),
        Node("b", "y"): record(of={Node("a", "y"): (1, "d1")}),
    }
    verdicts = judged([built("a", space=XY), built("b", "a", space=XY)], records)
    assert verdicts[Node("b", "x")].why == ("upstream a[x] changed (1 → 2)",)
    assert verdicts[Node("b", "y")].state is State.FRESH


def test_a_hold_is_of_one_partition():
    declaration = built("a", space=XY)
    judge = Judge(graph_of(declaration), snapshot(), {})
    hold = held(fingerprint=judge.fingerprint(Node("a", "x")))
    verdicts = judged([declaration], holds={Node("a", "x"): hold})
    assert verdicts[Node("a", "x")].state is State.FAILED
    assert verdicts[Node("a", "y")].state is State.RUNNABLE


def test_many_partitions_of_one_upstream_are_one_reason():
    verdict = judged([built("a", space=XY), built("b", "a")])["b"]
    assert verdict.why == ("never materialized", "upstream a[x] is stale (+1 more)")


def test_a_partition_that_came_since_is_a_reason():
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", "x"): (1, "d1")}),
    }
    verdict = judged([built("a", space=XY), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a[y] not recorded at build",)


def test_a_partition_that_is_gone_is_a_reason():
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", k): (1, "d1") for k in "xyz"}),
    }
    verdict = judged([built("a", space=XY), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a[z] removed",)


def test_keys_that_were_never_built_are_waited_for_or_skipped():
    wait, skip = (
        Upstream("a", None, all_keys("a", missing=missing)) for missing in ("wait", "skip")
    )
    a = built("a", space=XY, freshness=Manual)
    records = {Node("a", "x"): record(), "b": record(of={Node("a", "x"): (1, "d1")})}
    assert judged([a, built("b", wait)], records)["b"].state is State.WAITING_FOR_UPSTREAM
    assert judged([a, built("b", skip)], records)["b"].state is State.FRESH


def test_a_skipped_key_that_was_built_since_is_a_reason():
    skip = Upstream("a", None, all_keys("a", missing="skip"))
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", "x"): (1, "d1")}),
    }
    verdict = judged([built("a", space=XY), built("b", skip)], records)["b"]
    assert verdict.why == ("upstream a[y] not recorded at build",)


def test_a_key_that_does_not_exist_is_waited_for():
    edge = Upstream("a", None, keys("a", lambda key: [key, "nowhere"]))
    records = {Node("a", k): record() for k in "xy"}
    verdict = judged([built("a", space=XY), built("b", edge, space=XY)], records)[Node("b", "x")]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.note == "upstream a[nowhere] does not exist"


def test_two_mappings_of_one_upstream_are_both_judged():
    one = Upstream("a", None, keys("a", lambda key: ["x"]))
    other = Upstream("a", "value", keys("a", lambda key: ["y"]))
    records = {Node("a", "x"): record(2), Node("a", "y"): record(2)}
    reads = {Node("a", k): (1, "d1") for k in "xy"}
    verdict = judged(
        [built("a", space=XY), built("b", one, other)], {**records, "b": record(of=reads)}
    )
    assert verdict["b"].why == ("upstream a[x] changed (1 → 2) (+1 more)",)


def test_a_day_is_stale_by_its_own_hours_alone():
    hours, days = {"hour": hourly("2026-01-03")}, {"day": daily("2026-01-03")}
    declarations = [built("a", space=hours), built("b", "a", space=days)]
    ran = [f"2026-01-0{d}-{h:02}:00" for d in (3, 4) for h in range(24)]
    ran += [f"2026-01-05-{h:02}:00" for h in range(12)]
    records = {Node("a", hour): record() for hour in ran}
    for day in ("2026-01-03", "2026-01-04"):
        of = {Node("a", f"{day}-{h:02}:00"): (1, "d1") for h in range(24)}
        records[Node("b", day)] = record(of=of)
    records[Node("a", "2026-01-04-07:00")] = record(2)
    verdicts = judged(declarations, records)
    assert verdicts[Node("b", "2026-01-03")].state is State.FRESH
    assert verdicts[Node("b", "2026-01-04")].why == (
        "upstream a[2026-01-04-07:00] changed (1 → 2)",
    )


def test_an_hour_of_today_waits_for_its_day():
    hours, days = {"hour": hourly("2026-01-05")}, {"day": daily("2026-01-04")}
    declarations = [built("a", space=days), built("b", "a", space=hours)]
    verdict = judged(declarations, {Node("a", "2026-01-04"): record()})[
        Node("b", "2026-01-05-03:00")
    ]
    assert verdict.note == "upstream a[2026-01-05] does not exist"


# what automation sees


def sights(declaration, seen=None):
    found = first_sights(Nodes(graph_of(declaration), snapshot()), seen or {}, NOW)
    return {str(node): moment for node, moment in found.items()}


def test_a_scheduled_node_counts_as_seen_from_now_on():
    assert sights(built("a", freshness=DAILY)) == {"a": NOW}


def test_what_was_seen_is_not_seen_anew():
    assert sights(built("a", freshness=DAILY), {Node("a"): YESTERDAY}) == {}


def test_what_has_no_schedule_is_not_noted():
    assert sights(built("a")) == {}


def test_the_windows_of_an_asset_that_is_new_count_from_now_on():
    declaration = built("a", freshness=DAILY, space={"day": daily("2026-01-03")})
    assert sights(declaration) == {"a[2026-01-03]": NOW, "a[2026-01-04]": NOW}


def test_a_window_of_an_asset_that_was_seen_before_counts_from_its_end_on():
    declaration = built("a", freshness=DAILY, space={"day": daily("2026-01-03")})
    seen = {Node("a", "2026-01-03"): datetime(2026, 1, 4, 3, tzinfo=timezone.utc)}
    assert sights(declaration, seen) == {"a[2026-01-04]": datetime(2026, 1, 5, tzinfo=timezone.utc)}


# moments


def test_the_moment_of_a_build_is_the_tick_that_it_answers_to_in_the_zone_of_its_schedule():
    declaration = built("a", freshness=Schedule("0 6 * * *", "Asia/Tokyo"))
    judge = Judge(graph_of(declaration), snapshot({"a": record(at=YESTERDAY)}), {})
    assert judge.moment(Node("a")).isoformat() == "2026-01-05T06:00:00+09:00"


def test_the_moment_of_any_other_build_is_now_in_the_zone_of_the_platform():
    judge = Judge(graph_of(built("a")), snapshot(zone="Asia/Tokyo"), {})
    assert judge.moment(Node("a")).isoformat() == "2026-01-05T21:00:00+09:00"
