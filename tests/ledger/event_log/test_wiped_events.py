"""Wiped assets and deleted runs, whose ids Dagster gives anew."""

import pytest
from dagster import DataVersion, MaterializeResult, materialize
from dagster import asset as plain_asset
from homes import names_of
from stored_events import everything

from examlops_dagster.ledger import watermark


@pytest.mark.parametrize("name", ["features", "model"])
def test_a_wiped_asset_was_never_materialized_and_its_numbers_go_on(home, built, name):
    """The events of `model` are the last ones: SQLite gives their ids anew."""
    home.wipe(name)
    assert home.why(built, name)[0] == "never materialized"
    assert home.versions(built)[name] == 0
    assert names_of(home.exa(built, name).rebuilt) == [name]
    assert home.versions(built)[name] == 2
    assert home.states(built)[name] == "fresh"


def test_an_event_that_got_the_id_of_a_wiped_one_is_read(home, built):
    home.report("model", "wiped soon")
    assert home.records(built)["model"].data_version == "wiped soon"
    home.wipe("model")
    home.report("PM100", "theirs")
    assert home.records(built)["PM100"].data_version == "theirs"
    assert home.why(built, "features") == ("upstream PM100 changed (1 → 2)",)


def test_an_event_that_got_the_id_of_a_wiped_one_is_read_after_a_sync_between(home, built):
    home.wipe("model")
    home.records(built)
    home.report("PM100", "theirs")
    assert home.records(built)["PM100"].data_version == "theirs"


def test_an_event_from_outside_that_got_the_id_of_another_one_is_recorded(home, built):
    home.report("model", "one")
    home.records(built)
    home.wipe("model")
    home.report("model", "two")
    assert home.records(built)["model"].data_version == "two"


def test_after_a_wipe_the_next_request_needs_no_dagster_again(home, built):
    home.wipe("model")
    home.records(built)
    assert watermark.nothing_new(home.folder, home.project().database)


def test_an_observed_source_survives_the_wipe_of_another_asset(home, chain):
    home.observe("PM100", "seen")
    assert home.exa(chain, "model").ok
    home.wipe("model")
    assert home.records(chain)["PM100"].data_version == "seen"
    home.wipe("PM100")
    assert "PM100" not in home.records(chain)


def test_a_deleted_run_hides_no_later_event(home, built):
    """Deleting a run in the UI frees the ids of its events."""
    run_plain(home, "theirs", "one")
    assert home.records(built)["theirs"].data_version == "one"
    [run] = home.instance.get_runs(limit=1)
    home.instance.delete_run(run.run_id)
    run_plain(home, "theirs", "two")
    assert home.records(built)["theirs"].data_version == "two"


def test_a_deleted_run_leaves_what_it_built(home, built):
    before = everything(home, built)
    for run in home.instance.get_runs():
        home.instance.delete_run(run.run_id)
    assert everything(home, built) == before
    assert home.states(built) == dict.fromkeys(before, "fresh")


def test_a_history_that_was_deleted_with_its_folder_starts_anew(home, built):
    import shutil

    home.instance.dispose()
    home._instance = None
    shutil.rmtree(home.folder / "history")
    assert home.states(built)["model"] == "never built"
    assert home.exa(built, "model").ok
    assert home.versions(built) == {"PM100": 2, "features": 2, "model": 2}
    home.report("PM100", "theirs")
    assert home.versions(built)["PM100"] == 3


def run_plain(home, name, data_version):
    @plain_asset(name=name)
    def body():
        return MaterializeResult(data_version=DataVersion(data_version))

    assert materialize([body], instance=home.instance).success
