"""The states of the second seed, and one pass over nodes of each freshness."""

from worlds import source

from examlops_dagster import Manual, Schedule, asset
from examlops_dagster.core.verdicts import State
from examlops_dagster.errors import AssetBuildError


def test_the_states_are_those_of_the_seed_and_two_more():
    assert {state.value for state in State} == {
        "fresh",
        "stale_waiting_for_schedule",
        "stale_waiting_for_upstream",
        "runnable_stale",
        "running",
        "failed",
        "historical",
        "stale_waiting_for_request",
        "undeclared",
    }


def test_what_is_no_longer_declared_is_historical(chain):
    chain.tick()
    chain.declare(source("trace"))
    assert chain.state("a") is State.HISTORICAL


def test_one_pass_discovers_what_is_stale_and_builds_it_when_eligible(platform):
    @asset(deps=["trace"])
    def always(**upstream): ...

    @asset(deps=["trace"], freshness=Manual)
    def manual(**upstream): ...

    @asset(deps=["trace"], freshness=Schedule("0 5 * * *"))
    def scheduled(**upstream): ...

    world = platform(source("trace"), always, manual, scheduled)
    assert world.tick() == ["always"]
    assert world.states() == {
        "trace": "fresh",
        "always": "fresh",
        "manual": "waiting for request",
        "scheduled": "waiting for schedule",
    }
    assert world.at(5).tick() == ["scheduled"]


def test_a_failure_is_an_asset_build_error_with_the_last_line(platform):
    @asset
    def broken():
        raise ValueError("no luck")

    world = platform(broken)
    [error] = world.materialize("broken").failed.values()
    assert isinstance(error, AssetBuildError)
    assert world.why("broken") == ("never materialized", "ValueError: no luck")
