"""A range of partitions in a Dagster run, whose keys go to the scheduler as one submission."""

import os
import signal
import threading

import pytest
from dagster import AssetKey
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)
from waiting import wait_until

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge import range_build
from examlops_dagster.ledger.jobs import HpcJobs

PARTS = """\
from pathlib import Path
import time

from examlops_dagster import asset, partitions, sink

HERE = Path(__file__).parent
SPACE = {"k": partitions(["a", "b", "c", "d", "e"])}


@asset(partitions=SPACE, deps=["PM100"], orchestrator="scheduler", retries=RETRIES)
@sink("values/{key}.json")
def parts(k, **upstream):
    with (HERE / "calls").open("a") as file:
        file.write(f"{k}\\n")
    if k in (HERE / "bad").read_text().split():
        raise ValueError(f"{k} is bad")
    deadline = time.monotonic() + 600
    while k in (HERE / "slow").read_text().split() and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"k": k, "read": upstream["PM100"]}
"""


@pytest.fixture
def make(home, tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(tmp_path / "jobs"))
    home.declare("PM100")
    for name in ("bad", "slow"):
        home.write(name, "")

    def made(retries=0):
        return home.module(PARTS.replace("RETRIES", str(retries)))

    return made


def click(home, module, first="a", last="e"):
    tags = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
    return home.click(module, "parts", tags=tags)


def rows(home):
    project = home.project()
    found = HpcJobs(project.database).listed(limit=100)
    project.close()
    return found


def calls(home):
    return sorted((home.folder / "calls").read_text().split())


def test_a_range_is_one_submission_and_each_key_has_its_event(home, make):
    module = make()
    assert click(home, module).success
    assert len({row.token for row in rows(home)}) == 1
    events = {event.partition: event for event in home.events("parts")}
    assert set(events) == set("abcde")
    records = home.records(module)
    for k, event in events.items():
        record = records[f"parts[{k}]"]
        assert event.tags["dagster/data_version"] == record.data_version
        assert record.built_from[Node("PM100")].version == 1
        assert event.metadata["examlops/hpc_job_id"].value == f"1_{'abcde'.index(k)}"
    assert len({record.data_version for name, record in records.items() if "[" in name}) == 5
    assert (home.folder / "values" / "c.json").exists()
    log = [r.event_log_entry.user_message
           for r in home.instance.get_records_for_run(home.instance.get_runs()[0].run_id).records]  # fmt: skip
    assert any("submitted 5 tasks as job 1 on mock" in text for text in log)


def test_part_of_a_range_is_an_array_of_its_own(home, make):
    module = make()
    click(home, module, "b", "c")
    assert calls(home) == ["b", "c"]
    click(home, module, "d", "d")
    assert [row.array_index for row in rows(home)] == [None, 0, 1]


def test_a_bad_key_fails_alone_and_the_run_ends_as_failed(home, make):
    module = make()
    home.write("bad", "c")
    assert not click(home, module).success
    assert {e.partition for e in home.events("parts")} == set("abde")
    states = home.states(module)
    assert states["parts[c]"] == "failed"
    assert {states[f"parts[{k}]"] for k in "abde"} == {"fresh"}
    assert home.builds("parts", "c", module)[-1].error.endswith("ValueError: c is bad")


def test_only_the_keys_that_failed_are_tried_again(home, make):
    module = make(retries=1)
    home.write("bad", "c e")
    assert not click(home, module).success
    assert calls(home) == ["a", "b", "c", "c", "d", "e", "e"]
    assert len({row.token for row in rows(home)}) == 2
    home.write("bad", "c")
    assert home.exa(module, "parts").failed[0].node == Node("parts", "c")
    assert calls(home) == ["a", "b", "c", "c", "c", "c", "d", "e", "e", "e"]


def test_keys_that_are_held_are_not_submitted(home, make):
    module = make()
    home.write("bad", "c")
    click(home, module)
    project = home.project(module)
    plan = project.plan_due((), set(), set())
    assert [str(step.node) for step in plan.steps] == []


def test_what_cannot_be_recorded_leaves_the_others_running_and_they_are_taken_over(
    home, make, monkeypatch
):
    module = make()
    home.write("slow", "")
    original = range_build.RangeBuild._kept

    def fails(self, build_, product):
        if product.attempt.node.partition == "b":
            raise OSError("no space left on the device")
        return original(self, build_, product)

    monkeypatch.setattr(range_build.RangeBuild, "_kept", fails)
    assert not click(home, module).success
    monkeypatch.undo()
    for name, value in (
        ("EXAMLOPS_HPC_SCHEDULER", "mock"),
        ("DAGSTER_HOME", str(home.folder)),
        ("EXAMLOPS_HPC_WORKDIR", str(home.folder.parent / "spool")),
        ("EXAMLOPS_ASSET_JOB_DIR", str(home.folder.parent / "jobs")),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.folder)
    assert click(home, module).success
    states = home.states(module)
    assert {states[f"parts[{k}]"] for k in "abcde"} == {"fresh"}


def test_an_interrupt_of_a_run_that_dagster_launched_leaves_the_array(home, make):
    module = make()
    home.write("slow", "b d")

    def built():
        return home.instance.get_materialized_partitions(AssetKey("parts"))

    def interrupt():
        wait_until(lambda: built() == {"a", "c", "e"})
        wait_until(lambda: len(calls(home)) == 5)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = click(home, module)
    thread.join()
    assert not result.success
    found = {row.node.partition: row.state for row in rows(home)}
    assert (found["b"], found["d"]) == ("RUNNING", "RUNNING")
    home.write("slow", "")
    for path in (home.folder.parent / "jobs").glob("*/"):
        for index in range(5):
            (path / f"mock-cancel.{index}").touch()
    assert built() >= {"a", "c", "e"}
