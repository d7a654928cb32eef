"""Always in the second seed: built as soon as it is stale and its upstreams are settled."""

from worlds import source, step_names

from examlops_dagster import Schedule, asset, task
from examlops_dagster.core.verdicts import State


def test_always_assets_are_built_without_anybody_asking(chain):
    assert chain.tick() == ["a", "b", "c"]
    assert chain.tick() == []


def test_any_upstream_change_cascades_through_always_assets(chain):
    chain.tick()
    chain.change_source("trace")
    assert chain.tick() == ["a", "b", "c"]
    assert set(chain.states().values()) == {"fresh"}


def test_an_asset_with_freshness_always_becomes_runnable_immediately_when_stale_and_upstream_ready(
    chain,
):
    chain.tick()
    chain.change_source("trace")
    assert [chain.state(name) for name in "abc"] == [State.RUNNABLE] * 3
    assert step_names(chain.due()) == ["a", "b", "c"]


def test_staleness_is_computed_from_provenance_and_not_from_time(chain):
    chain.tick()
    chain.at(0, day=30)
    assert set(chain.states().values()) == {"fresh"}


def test_always_nodes_are_kept_fresh_without_a_tick_above_or_below_them(platform):
    @asset(freshness=Schedule("0 5 * * *"))
    def above(): ...

    @asset(deps=["trace", above])
    def between(**upstream): ...

    @task(deps=[between], freshness=Schedule("0 6 * * *"))
    def below(**upstream): ...

    world = platform(source("trace"), above, between, below)
    assert world.at(6).tick() == ["above", "between", "below"]
    world.at(7).change_source("trace")
    assert world.tick() == ["between"]
