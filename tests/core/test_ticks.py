"""Which ticks make a node stale, which it waits for, and the moment of a build."""

from datetime import datetime, timedelta, timezone

import pytest
from situations import DAILY, TODAY_5, TODAY_7, YESTERDAY, read
from worlds import NOW, XY, built, graph_of, judged, record, sensor_of, snapshot, source, task_of

from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.partitions import daily
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge
from examlops_dagster.core.verdicts import State


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


def test_the_moment_of_a_build_is_the_tick_that_it_answers_to_in_the_zone_of_its_schedule():
    declaration = built("a", freshness=Schedule("0 6 * * *", "Asia/Tokyo"))
    judge = Judge(graph_of(declaration), snapshot({"a": record(at=YESTERDAY)}), {})
    assert judge.moment(Node("a")).isoformat() == "2026-01-05T06:00:00+09:00"


def test_the_moment_of_any_other_build_is_now_in_the_zone_of_the_platform():
    judge = Judge(graph_of(built("a")), snapshot(zone="Asia/Tokyo"), {})
    assert judge.moment(Node("a")).isoformat() == "2026-01-05T21:00:00+09:00"
