"""Lineage of what was requested and never begun: runs and backfills that ended before a body."""

import pytest
from dagster._core.execution.backfill import BulkActionStatus
from lineages import assert_whole, events_of, problems_of, with_schemas
from ticks import Automation

PARTS = """\
from examlops_dagster import asset, partitions


@asset(partitions={"part": partitions(["a", "b"])}, timeout_seconds=None, owners=["team:data"])
def parts(part):
    return part
"""


@pytest.fixture
def ended(home, chain):
    """Give automation that requested the chain; somebody ended its run in the queue."""
    kept = Automation(home, chain, "sensor")
    [request] = kept.requests()
    run = kept.queue(request)
    kept.instance.report_run_canceled(run)
    kept.requested()
    return run


def test_a_run_that_was_ended_in_the_queue_is_told_as_aborted(home, ended):
    events = events_of(home, "features")
    assert [e["eventType"] for e in events] == ["START", "ABORT"]
    assert_whole(events)
    facets = events[-1]["run"]["facets"]
    assert facets["parent"]["run"]["runId"] == ended.run_id
    assert facets["parent"]["job"]["name"] == ended.job_name
    assert facets["errorMessage"]["message"] == "the run was ended before it was built"


def test_a_run_that_failed_before_the_body_is_told_as_failed(home, chain):
    kept = Automation(home, chain, "sensor")
    [request] = kept.requests()
    run = kept.queue(request)
    kept.instance.report_run_failed(run)
    kept.requested()
    events = events_of(home, "features")
    assert [e["eventType"] for e in events] == ["START", "FAIL"]
    assert events[0]["job"]["facets"]["jobType"]["jobType"] == "ASSET"


@pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`:DeprecationWarning")
def test_a_backfill_that_failed_before_its_first_run_is_told_for_each_partition(home):
    kept = Automation(home, home.module(PARTS), "conditions")
    [request] = kept.requests()
    backfill = kept.start_backfill(request)
    kept.instance.update_backfill(backfill.with_status(BulkActionStatus.FAILED))
    kept.requested()
    events = events_of(home, "parts")
    assert_whole(events)
    builds = [e["run"]["facets"]["examlops_build"] for e in events]
    assert sorted((b["partition"], b["backfill"]) for b in builds[::2]) == [
        ("a", backfill.backfill_id),
        ("b", backfill.backfill_id),
    ]
    assert {e["eventType"] for e in events} == {"START", "FAIL"}
    assert "ownership" in events[0]["job"]["facets"]


def test_its_events_are_what_the_schemas_allow(home, ended):
    for event in events_of(home, "features"):
        assert problems_of(event) == []


test_its_events_are_what_the_schemas_allow.pytestmark = with_schemas
