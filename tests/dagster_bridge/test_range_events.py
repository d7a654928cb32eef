"""The keys of a range are recorded many at once, with what Dagster would have stored of each."""

import sqlite3
import threading

import pytest
from dagster import AssetKey, DagsterEventType
from dagster._core.storage.event_log import SqliteEventLogStorage
from waiting import wait_until

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge import event_batches, range_build, range_events
from examlops_dagster.dagster_bridge.event_batches import store_batch, takes_batches
from examlops_dagster.ledger.builds import BuildsLedger

KEYS = list("abcde")

PARTS = """\
import time
from pathlib import Path

from examlops_dagster import asset, partitions

HERE = Path(__file__).parent


@asset(partitions={"k": partitions(["a", "b", "c", "d", "e"])}, timeout_seconds=None)
def parts(k):
    if (HERE / f"bad_{k}").exists():
        raise ValueError(f"{k} is bad")
    if (HERE / f"stop_{k}").exists():
        raise KeyboardInterrupt
    (HERE / f"begun_{k}").touch()
    while (HERE / f"slow_{k}").exists():
        time.sleep(0.01)
    return {"k": k}
"""


@pytest.fixture
def module(home):
    return home.module(PARTS)


@pytest.fixture
def batches(monkeypatch):
    """Give the numbers of events that were stored together."""
    found = []
    real = range_events.store_batch

    def counted(storage, entries):
        found.append(len(entries))
        real(storage, entries)

    monkeypatch.setattr(range_events, "store_batch", counted)
    return found


def keys_of(home):
    return [event.partition for event in home.events("parts")]


def contents(folder, run_id):
    """Give all that the event storage holds of a run, but for when it was put there."""
    found = []
    for shard in (run_id, "index"):
        with sqlite3.connect(folder / "history" / "runs" / f"{shard}.db") as connection:
            for table in ("event_logs", "asset_event_tags", "asset_keys"):
                connection.row_factory = sqlite3.Row
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY id"):
                    found.append((shard == "index", table, {**row, "create_timestamp": ""}))
        connection.close()
    return found


# What is stored


def test_a_batch_leaves_in_the_databases_what_dagster_leaves(home, module, tmp_path):
    home.exa(module, "parts")
    [run] = home.instance.get_runs()
    entries = [
        record.event_log_entry
        for kind in (
            DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
            DagsterEventType.ASSET_MATERIALIZATION,
        )
        for record in home.instance.get_records_for_run(run.run_id, of_type=kind).records
    ]
    assert len(entries) == 2 * len(KEYS)
    found = []
    for store in (
        lambda storage: [storage.store_event(entry) for entry in entries],
        lambda storage: store_batch(storage, entries),
    ):
        folder = tmp_path / f"other {len(found)}"
        storage = SqliteEventLogStorage(str(folder / "history" / "runs"))
        storage.register_instance(home.instance)
        store(storage)
        found.append(contents(folder, run.run_id))
    assert found[0] == found[1]


def test_events_of_a_range_are_as_dagster_makes_them(home, module, monkeypatch):
    home.exa(module, "parts")
    monkeypatch.setattr(range_events, "takes_batches", lambda storage: False)
    home.exa(module, "parts", force=True)
    latest, first = home.instance.get_runs()
    found = []
    for run in (first, latest):
        of_run = home.instance.get_records_for_run(
            run.run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION
        ).records
        entries = [record.event_log_entry for record in of_run]
        assert [entry.timestamp for entry in entries] == sorted(e.timestamp for e in entries)
        events = [entry.dagster_event for entry in entries]
        found.append(
            [
                (
                    entry.level,
                    entry.user_message,
                    entry.step_key,
                    entry.job_name,
                    event._replace(event_specific_data=None, logging_tags=_but_run(event)),
                    event.partition,
                    event.step_materialization_data.materialization.tags.keys(),
                    event.step_materialization_data.materialization.metadata.keys(),
                )
                for entry, event in zip(entries, events, strict=True)
            ]
        )
    assert found[0] == found[1]


def _but_run(event):
    return {k: v for k, v in event.logging_tags.items() if k != "run_id"}


def test_a_run_says_which_keys_it_built(home, module):
    result = home.click(
        module,
        "parts",
        tags={
            "dagster/asset_partition_range_start": "a",
            "dagster/asset_partition_range_end": "e",
        },
    )
    events = result.get_asset_materialization_events()
    assert [event.partition for event in events] == KEYS


def test_a_storage_of_another_class_is_left_to_dagster(home):
    class Own(SqliteEventLogStorage):
        pass

    assert takes_batches(home.instance.event_log_storage)
    assert not takes_batches(Own(str(home.folder / "own")))


def test_a_dagster_without_the_methods_is_left_alone(home, monkeypatch):
    monkeypatch.setattr(event_batches, "_NEEDED", ("gone",))
    assert not takes_batches(home.instance.event_log_storage)


def test_without_batches_each_key_is_recorded_all_the_same(home, module, monkeypatch, batches):
    for room in (range_events, event_batches):
        monkeypatch.setattr(room, "takes_batches", lambda storage: False)
    assert home.exa(module, "parts").ok
    assert batches == []
    assert keys_of(home) == KEYS
    assert set(home.endings("parts")) == {"succeeded"}


# When it is stored


def test_the_keys_of_a_range_are_stored_together(home, module, batches, monkeypatch):
    monkeypatch.setattr(range_build, "MOST_WAITING", 2)
    monkeypatch.setattr(range_events, "LONGEST_WAIT_SECONDS", 3600)
    assert home.exa(module, "parts").ok
    assert batches == [2, 2, 1]
    assert keys_of(home) == KEYS
    assert set(home.states(module).values()) == {"fresh"}


def test_a_slow_key_does_not_keep_those_before_it_from_being_recorded(home, module, monkeypatch):
    monkeypatch.setattr(range_events, "LONGEST_WAIT_SECONDS", 0.1)
    home.write("slow_d", "")
    built = []
    thread = threading.Thread(target=lambda: built.append(home.exa(module, "parts")))
    thread.start()
    try:
        wait_until((home.folder / "begun_d").exists)
        wait_until(lambda: keys_of(home) == ["a", "b", "c"])
        wait_until(lambda: home.endings("parts").count("succeeded") == 3)
        assert home.endings("parts")[3] == "running"
    finally:
        (home.folder / "slow_d").unlink()
        thread.join()
    assert built[0].ok
    assert keys_of(home) == KEYS


def test_a_bad_key_leaves_those_around_it_recorded(home, module, batches, monkeypatch):
    monkeypatch.setattr(range_events, "LONGEST_WAIT_SECONDS", 3600)
    home.write("bad_c", "")
    report = home.exa(module, "parts")
    assert [str(failed.node) for failed in report.failed] == ["parts[c]"]
    assert keys_of(home) == ["a", "b", "d", "e"]
    assert batches == [4]


def test_an_interrupt_leaves_what_was_built_before_it_recorded(home, module):
    home.write("stop_c", "")
    report = home.exa(module, "parts", in_process=True)
    assert not report.ok
    assert keys_of(home) == ["a", "b"]
    assert home.endings("parts") == ["succeeded", "succeeded", "cancelled"]
    assert home.sql("SELECT * FROM claims") == []
    (home.folder / "stop_c").unlink()
    assert home.exa(module, "parts").ok
    assert keys_of(home) == KEYS


# Where it fails


def test_keys_whose_events_cannot_be_stored_have_failed(home, module, monkeypatch):
    def full(storage, entries):
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(range_events, "store_batch", full)
        report = home.exa(module, "parts")
    assert not report.ok
    assert home.endings("parts") == ["failed"] * len(KEYS)
    assert home.sql("SELECT * FROM claims") == []
    assert home.exa(module, "parts").ok
    assert keys_of(home) == KEYS


def test_versions_that_cannot_be_written_are_completed_by_the_next_sync(home, module, monkeypatch):
    def full(ledger, built):
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(BuildsLedger, "complete_all", full)
        assert not home.exa(module, "parts").ok
    assert keys_of(home) == KEYS
    assert set(home.states(module).values()) == {"fresh"}
    assert set(home.endings("parts")) == {"succeeded"}


def test_an_error_behind_a_slow_key_ends_the_step(home, module, monkeypatch):
    def full(storage, entries):
        (home.folder / "slow_b").unlink(missing_ok=True)
        raise OSError("the disk is full")

    home.write("slow_b", "")
    monkeypatch.setattr(range_events, "LONGEST_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(range_events, "store_batch", full)
    report = home.exa(module, "parts")
    assert not report.ok
    assert "the disk is full" in report.failed[0].reason
    assert keys_of(home) == []


def test_who_waits_for_another_holds_nothing_back(home, module, monkeypatch):
    monkeypatch.setattr(range_events, "LONGEST_WAIT_SECONDS", 3600)
    other = home.project(module)
    assert other.ledger.claim(Node("parts", "c"), "another") is None
    built = []
    thread = threading.Thread(target=lambda: built.append(home.exa(module, "parts")))
    thread.start()
    try:
        wait_until(lambda: keys_of(home) == ["a", "b"])
        wait_until(lambda: other.ledger.claims().keys() == {Node("parts", "c")})
    finally:
        other.ledger.release(Node("parts", "c"), "another")
        thread.join()
    assert built[0].ok
    assert keys_of(home) == KEYS
    key = AssetKey("parts")
    assert set(home.instance.get_materialized_partitions(key)) == set(KEYS)
