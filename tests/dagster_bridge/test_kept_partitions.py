"""Partitions that are kept fresh: as one run, or as a backfill of Dagster's daemon."""

import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._utils.error import SerializableErrorInfo
from kept_pipelines import PARTS
from ticks import Automation

# of Dagster itself, where conditions ask for more than one partition
pytestmark = pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`:DeprecationWarning")


def test_partitions_of_an_open_backfill_are_not_requested_again(home):
    home.declare("PM100")
    kept = Automation(home, home.module(PARTS), "conditions")
    [request] = kept.requests()
    assert request.requires_backfill_daemon()
    backfill = kept.start_backfill(request)
    assert kept.requested() == []
    kept.execute_backfill(backfill, request)
    assert kept.requested() == []
    home.advance("PM100")  # built in the backfill, and stale once more
    assert kept.requested() == [["parts", "sums"]]
    kept.instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert kept.requested() == [["parts", "sums"]]


def test_a_backfill_that_fails_before_its_first_run_is_requested_three_times(home, caplog):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, "conditions")
    error = SerializableErrorInfo("OSError: no such location\n", [], "OSError")
    for _ in range(3):
        [request] = kept.requests()
        backfill = kept.start_backfill(request).with_error(error)
        kept.instance.update_backfill(backfill.with_status(BulkActionStatus.FAILED))
    assert kept.requested() == []
    assert home.states(module)["parts[a]"] == "failed"
    assert home.why(module, "parts[a]")[-1] == (
        "the backfill failed before it was built: OSError: no such location"
    )
    assert home.endings("parts").count("died") == 3 * len("abcd")
    assert home.builds("sums") == []  # it is below
    assert f"backfill {backfill.backfill_id}" in caplog.text
    assert Automation(home, module, "conditions").requested() == []  # another process
    assert home.endings("parts").count("died") == 3 * len("abcd")


def test_a_backfill_that_somebody_ended_before_its_first_run_is_not_requested_again(home):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, "conditions")
    [request] = kept.requests()
    backfill = kept.start_backfill(request)
    kept.instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))
    assert kept.requested() == []
    assert home.states(module)["parts[a]"] == "cancelled"


def test_what_a_failed_backfill_made_runs_of_is_left_to_those(home):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, "conditions")
    [request] = kept.requests()
    backfill = kept.start_backfill(request)
    kept.execute_backfill(backfill, request)
    home.advance("PM100")
    kept.instance.update_backfill(backfill.with_status(BulkActionStatus.FAILED))
    assert kept.requested() == [["parts", "sums"]]
    assert "died" not in home.endings("parts")


def test_a_partitioned_slice_is_one_run_or_one_backfill(home, form):
    home.declare("PM100")
    kept = Automation(home, home.module(PARTS), form)
    assert kept.requested() == [["parts", "sums"]]
    [result] = kept.tick()
    assert result.success
    assert len(home.events("parts")) == len(home.events("sums")) == 4
    assert kept.requested() == []


def test_one_key_is_requested_alone(home, form):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, form)
    kept.tick()
    home.report("parts", "from elsewhere", partition="b")
    [request] = kept.requests()
    kept.execute(request)
    assert [event.partition for event in home.events("sums")][4:] == ["b"]
    assert kept.requested() == []


def test_keys_that_are_not_contiguous_are_built_and_no_others(home, form):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, form)
    kept.tick()
    for key_ in "ac":
        home.report("parts", "from elsewhere", partition=key_)
    kept.tick()
    assert [len(home.builds("sums", k)) for k in "abcd"] == [2, 1, 2, 1]
    assert kept.requested() == []
