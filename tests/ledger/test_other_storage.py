"""Dagster's events in a storage that is not its default one, as in Postgres."""

import sqlite3
from contextlib import closing

import pytest
from homes import CHAIN, INSTANCE, Homestead, names_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    storage = f"storage:\n  sqlite:\n    base_dir: {folder / 'elsewhere'}\n"
    found = Homestead(folder, monkeypatch, INSTANCE + storage)
    yield found
    found.close()


@pytest.fixture
def built(home):
    home.declare("PM100")
    chain = home.module(CHAIN)
    assert home.exa(chain, "model").ok
    return chain


class Late:
    """The last event of an asset, which has an id, but whose transaction is open still."""

    def __init__(self, home, asset):
        [self._path] = (home.folder / "elsewhere").rglob("runs/index.db")
        last = "SELECT max(id) FROM event_logs WHERE asset_key = ?"
        [(self._id,)] = self._sql(last, f'["{asset}"]')
        self._rename("ASSET_MATERIALIZATION", "NOT_YET")

    def show(self):
        self._rename("NOT_YET", "ASSET_MATERIALIZATION")

    def _rename(self, old, new):
        kind = "dagster_event_type"
        changed = f"UPDATE event_logs SET {kind} = ? WHERE id = ? AND {kind} = ? RETURNING id"
        assert self._sql(changed, new, self._id, old)

    def _sql(self, statement, *values):
        with closing(sqlite3.connect(self._path)) as index, index:
            return index.execute(statement, values).fetchall()


def test_an_event_is_not_missed_that_is_seen_after_one_of_a_higher_id(home, built):
    home.report("PM100", "theirs")
    late = Late(home, "PM100")
    home.report("unrelated", "x")
    assert home.versions(built)["PM100"] == 1
    late.show()
    assert home.versions(built)["PM100"] == 2
    assert home.why(built, "features") == ("upstream PM100 changed (1 → 2)",)


def test_an_older_event_that_is_seen_later_does_not_take_the_place_of_a_newer_one(home, built):
    home.report("PM100", "older")
    late = Late(home, "PM100")
    home.report("PM100", "newer")
    assert home.records(built)["PM100"].data_version == "newer"
    late.show()
    assert home.records(built)["PM100"].data_version == "newer"


def test_events_are_read_again_and_taken_over_once(home, built):
    home.report("PM100", "theirs")
    for _ in range(3):
        home.report("unrelated", "x")
        assert home.versions(built)["PM100"] == 2
    assert names_of(home.exa(built, "model").rebuilt) == ["features", "model"]
    assert home.exa(built, "model").rebuilt == []


def test_what_was_wiped_does_not_come_back(home, built):
    home.wipe("model")
    assert home.versions(built)["model"] == 0
    home.report("PM100", "theirs")
    assert home.versions(built)["model"] == 0
