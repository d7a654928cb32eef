"""Schedule in the second seed: the window that a cron tick opens."""

import pytest
from platforms import at
from worlds import names, source

from examlops_dagster import Schedule, asset
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State


@pytest.fixture
def daily_report(platform):
    """The two assets of the seed."""

    @asset(freshness=Schedule("0 5 * * *"))
    def prices() -> dict[str, str]:
        return {"ok": "yes"}

    @asset(inputs={"prices": prices}, freshness=Schedule("0 6 * * *"))
    def daily_report(prices: dict[str, str]) -> dict[str, str]:
        return {"report": prices["ok"]}

    return platform(prices, daily_report)


def test_before_its_first_tick_a_scheduled_asset_waits(daily_report):
    daily_report.at(4, 59)
    assert daily_report.tick() == []
    assert daily_report.state("prices") is State.WAITING_FOR_SCHEDULE
    assert daily_report.why("prices")[-1] == "next tick 2026-01-05 05:00 UTC"


def test_at_5_prices_becomes_eligible(daily_report):
    daily_report.at(5)
    assert daily_report.state("prices") is State.RUNNABLE
    assert daily_report.tick() == ["prices"]


def test_a_downstream_asset_can_be_stale_at_5_10_and_still_not_runnable_until_its_6_00_schedule(
    daily_report,
):
    assert daily_report.at(5).tick() == ["prices"]
    assert daily_report.at(5, 10).tick() == []
    assert daily_report.state("daily_report").value == "stale_waiting_for_schedule"
    assert daily_report.at(6).state("daily_report").value == "runnable_stale"
    assert daily_report.tick() == ["daily_report"]
    assert daily_report.value("daily_report") == {"report": "yes"}


def test_prices_that_come_out_equal_leave_daily_report_fresh(daily_report):
    daily_report.at(6).tick()
    assert daily_report.at(5, day=6).tick() == ["prices"]
    assert daily_report.state("daily_report") is State.FRESH
    assert daily_report.at(6, day=6).tick() == []


@pytest.fixture
def moving(platform):
    """The seed's two assets, with prices that differ each time."""
    days = iter(range(100))

    @asset(freshness=Schedule("0 5 * * *"))
    def prices():
        return {"day": next(days)}

    @asset(inputs={"prices": prices}, freshness=Schedule("0 6 * * *"))
    def daily_report(prices):
        return {"report": prices["day"]}

    world = platform(prices, daily_report, start=at(7, day=4))
    world.materialize("daily_report")
    return world


def test_after_prices_updates_daily_report_is_stale_waiting_for_schedule_before_6(moving):
    moving.at(5)
    assert moving.tick() == ["prices"]
    moving.at(5, 10)
    assert moving.tick() == []
    verdict = moving.status()[Node("daily_report")]
    assert verdict.state.value == "stale_waiting_for_schedule"
    assert verdict.why == ("upstream prices changed (1 → 2)", "next tick 2026-01-05 06:00 UTC")


def test_at_6_if_upstream_is_settled_daily_report_becomes_runnable_stale(moving):
    moving.at(5).tick()
    moving.at(6)
    assert moving.state("daily_report").value == "runnable_stale"
    assert moving.tick() == ["daily_report"]
    assert moving.value("daily_report") == {"report": 1}


def test_at_6_it_waits_while_its_upstream_is_not_settled(moving):
    moving.ledger.claim(Node("prices"), "somebody builds it")
    moving.at(6)
    assert moving.state("daily_report") is State.WAITING_FOR_UPSTREAM
    moving.ledger.release(Node("prices"), "somebody builds it")
    assert moving.tick() == ["prices", "daily_report"]


def test_an_asset_with_freshness_schedule_becomes_runnable_only_when_its_cron_window_opens(moving):
    moving.materialize("prices", force=True)
    for hour in (8, 12, 23):
        moving.at(hour, day=4)
        assert moving.state("daily_report") is State.WAITING_FOR_SCHEDULE
    moving.at(6)
    assert moving.state("daily_report") is State.RUNNABLE


def test_a_tick_alone_rebuilds_no_asset_with_upstreams(daily_report):
    daily_report.at(6, 30, day=4)
    daily_report.materialize("daily_report")
    for day in (5, 6, 7):
        daily_report.at(7, day=day).tick()
    assert daily_report.count("prices") == 4
    assert daily_report.count("daily_report") == 1


def test_a_tick_rebuilds_an_asset_that_says_always(platform):
    @asset(deps=["trace"], freshness=Schedule("0 6 * * *", rebuild="always"))
    def hourly_copy(**upstream): ...

    world = platform(source("trace"), hourly_copy)
    for day in (5, 6):
        assert world.at(6, day=day).tick() == ["hourly_copy"]
        assert world.at(7, day=day).tick() == []


def test_missed_ticks_count_once(daily_report):
    daily_report.at(7)
    daily_report.tick()
    daily_report.at(7, day=15)
    assert daily_report.tick() == ["prices"]
    assert daily_report.tick() == []


def test_a_scheduled_asset_can_be_built_at_once_by_asking(daily_report):
    outcome = daily_report.materialize("daily_report")
    assert names(outcome.rebuilt) == ["prices", "daily_report"]


def test_cron_ticks_are_evaluated_in_the_declared_time_zone(platform):
    @asset(freshness=Schedule("0 5 * * *", timezone="Asia/Tokyo"))
    def tokyo(): ...

    @asset(freshness=Schedule("0 5 * * *"))
    def berlin(): ...

    world = platform(tokyo, berlin, start=at(12, day=4), zone="Europe/Berlin")
    assert world.at(20, day=4).tick() == ["tokyo"]
    assert world.at(3, 59).tick() == []
    assert world.at(4).tick() == ["berlin"]
