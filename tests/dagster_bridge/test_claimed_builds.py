"""Processes and threads that build one asset at the same time."""

import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing

import pytest
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.ledger import claims
from examlops_dagster.ledger.builds import BuildsLedger

TWENTY = """\
import sys

from dagster import AssetKey, DagsterInstance

import shared
from examlops_dagster.dagster_bridge.definitions import build_definitions

instance = DagsterInstance.get()
repository = build_definitions(shared, automation="off").get_repository_def()
keys = {AssetKey("contended")}
job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    assert job.execute_in_process(instance=instance).success
"""


def test_two_processes_build_one_asset_in_one_order(home):
    home.write(
        "shared.py",
        """\
        from examlops_dagster import asset


        @asset(timeout_seconds=None)
        def contended():
            return None
        """,
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TWENTY],
            cwd=home.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    versions = [int(event.tags["examlops/version"]) for event in home.events("contended")]
    assert versions == list(range(1, 21))
    builds = home.builds("contended")
    assert [b.version for b in builds] == versions
    assert {b.state for b in builds} == {BuildState.SUCCEEDED}
    assert len({b.run_id for b in builds}) == 20


def test_who_waits_for_a_claim_judges_by_what_is_there_then(home, chain, monkeypatch):
    """Its own sync lies before the wait."""
    home.exa(chain, "model")
    home.advance("PM100", modules=chain)
    project = home.project(chain)
    assert project.ledger.claim(Node("features"), "other") is None
    refused = []
    claim = BuildsLedger.claim

    def noted(self, *arguments, **named):
        held = claim(self, *arguments, **named)
        if held is not None:
            refused.append(held.token)
        return held

    monkeypatch.setattr(BuildsLedger, "claim", noted)
    worker = threading.Thread(target=lambda: home.click(chain, "features"))
    worker.start()
    wait_until(lambda: "other" in refused)
    home.report("PM100", "theirs")
    project.ledger.release(Node("features"), "other")
    worker.join(PATIENCE_SECONDS)
    assert home.records(chain)["features"].built_from[Node("PM100")].data_version == "theirs"


def test_a_claim_of_a_process_that_was_killed_is_free_at_once(home, chain, monkeypatch):
    monkeypatch.setattr(claims, "EXPIRY_SECONDS", 3600.0)
    program = textwrap.dedent(
        f"""
        import os, signal
        from examlops_dagster.core.records import Node
        from examlops_dagster.ledger.builds import BuildsLedger
        from examlops_dagster.store.engine import Database

        database = Database({str(home.folder / "platform.db")!r})
        assert BuildsLedger(database).claim(Node("features"), "token") is None
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    with closing(sqlite3.connect(home.folder / "platform.db")) as raw:
        assert raw.execute("SELECT asset FROM claims").fetchall() == [("features",)]
    started = time.monotonic()
    assert home.exa(chain, "features").ok
    assert time.monotonic() - started < 300


TAKEN = """\
import sqlite3
from contextlib import closing
from pathlib import Path

from examlops_dagster import asset, partitions


def taken_over():
    with closing(sqlite3.connect(Path(__file__).with_name("platform.db"), timeout=60)) as raw:
        raw.execute("UPDATE claims SET token = 'theirs', host = 'elsewhere'")
        raw.commit()


@asset(timeout_seconds=None)
def works():
    taken_over()
    return 1


@asset(timeout_seconds=None, retries=3)
def fails():
    taken_over()
    raise ValueError("no luck")


@asset(partitions={"key": partitions(["a", "b"])}, timeout_seconds=None)
def keys(key):
    if key == "a":
        taken_over()
    return key
"""


@pytest.mark.parametrize("name", ["works", "fails"])
def test_what_another_process_took_over_is_neither_recorded_nor_held(home, name):
    module = home.module(TAKEN)
    report = home.exa(module, name)
    assert not report.ok
    assert home.events(name) == []
    assert home.endings(name) == ["running"]  # whoever has it now says how it ended
    assert home.sql("SELECT * FROM holds") == []
    assert home.sql("SELECT token FROM claims") == [("theirs",)]


def test_a_key_that_another_process_took_over_is_missing_alone(home):
    module = home.module(TAKEN)
    assert not home.exa(module, "keys").ok
    assert [event.partition for event in home.events("keys")] == ["b"]
