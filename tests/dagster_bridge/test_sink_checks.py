"""Sinks in runs: written after each build, and shown as failures that stop nothing."""

import json

import pytest
from dagster import AssetCheckKey, AssetKey
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from homes import names_of
from ticks import FORMS, Automation

REPORTS = """\
from pathlib import Path

from examlops_dagster import asset, partitions, sink

HERE = Path(__file__).parent


@asset(deps=["PM100"], timeout_seconds=None)
@sink("out/report.json")
@sink("blocked/report.json")
@sink("memory://out/report.txt")
def report(**upstream):
    return {"rows": upstream["PM100"]}


@asset(deps=[report], timeout_seconds=None)
def below(**upstream):
    return 1


@asset(partitions={"k": partitions("abc")}, timeout_seconds=None)
@sink("parts/{key}.json")
def parts(k):
    return k
"""


@pytest.fixture
def module(home):
    home.declare("PM100")
    return home.module(REPORTS)


def block(home, name="blocked"):
    (home.folder / name).write_text("a file where a folder should be")


def check(home, asset, number):
    """Give the latest evaluation of a sink's check."""
    key = AssetCheckKey(AssetKey(asset), f"sink_{number}")
    storage = home.instance.event_log_storage
    return storage.get_latest_asset_check_execution_by_key([key])[key]


def passed(home, asset, number):
    return check(home, asset, number).status is AssetCheckExecutionRecordStatus.SUCCEEDED


def test_when_the_asset_is_built_all_its_sinks_are_written(home, module):
    report = home.exa(module, "report")
    assert report.failed_sinks == []
    assert json.loads((home.folder / "out/report.json").read_text()) == {"rows": 1}
    assert [passed(home, "report", n) for n in (1, 2, 3)] == [True] * 3


def test_a_failed_sink_is_a_failed_check_that_blocks_nothing(home, module):
    block(home)
    report = home.exa(module, "below")
    assert report.ok
    assert names_of(report.rebuilt) == ["PM100", "report", "below"]
    [write] = report.failed_sinks
    assert (str(write.node), write.url) == ("report", "blocked/report.json")
    assert [passed(home, "report", n) for n in (1, 2, 3)] == [True, False, True]
    event = check(home, "report", 2).event.dagster_event.asset_check_evaluation_data
    assert event.severity.value == "ERROR"
    assert "error" in event.metadata
    assert home.states(module)["below"] == "fresh"
    assert home.instance.get_runs()[0].status.value == "SUCCESS"


def test_the_log_of_the_run_says_which_sink_failed(home, module):
    block(home)
    report = home.exa(module, "report")
    records = home.instance.get_records_for_run(report.runs[0]).records
    messages = [r.event_log_entry.user_message for r in records]
    assert any(m.startswith("Sink blocked/report.json of report failed") for m in messages)


def test_a_check_has_the_partitions_of_its_asset_and_one_bad_key_fails_it(home, module):
    (home.folder / "parts").mkdir()
    (home.folder / "parts" / "b.json").mkdir()
    report = home.exa(module, "parts")
    assert report.ok
    assert names_of(w.node for w in report.failed_sinks) == ["parts[b]"]
    assert sorted(p.name for p in (home.folder / "parts").glob("*.json") if p.is_file()) == [
        "a.json",
        "c.json",
    ]
    assert not passed(home, "parts", 1)
    project = home.project(module)
    assert [str(node) for node in project.failed_sinks()] == ["parts[b]"]


def test_the_sink_of_one_partition_is_reported(home, module):
    assert home.exa(module, "parts", partition="a").ok
    assert passed(home, "parts", 1)
    assert (home.folder / "parts/a.json").exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`:DeprecationWarning")
def test_a_failed_sink_makes_nothing_due(home, module, form):
    block(home)
    kept = Automation(home, module, form)
    kept.tick()
    assert not passed(home, "report", 2)
    assert kept.requested() == []


def test_a_build_that_came_out_unchanged_keeps_what_the_sinks_last_said(home, module):
    block(home)
    home.exa(module, "report")
    home.advance("PM100")
    home.exa(module, "report", force=True)
    assert not passed(home, "report", 2)


def test_a_sink_is_written_again_without_a_build(home, module):
    block(home)
    home.exa(module, "report")
    (home.folder / "blocked").unlink()
    written = home.project(module).rewrite_sinks("report")
    assert [w.error for w in written] == ["", "", ""]
    assert (home.folder / "blocked/report.json").exists()
    assert len(home.builds("report")) == 1
    assert passed(home, "report", 2)
    assert home.project(module).failed_sinks() == {}


def test_one_partition_of_a_sink_is_written_again(home, module):
    home.exa(module, "parts")
    for path in (home.folder / "parts").iterdir():
        path.unlink()
    home.project(module).rewrite_sinks("parts", "b")
    assert [p.name for p in (home.folder / "parts").iterdir()] == ["b.json"]


CLAIMED = """\
import os
import sqlite3
from pathlib import Path

from examlops_dagster import asset, partitions, sink


class Claims:
    \"\"\"A table of the claims that are held while it is written.\"\"\"

    def to_csv(self, index):
        with sqlite3.connect(Path(os.environ["DAGSTER_HOME"]) / "platform.db") as connection:
            rows = connection.execute("SELECT partition FROM claims ORDER BY partition")
            return "claims\\n" + "".join(key + "\\n" for (key,) in rows)


@asset(partitions={"k": partitions("ab")}, serializer="pickle", timeout_seconds=None)
@sink("claims/{key}.csv")
def keys(k):
    return Claims()
"""


def claims_at_the_write(home):
    return {p.stem: p.read_text().splitlines()[1:] for p in (home.folder / "claims").iterdir()}


def test_a_range_writes_the_sinks_of_each_key_while_it_holds_its_claim(home):
    assert home.exa(home.module(CLAIMED), "keys").ok
    assert claims_at_the_write(home) == {"a": ["a"], "b": ["b"]}


def test_writing_a_sink_again_holds_the_claim_of_a_build(home):
    module = home.module(CLAIMED)
    home.exa(module, "keys")
    for path in (home.folder / "claims").iterdir():
        path.unlink()
    home.project(module).rewrite_sinks("keys")
    assert claims_at_the_write(home) == {"a": ["a"], "b": ["b"]}
    assert home.project(module).ledger.claims() == {}
