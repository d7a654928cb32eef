"""Manual in the second seed: never by itself, and it blocks what is below."""

import pytest
from worlds import names, source

from examlops_dagster import Manual, Schedule, asset, task
from examlops_dagster.core.verdicts import State


@pytest.fixture
def pinned(platform):
    """trace -> baseline (Manual) -> features -> report, and beside that reads trace alone."""

    @asset(deps=["trace"], freshness=Manual)
    def baseline(**upstream): ...

    @asset(deps=[baseline])
    def features(**upstream): ...

    @asset(deps=[features, "trace"])
    def report(**upstream): ...

    @asset(deps=["trace"])
    def beside(**upstream): ...

    return platform(source("trace"), baseline, features, report, beside)


def test_a_manual_asset_is_never_updated_by_itself_even_when_stale(pinned):
    assert pinned.tick() == ["beside"]
    assert pinned.state("baseline") is State.WAITING_FOR_REQUEST
    assert pinned.why("baseline")[-1] == "Manual: exa assets materialize baseline"


def test_manual_freshness_blocks_downstream_always_assets_from_auto_updating(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    assert pinned.tick() == ["beside"]
    assert pinned.state("features") is State.WAITING_FOR_UPSTREAM
    assert "upstream baseline is waiting for request" in pinned.why("features")[-1]


def test_manual_blocks_transitively_also_what_another_input_made_stale(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    pinned.tick()
    assert pinned.state("report") is State.WAITING_FOR_UPSTREAM
    assert pinned.count("report") == 1


def test_what_is_blocked_remains_stale_until_the_manual_upstream_is_refreshed(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    for _ in range(3):
        pinned.clock.advance(days=1)
        pinned.tick()
    assert pinned.count("features") == 1
    pinned.materialize("baseline")
    assert pinned.tick() == ["features", "report"]


def test_an_asset_with_freshness_manual_is_refreshed_when_explicitly_requested(pinned):
    assert names(pinned.materialize("baseline").rebuilt) == ["trace", "baseline"]


def test_an_asset_with_freshness_manual_is_refreshed_when_a_targeted_downstream_requires_it(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    assert names(pinned.materialize("report").rebuilt) == ["baseline", "features", "report"]


def test_a_fresh_manual_asset_blocks_nothing(pinned):
    pinned.materialize("baseline")
    assert sorted(pinned.tick()) == ["beside", "features", "report"]


def test_a_manual_task_runs_by_request_alone(platform):
    @task(freshness=Manual)
    def mail(): ...

    world = platform(mail)
    world.at(0, day=20)
    assert world.tick() == []
    assert names(world.materialize("mail").rebuilt) == ["mail"]


def test_a_tick_never_builds_a_manual_upstream(platform):
    @asset(deps=["trace"], freshness=Manual)
    def baseline(**upstream): ...

    @asset(deps=[baseline], freshness=Schedule("0 5 * * *", rebuild="always"))
    def report(**upstream): ...

    world = platform(source("trace"), baseline, report)
    assert world.at(5).tick() == []
    assert world.state("report") is State.WAITING_FOR_UPSTREAM
