"""kill -9 at any moment loses no row of the audit log, and doubles none."""

import os
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from examlops_dagster.governance.audit_requests import Requests

LIMIT_SECONDS = 300

PIPELINE = """\
import os, pathlib, time
from examlops_dagster import asset

HERE = pathlib.Path(__file__).parent


@asset("first", timeout_seconds=None)
def first():
    return 1


@asset("second", inputs={"first": first}, timeout_seconds=None)
def second(first):
    (HERE / "begun").write_text(str(os.getpid()))
    if not (HERE / "free").exists():
        time.sleep(600)
    return 2
"""

BUILD = """\
import pipeline
from examlops_dagster import materialize
materialize("second", modules=[pipeline], in_process=True)
"""

CLICK = """\
import pipeline
from dagster import AssetKey, DagsterInstance
from examlops_dagster import build_definitions
keys = {AssetKey("first"), AssetKey("second")}
repository = build_definitions([pipeline]).get_repository_def()
job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
with DagsterInstance.get() as instance:
    job.execute_in_process(instance=instance, raise_on_error=False)
"""

KILLED_BEFORE = """\
import os, signal
from examlops_dagster.governance import audit_requests

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

audit_requests.Requests.{method} = die
"""


@pytest.fixture
def pipeline(home):
    home.write("pipeline.py", PIPELINE)
    return home


def start(home, script):
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=home.folder,
        env={**os.environ, "PYTHONPATH": str(home.folder), "EXAMLOPS_ACTOR": "alice"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def ended(process):
    try:
        return process.wait(LIMIT_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until_it_builds(home, process):
    wait_until(lambda: process.poll() is not None or (home.folder / "begun").exists())
    assert process.poll() is None


def kill_while_it_builds(home, script):
    process = start(home, script)
    try:
        until_it_builds(home, process)
        process.send_signal(signal.SIGKILL)
    finally:
        assert ended(process) == -signal.SIGKILL


def rows(home):
    project = home.project()
    project.governor.settle()
    project.governor.settle()
    found = list(project.governor.audit.rows())
    assert project.governor.audit.verify().ok
    project.close()
    return found


def told(found):
    """Give each action with what it says was rebuilt."""
    return [(row.action, row.assets, row.details.get("rebuilt")) for row in found]


def test_a_request_that_was_killed_while_it_built_is_in_the_log(pipeline):
    kill_while_it_builds(pipeline, BUILD)
    [row] = rows(pipeline)
    assert (row.action, row.actor) == ("asset_materialize", "alice")
    assert row.assets == ("first", "second")
    assert row.details["interrupted"]
    assert row.details["rebuilt"] == ["first"]
    (pipeline.folder / "free").touch()
    assert ended(start(pipeline, BUILD)) == 0
    found = rows(pipeline)
    assert [row.action for row in found] == [
        "asset_materialize",
        "asset_materialize",
        "asset_build_failed",  # the attempt whose process died, known once somebody tries again
    ]
    assert found[1].details["rebuilt"] == ["second"]
    assert found[2].details["error"] == "process died"
    assert found[2].details["request"] == found[0].details["request"]


def test_a_request_that_was_killed_before_its_row_is_in_the_log_once(pipeline):
    (pipeline.folder / "free").touch()
    script = KILLED_BEFORE.format(method="close") + BUILD
    assert ended(start(pipeline, script)) == -signal.SIGKILL
    [row] = rows(pipeline)
    assert row.details["interrupted"]
    assert row.details["rebuilt"] == ["first", "second"]
    assert set(row.details["builds"]) == {"first", "second"}


def test_a_run_of_dagster_that_was_killed_while_it_built_is_in_the_log(pipeline):
    kill_while_it_builds(pipeline, CLICK)
    [row] = rows(pipeline)
    assert (row.action, row.assets, row.actor) == ("asset_materialize", ("first",), "alice")
    assert row.details["source"] == "ui"


def test_a_run_of_dagster_that_was_killed_before_its_row_is_in_the_log_once(pipeline):
    (pipeline.folder / "free").touch()
    script = KILLED_BEFORE.format(method="settle") + CLICK
    assert ended(start(pipeline, script)) == -signal.SIGKILL
    assert told(rows(pipeline)) == [("asset_materialize", ("first",), ["first"])]


def test_a_living_request_keeps_its_builds_to_itself(pipeline):
    process = start(pipeline, BUILD)
    try:
        until_it_builds(pipeline, process)
        assert rows(pipeline) == []
    finally:
        process.kill()
        process.wait()
    assert told(rows(pipeline)) == [("asset_materialize", ("first", "second"), ["first"])]


def test_a_declaration_that_was_killed_half_way_is_in_the_log(home):
    script = KILLED_BEFORE.format(method="close")
    script += "from examlops_dagster import declare_asset\ndeclare_asset('PM100')\n"
    assert ended(start(home, script)) == -signal.SIGKILL
    [row] = rows(home)
    assert (row.action, row.assets, row.actor) == ("declare", ("PM100",), "alice")
    assert row.details["interrupted"]


def test_what_the_log_does_not_take_is_told_and_stops_no_build(home, monkeypatch, caplog):
    module = home.module(PIPELINE)
    (home.folder / "free").touch()
    home.states(module)
    home.sql("DROP TABLE audit_head")
    report = home.exa(module, "second")
    assert report.ok
    assert "a row of the audit log was lost" in caplog.text


def test_a_process_of_another_host_counts_as_alive_for_a_week(database, clock):
    requests = Requests(database, clock)
    requests.open("declare", "alice", "exa", {}, {})
    with database.write() as connection:
        connection.execute("UPDATE requests SET process = 'elsewhere:1:2.0'")
    clock.advance(days=6)
    requests.settle()
    clock.advance(days=2)
    requests.settle()
    with database.read() as connection:
        [[count]] = connection.execute("SELECT count(*) FROM audit")
    assert count == 1
