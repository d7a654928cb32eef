"""What others write to Dagster's event log."""

from dagster import AssetKey, AssetMaterialization
from homes import CHAIN
from stored_events import build_between

from examlops_dagster.core.records import Node, Read
from examlops_dagster.ledger.tags import DATA_VERSION_TAG


def test_a_materialization_from_outside_makes_what_is_below_it_stale(home, built):
    home.report("PM100", "theirs")
    record = home.records(built)["PM100"]
    assert (record.version, record.data_version, record.build_id) == (2, "theirs", "")
    assert home.why(built, "features") == ("upstream PM100 changed (1 → 2)",)


def test_one_without_a_data_version_counts_as_new_content_each_time(home, built):
    for version in (2, 3):
        home.report("PM100")
        assert home.versions(built)["PM100"] == version


def test_an_equal_data_version_from_outside_keeps_the_integer_version(home, built):
    before = home.records(built)["PM100"]
    home.report("PM100", before.data_version)
    after = home.records(built)["PM100"]
    assert (after.version, after.data_version) == (before.version, before.data_version)
    assert home.states(built)["model"] == "fresh"


def test_the_later_of_a_materialization_and_an_observation_counts(home, built):
    home.report("PM100", "one")
    home.observe("PM100", "two")
    assert home.records(built)["PM100"].data_version == "two"
    home.observe("PM100", "three")
    home.report("PM100", "four")
    assert home.records(built)["PM100"].data_version == "four"


def test_an_observation_without_a_data_version_says_nothing_about_content(home, built):
    before = home.records(built)["PM100"]
    home.observe("PM100")
    assert home.records(built)["PM100"] == before


def test_a_source_that_is_only_observed_has_a_version(home, chain):
    home.observe("PM100", "seen")
    assert home.records(chain)["PM100"].version == 1


def test_a_record_made_outside_is_judged_by_its_upstreams_alone(home, built):
    home.report("features", "theirs")
    verdict = home.status(built)["features"]
    assert verdict.why == ()  # by another code, and with inputs that nobody recorded
    assert home.why(built, "model") == ("upstream features changed (1 → 2)",)
    home.advance("PM100", modules=built)
    assert home.why(built, "features") == (
        "upstream PM100 changed (1 → 2)",
        "inputs not recorded",
    )


def test_a_changed_code_does_not_make_a_record_made_outside_stale(home, built):
    home.report("model", "theirs")
    home.records(built)
    changed = home.module(CHAIN.replace('"from"', '"made from"'))
    assert home.why(changed, "model") == ()


def test_adopting_a_record_made_outside_makes_it_ours(home, built):
    home.report("features", "theirs")
    project = home.project(built)
    assert project.adopt("features") == [Node("features")]
    assert project.adopt("features") == []
    project.close()
    record = home.records(built)["features"]
    assert record.build_id
    assert record.version == 2
    assert record.built_from == {Node("PM100"): Read(1, home.records(built)["PM100"].data_version)}
    changed = home.module(CHAIN.replace('"read"', '"was read"'))
    assert home.why(changed, "features") == ("code changed",)


def test_a_record_made_outside_during_a_build_above_it_is_built_from_the_former_version(
    home, built
):
    """Our build sets the current version before its own event is read back."""
    build_between(home, built, Node("PM100"), "new", lambda: home.report("features", "theirs"))
    assert home.versions(built)["PM100"] == 2
    assert home.why(built, "features") == (
        "upstream PM100 changed (1 → 2)",
        "inputs not recorded",
    )


def test_an_asset_that_only_others_declare_is_recorded_as_historical(home, built):
    home.report("their/asset", "x")
    assert home.states(built)["their/asset"] == "historical"


URI_SOURCE = """\
from examlops_dagster import Dataset, asset


@asset("model", deps=[Dataset("s3://bucket/x")], timeout_seconds=None)
def build_model(**upstream):
    return upstream
"""


def test_what_a_stranger_took_over_is_stale_once_its_upstream_moves(home, chain):
    home.report("PM100", "one")
    home.report("features", "f-one")
    home.states()  # a command without the module takes the events over
    assert home.states(chain)["features"] == "fresh"
    home.report("PM100", "two")
    assert home.states(chain)["features"] == "stale"


def test_what_was_current_at_the_event_counts_and_not_what_came_later(home, chain):
    home.report("PM100", "one")
    home.report("features", "f-one")
    home.report("PM100", "two")
    home.states()
    assert home.states(chain)["features"] == "stale"


def test_an_event_for_a_uri_gets_its_name_from_who_declares_it(home):
    module = home.module(URI_SOURCE)
    home.instance.report_runless_asset_event(
        AssetMaterialization(AssetKey(["s3", "bucket", "x"]), tags={DATA_VERSION_TAG: "v"})
    )
    home.states()
    records = home.records(module)
    assert records["s3://bucket/x"].data_version == "v"
    assert "s3/bucket/x" not in records
