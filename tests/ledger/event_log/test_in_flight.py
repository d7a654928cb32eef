"""What is in flight in runs of Dagster."""

import pytest
from dagster import AssetKey, DagsterRunStatus, Definitions
from dagster import asset as plain_asset

from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.tags import PROCESS_TAG, process_tag


def open_run(home, name, status, **tags):
    @plain_asset(name=name)
    def body(): ...

    keys = {AssetKey(name)}
    repository = Definitions([body]).get_repository_def()
    job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
    return home.instance.create_run_for_job(
        job, asset_selection=keys, tags=tags, status=status
    ).run_id


@pytest.mark.parametrize(
    "status", [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]
)
def test_a_node_of_an_open_run_is_running(home, built, status):
    home.advance("PM100", modules=built)
    run_id = open_run(home, "model", status)
    assert home.states(built)["model"] == "running"
    home.instance.delete_run(run_id)
    assert home.states(built)["model"] == "stale"


def test_a_run_of_this_process_is_running(home, built):
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: process_tag()})
    assert home.states(built)["model"] == "running"


def test_a_run_on_another_host_is_not_taken_for_dead(home, built):
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: "elsewhere:1:1.00"})
    assert home.states(built)["model"] == "running"


def test_a_process_is_the_same_one_after_the_clock_was_set(home, built):
    host, pid, started = process_tag().rsplit(":", 2)
    moved = f"{host}:{pid}:{float(started) + 2:.2f}"
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: moved})
    assert home.states(built)["model"] == "running"


def test_a_run_whose_process_was_killed_does_not_count_and_is_remembered(home, built):
    host, pid, _ = process_tag().rsplit(":", 2)
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: f"{host}:{pid}:1.00"})
    assert home.states(built)["model"] == "fresh"
    assert watermark.nothing_new(home.folder, home.project().database)


def test_a_node_that_an_open_run_has_built_is_no_longer_running(home, built):
    run_id = open_run(home, "model", DagsterRunStatus.STARTED)
    home.sql("UPDATE builds SET run_id = :run WHERE asset = 'model'", run=run_id)
    assert home.states(built)["model"] == "fresh"
