"""Partitions in the second seed: each is stale and eligible by itself."""

import pytest
from platforms import at
from worlds import step_names

from examlops_dagster import Manual, Schedule, asset, daily, partitions
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State


@pytest.fixture
def tickers(platform):
    """The seed's partitioned asset, and a report for each of its keys."""
    broken = set()

    @asset(
        partitions={"ticker": partitions(["AAPL", "MSFT", "GOOG"])},
        freshness=Schedule("0 5 * * *"),
    )
    def fetch_prices(ticker: str) -> dict[str, str]:
        if ticker in broken:
            raise ValueError(f"no {ticker}")
        return {"ticker": ticker, "day": str(world.clock().day)}

    @asset(
        partitions={"ticker": partitions(["AAPL", "MSFT", "GOOG"])},
        inputs={"price": fetch_prices},
    )
    def report(ticker, price):
        return price

    world = platform(fetch_prices, report)
    world.broken = broken
    return world


def test_at_5_each_stale_partition_becomes_independently_eligible(tickers):
    tickers.materialize(Node("fetch_prices", "MSFT"))
    tickers.at(5)
    assert [tickers.state("fetch_prices", t) for t in ("AAPL", "MSFT", "GOOG")] == (
        [State.RUNNABLE] * 3
    )
    tickers.at(5, 1)
    tickers.materialize(Node("fetch_prices", "MSFT"))
    assert tickers.state("fetch_prices", "MSFT") is State.FRESH
    assert tickers.state("fetch_prices", "AAPL") is State.RUNNABLE


def test_one_run_may_build_many_runnable_partitions_at_once(tickers):
    tickers.at(5)
    assert step_names(tickers.due()) == [
        *(f"fetch_prices[{t}]" for t in ("AAPL", "MSFT", "GOOG")),
        *(f"report[{t}]" for t in ("AAPL", "MSFT", "GOOG")),
    ]


def test_partitioned_assets_evaluate_staleness_and_eligibility_per_partition(tickers):
    tickers.broken.add("MSFT")
    tickers.at(5).tick()
    assert tickers.state("fetch_prices", "MSFT") is State.FAILED
    assert tickers.state("report", "MSFT") is State.WAITING_FOR_UPSTREAM
    for ticker in ("AAPL", "GOOG"):
        assert tickers.state("fetch_prices", ticker) is State.FRESH
        assert tickers.state("report", ticker) is State.FRESH


def test_a_bad_partition_fails_alone_and_is_tried_again_at_its_own_tick(tickers):
    tickers.broken.add("MSFT")
    tickers.at(5).tick()
    tickers.broken.clear()
    assert tickers.at(9).tick() == []
    assert set(tickers.at(5, day=6).tick()) == {
        f"{name}[{t}]" for name in ("fetch_prices", "report") for t in ("AAPL", "MSFT", "GOOG")
    }


def test_manual_freshness_holds_per_partition_too(platform):
    space = {"ticker": partitions(["AAPL", "MSFT"])}

    @asset(partitions=space, freshness=Manual)
    def pinned(ticker):
        return ticker

    @asset(partitions=space, deps=[pinned])
    def below(ticker, **upstream): ...

    world = platform(pinned, below)
    world.materialize(Node("pinned", "AAPL"))
    assert world.tick() == ["below[AAPL]"]
    assert world.state("below", "MSFT") is State.WAITING_FOR_UPSTREAM


def test_a_partition_of_a_time_window_ticks_only_until_its_first_success_after_its_end(platform):
    @asset(partitions={"day": daily("2026-01-03")}, freshness=Schedule("0 5 * * *"))
    def jobs(day):
        return day

    world = platform(jobs, start=at(0))
    assert world.at(5).tick() == ["jobs[2026-01-03]", "jobs[2026-01-04]"]
    assert world.at(0, 1, day=6).tick() == []
    assert world.state("jobs", "2026-01-05") is State.WAITING_FOR_SCHEDULE
    assert world.at(5, day=6).tick() == ["jobs[2026-01-05]"]
