"""Sensors in the second seed."""

import pytest
from platforms import at
from worlds import names

from examlops_dagster import Schedule, asset, sensor
from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.verdicts import State


@pytest.fixture
def inbox(platform):
    """The seed's sensor; ``says`` holds what it is going to return."""
    says = [(True, ["a.csv", "b.csv"])]

    @sensor(freshness=Schedule("*/5 * * * *"))
    def inbox_files() -> tuple[bool, list[str]]:
        return says[-1]

    @asset(inputs={"paths": inbox_files})
    def ingest_paths(paths: tuple[bool, list[str]]) -> list[dict[str, str]]:
        got.append(paths)
        return [{"path": path} for path in paths[1]]

    got = []
    world = platform(inbox_files, ingest_paths)
    world.says, world.got = says, got
    return world


def test_a_sensor_with_freshness_schedule_records_observations_on_its_cron_cadence(inbox):
    for minute in (5, 10, 15):
        assert "inbox_files" in inbox.at(0, minute).tick()
        assert inbox.at(0, minute + 3).tick() == []
    ended = [(a.node.asset, state) for a, state in inbox.ledger.attempts]
    assert ended.count(("inbox_files", BuildState.SUCCEEDED)) == 3
    assert inbox.ledger.records()[Node("inbox_files")].built_at == at(0, 15)


def test_downstream_receives_the_complete_tuple_and_not_just_the_payload(inbox):
    inbox.at(0, 5).tick()
    assert inbox.got == [(True, ["a.csv", "b.csv"])]
    assert isinstance(inbox.got[0], tuple)


def test_when_update_detected_is_true_downstream_assets_become_stale(inbox):
    inbox.at(0, 5).tick()
    assert inbox.at(0, 10).tick() == ["inbox_files", "ingest_paths"]  # though the list is equal


def test_when_update_detected_is_false_downstream_assets_do_not_become_stale(inbox):
    inbox.at(0, 5).tick()
    inbox.says.append((False, ["c.csv"]))
    assert inbox.at(0, 10).tick() == ["inbox_files"]
    assert inbox.state("ingest_paths") is State.FRESH


def test_downstream_of_a_sensor_that_saw_nothing_reads_the_last_true_tuple(inbox):
    inbox.at(0, 5).tick()
    inbox.says.append((False, ["c.csv"]))
    inbox.at(0, 10).tick()
    inbox.materialize("ingest_paths", force=True)
    assert inbox.got[-1] == (True, ["a.csv", "b.csv"])


def test_a_manual_sensor_looks_only_when_asked(platform):
    @sensor
    def inbox_files():
        return True, 1

    world = platform(inbox_files)
    assert world.at(0, day=20).tick() == []
    assert names(world.materialize("inbox_files").rebuilt) == ["inbox_files"]


def test_a_sensor_that_a_person_names_always_looks(inbox):
    inbox.at(0, 5).tick()
    assert names(inbox.materialize("inbox_files").rebuilt) == ["inbox_files"]


def test_what_a_sensor_returns_must_be_a_tuple_of_a_bool_and_a_value(platform):
    @sensor(freshness=Schedule("*/5 * * * *"))
    def plain():
        return ["a.csv"]

    world = platform(plain)
    world.at(0, 5).tick()
    assert "(update_detected, output)" in world.why("plain")[-1]
