import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.watermark import Watermark, nothing_new

EVENTS = """\
CREATE TABLE event_logs (id INTEGER NOT NULL, run_id TEXT, timestamp TIMESTAMP, PRIMARY KEY (id));
CREATE TABLE asset_keys (asset_key TEXT, wipe_timestamp TIMESTAMP);
INSERT INTO asset_keys VALUES ('["a"]', NULL), ('["b"]', NULL);
"""
RUNS = """\
CREATE TABLE runs (run_id TEXT, status TEXT);
CREATE TABLE bulk_actions (key TEXT, status TEXT);
"""


class Storage:
    """Dagster's default storage as far as the watermark reads it, written without dagster."""

    def __init__(self, folder, database):
        self.folder = folder
        self.database = database
        self.index = folder / "history" / "runs" / "index.db"
        self.runs = folder / "history" / "runs.db"
        self._moment = 0

    def make(self):
        self.index.parent.mkdir(parents=True)
        self.sql(self.index, EVENTS)
        self.sql(self.runs, RUNS)

    def sql(self, path, script):
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript(script)

    def event(self, run_id="", hours=0):
        self._moment += 1
        moment = f"2026-01-05 {12 + hours:02}:00:00.{self._moment:06}"
        self.sql(
            self.index,
            f"INSERT INTO event_logs (run_id, timestamp) VALUES ('{run_id}', '{moment}')",
        )

    def delete(self, run_id):
        self.sql(self.index, f"DELETE FROM event_logs WHERE run_id = '{run_id}'")

    def wipe(self, key, moment):
        self.sql(
            self.index,
            f"UPDATE asset_keys SET wipe_timestamp = '{moment}' WHERE asset_key = '{key}'",
        )

    def synced(self, **more):
        """Do what a sync does."""
        mark = watermark.read(self.folder) or Watermark()
        with self.database.write() as connection:
            watermark.store(connection, replace(mark, **more))

    @property
    def nothing_new(self):
        return nothing_new(self.folder, self.database)

    @property
    def read_until(self):
        return watermark.read_until(self.folder, watermark.last_read(self.database))


@pytest.fixture
def storage(tmp_path, database):
    found = Storage(tmp_path, database)
    found.make()
    for _ in range(3):
        found.event()
    found.synced()
    return found


def test_nothing_is_new_after_a_sync(storage):
    assert storage.nothing_new


def test_nothing_is_new_where_dagster_has_written_no_file(tmp_path, database):
    assert nothing_new(tmp_path, database)


def test_an_event_is_new(storage):
    storage.event()
    assert not storage.nothing_new


def test_a_wipe_is_new(storage):
    storage.wipe('["a"]', "2026-01-05 12:00:00.5")
    assert not storage.nothing_new
    storage.synced()
    assert storage.nothing_new
    storage.wipe('["a"]', "2026-01-05 12:00:01.5")
    assert not storage.nothing_new


def test_a_deleted_event_is_new(storage):
    storage.sql(storage.index, "DELETE FROM event_logs WHERE id = 2")
    assert not storage.nothing_new


def test_an_event_that_took_the_id_of_a_deleted_one_is_new(storage):
    storage.event("run")
    storage.synced()
    storage.delete("run")
    storage.event("another")
    assert watermark.read(storage.folder).event_id == 4
    assert not storage.nothing_new


def test_a_storage_that_was_deleted_is_new(storage):
    storage.index.unlink()
    assert not storage.nothing_new


@pytest.mark.parametrize("status", watermark.OPEN_RUNS)
def test_an_open_run_may_bring_news(storage, status):
    storage.sql(storage.runs, f"INSERT INTO runs VALUES ('r', '{status}')")
    assert not storage.nothing_new


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE", "CANCELED"])
def test_an_ended_run_brings_none(storage, status):
    storage.sql(storage.runs, f"INSERT INTO runs VALUES ('r', '{status}')")
    assert storage.nothing_new


def test_a_run_known_to_be_dead_brings_none(storage):
    storage.sql(storage.runs, "INSERT INTO runs VALUES ('r', 'STARTED')")
    storage.synced(dead_runs=("r",))
    assert storage.nothing_new
    storage.sql(storage.runs, "INSERT INTO runs VALUES ('s', 'STARTED')")
    assert not storage.nothing_new


@pytest.mark.parametrize("status", watermark.OPEN_BACKFILLS)
def test_an_open_backfill_may_bring_news(storage, status):
    storage.sql(storage.runs, f"INSERT INTO bulk_actions VALUES ('b', '{status}')")
    assert not storage.nothing_new


def test_an_ended_backfill_brings_none(storage):
    storage.sql(storage.runs, "INSERT INTO bulk_actions VALUES ('b', 'COMPLETED_SUCCESS')")
    assert storage.nothing_new


def test_the_kinds_behind_an_event_are_told_apart(storage):
    storage.sql(storage.index, "ALTER TABLE event_logs ADD COLUMN dagster_event_type TEXT")
    storage.event()
    storage.sql(
        storage.index,
        "UPDATE event_logs SET dagster_event_type = 'ASSET_MATERIALIZATION' WHERE id = 4",
    )
    assert watermark.kinds_after(storage.folder, 3) == {"ASSET_MATERIALIZATION"}
    assert watermark.kinds_after(storage.folder, 4) == set()
    storage.index.unlink()
    assert watermark.kinds_after(storage.folder, 4) is None


@pytest.mark.parametrize("key", sorted(watermark._STORAGE_KEYS))
def test_another_storage_may_hold_news_that_cannot_be_read(storage, key):
    (storage.folder / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{key}:\n  x: 1\n")
    assert not storage.nothing_new
    assert watermark.read(storage.folder) is None
    assert watermark.kinds_after(storage.folder, 0) is None


@pytest.mark.parametrize(
    "text", ["", "telemetry:\n  enabled: false\n", "# storage: as it is\n", "run_storage_note: 1\n"]
)
def test_a_file_that_names_no_storage_leaves_the_default_one(storage, text):
    (storage.folder / "dagster.yaml").write_text(text)
    assert storage.nothing_new


def test_a_file_that_cannot_be_parsed_means_perhaps(storage):
    (storage.folder / "dagster.yaml").write_text("storage: [")
    assert not storage.nothing_new


@pytest.mark.parametrize("name", ["index", "runs"])
@pytest.mark.parametrize("content", [b"", b"no database" * 500, b"SQLite format 3\0" + b"x" * 5000])
def test_a_file_that_is_no_database_means_perhaps(storage, name, content):
    getattr(storage, name).write_bytes(content)
    assert not storage.nothing_new


def test_a_folder_in_the_place_of_a_file_means_perhaps(storage):
    storage.index.unlink()
    storage.index.mkdir()
    assert not storage.nothing_new


def test_a_storage_of_another_dagster_means_perhaps(storage):
    storage.sql(storage.index, "ALTER TABLE event_logs RENAME COLUMN timestamp TO made_at")
    assert not storage.nothing_new


def test_an_awkward_path_is_read(awkward_path, database):
    storage = Storage(awkward_path, database)
    storage.make()
    storage.event()
    assert watermark.read(awkward_path).event_id == 1
    storage.synced()
    assert storage.nothing_new


def test_the_watermark_of_an_older_version_is_read(storage):
    with storage.database.write() as connection:
        connection.execute(
            "UPDATE watermarks SET mark = :mark",
            mark='{"event_id": 3, "events": 3, "wiped_at": "", "dead_runs": ["r"]}',
        )
    assert watermark.last_read(storage.database) == Watermark(3, 3, "", ("r",))
    assert not storage.nothing_new
    assert storage.read_until == 0


def test_events_are_read_on_from_the_last_one(storage):
    storage.event()
    assert storage.read_until == 3


def test_events_are_read_anew_behind_one_that_is_surely_left(storage):
    storage.event("run", hours=2)
    storage.synced()
    storage.delete("run")
    assert storage.read_until == 3
    storage.event("another", hours=3)
    storage.event("another", hours=3)
    assert storage.read_until == 3


def test_all_events_are_read_where_none_is_left_for_sure(storage):
    storage.sql(storage.index, "DELETE FROM event_logs WHERE id = 3")
    assert storage.read_until == 0
    storage.index.unlink()
    assert storage.read_until == 0
