"""What serves in the second seed: ticks, catch-up, what is in flight and what is not polled."""

from platforms import Platform, at
from worlds import source

from examlops_dagster import Schedule, asset, task
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State


def test_a_scheduled_asset_reuses_upstreams_that_are_fresh(platform):
    @asset(deps=["trace"])
    def base(**upstream): ...

    @asset(deps=[base], freshness=Schedule("0 5 * * *", rebuild="always"))
    def at_five(**upstream): ...

    world = platform(source("trace"), base, at_five)
    world.tick()
    assert world.at(5).tick() == ["at_five"]


def test_a_scheduled_task_runs_at_each_tick_though_nothing_is_stale(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def mail(): ...

    world = platform(mail)
    for minute in (10, 20, 30):
        assert world.at(0, minute).tick() == ["mail"]
        assert world.at(0, minute + 5).tick() == []


def test_while_a_job_is_in_flight_its_tick_is_skipped_and_those_of_other_jobs_are_not(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def slow(): ...

    @task(freshness=Schedule("*/10 * * * *"))
    def quick(): ...

    world = platform(slow, quick)
    world.ledger.claim(Node("slow"), "a run that takes long")
    assert world.at(0, 10).tick() == ["quick"]
    assert world.at(0, 20).tick() == ["quick"]
    assert world.state("slow") is State.RUNNING
    world.ledger.release(Node("slow"), "a run that takes long")
    assert world.at(0, 21).tick() == ["slow"]


def test_a_job_that_outlasted_its_tick_waits_for_the_next_one(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def slow():
        clock.advance(minutes=15)

    world = platform(slow)
    clock = world.clock
    assert world.at(0, 10).tick() == ["slow"]
    assert clock() == at(0, 25)
    assert world.tick() == []
    assert world.at(0, 30).tick() == ["slow"]


def test_after_downtime_a_job_catches_up_once_since_its_last_run_is_recorded(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def mail(): ...

    world = platform(mail)
    world.at(0, 10).tick()
    restarted = Platform(world.clock, mail)
    restarted.ledger, restarted.first_seen = world.ledger, world.first_seen
    assert restarted.at(2, 3).tick() == ["mail"]
    assert restarted.tick() == []


def test_no_mail_at_deployment(platform):
    @task(freshness=Schedule("0 6 * * *"))
    def mail(): ...

    world = platform(mail, start=at(12))
    assert world.tick() == []
    assert world.at(6, day=6).tick() == ["mail"]
