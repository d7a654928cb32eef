"""What is told of a build, and that the schemas of OpenLineage have nothing against it."""

import json
import subprocess
import sys

import pytest
from lineages import (
    OURS,
    Told,
    built,
    events_of,
    facets_in,
    home_for_a_class,
    last,
    output_of,
    problems_of,
    with_schemas,
)

from examlops_dagster.governance.lineage_facets import PRODUCER

CHAIN = """\
from examlops_dagster import asset, sink


@asset("features", deps=["PM100"], timeout_seconds=None, owners=["team:ml"], kind="feature",
       tags={"tier": "gold"}, description="Features of jobs.",
       metadata={"dagster/uri": "s3://user:secret@lake/features?token=1"})
def build_features(**upstream):
    return {"read": upstream["PM100"]}


@asset("model", inputs={"features": build_features}, timeout_seconds=None, kind="model")
@sink("out/model.json")
def build_model(features):
    "The model."
    return {"from": features}
"""


class TestSuccess:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home:
            home.declare("PM100")
            _, report = built(home, CHAIN, "model")
            assert report.ok
            return Told(home, "PM100", "features", "model")

    def test_an_attempt_has_a_start_and_a_complete_of_one_run(self, told):
        start, end = events_of(told, "model")
        assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
        assert start["run"]["runId"] == end["run"]["runId"]
        assert start["job"]["name"] == end["job"]["name"] == "asset:model"
        assert start["eventTime"] < end["eventTime"]

    @pytest.mark.parametrize("name", ["PM100", "features", "model"])
    def test_the_schemas_have_nothing_against_it(self, told, name):
        events = events_of(told, name)
        assert events
        assert [problem for event in events for problem in problems_of(event)] == []

    test_the_schemas_have_nothing_against_it.pytestmark += with_schemas

    def test_inputs_have_the_version_that_was_read(self, told):
        [read] = last(told, "model")["inputs"]
        made = output_of(last(told, "features"), "features")
        assert (read["namespace"], read["name"]) == (made["namespace"], made["name"])
        assert read["facets"]["version"] == made["facets"]["version"]
        assert read["facets"]["examlops_versions"]["versions"][0]["version"] == 1

    def test_the_start_says_what_is_read(self, told):
        start, end = events_of(told, "model")
        assert start["inputs"] == end["inputs"]

    def test_the_output_is_not_there_before_the_end(self, told):
        start, end = events_of(told, "model")
        assert "version" not in output_of(start, "model")["facets"]
        assert "version" in output_of(end, "model")["facets"]

    def test_a_source_is_told_by_its_end_alone_and_reads_nothing(self, told):
        [event] = events_of(told, "PM100")
        assert event["eventType"] == "COMPLETE"
        assert event["inputs"] == []

    def test_the_parent_is_the_run_of_dagster(self, told):
        facet = last(told, "model")["run"]["facets"]["parent"]
        [run_id] = told.runs["model"]
        assert facet["run"]["runId"] == run_id
        assert facet["root"]["run"]["runId"] == run_id
        assert facet["job"]["name"]

    def test_the_job_has_type_owners_and_words(self, told):
        facets = last(told, "features")["job"]["facets"]
        assert facets["jobType"]["jobType"] == "ASSET"
        assert facets["jobType"]["processingType"] == "BATCH"
        assert facets["ownership"]["owners"][0]["name"] == "team:ml"
        assert facets["documentation"]["description"] == "Features of jobs."
        assert facets["tags"]["tags"][0]["key"] == "tier"
        assert last(told, "model")["job"]["facets"]["documentation"]["description"] == "The model."

    def test_the_run_says_who_built_it_and_on_what(self, told):
        facets = last(told, "model")["run"]["facets"]
        assert facets["processing_engine"]["name"] == "dagster"
        assert facets["examlops_build"]["orchestrator"] == "local"
        assert facets["examlops_build"]["state"] == "succeeded"

    def test_physical_names_come_from_metadata_without_their_secrets(self, told):
        links = output_of(last(told, "features"), "features")["facets"]["symlinks"]["identifiers"]
        assert [(i["namespace"], i["name"]) for i in links] == [("s3://lake", "features")]
        assert "secret" not in json.dumps(events_of(told, "features"))

    def test_a_sink_is_a_physical_name(self, told):
        [link] = output_of(last(told, "model"), "model")["facets"]["symlinks"]["identifiers"]
        assert (link["namespace"], link["name"]) == ("file", str(told.folder / "out/model.json"))

    def test_the_size_of_the_value_is_told(self, told):
        assert output_of(last(told, "model"), "model")["outputFacets"]["outputStatistics"]["size"]

    def test_a_schema_of_ours_is_in_the_package(self, told):
        ids = {json.loads(path.read_text())["$id"] for path in OURS.glob("*.json")}
        ours = [f for event in events_of(told, "model") for _, f in facets_in(event)]
        urls = {f["_schemaURL"] for f in ours if not f["_schemaURL"].startswith("https://open")}
        assert {url.partition("#")[0] for url in urls} <= ids
        assert {f["_producer"] for f in ours} == {PRODUCER}


def test_an_event_is_the_same_whenever_it_is_asked_for(home, chain):
    home.exa(chain, "model")
    assert events_of(home, "model") == events_of(home, "model")


def test_a_bad_event_or_facet_would_be_seen(home, chain):
    home.exa(chain, "model")
    event = last(home, "model")
    assert problems_of({**event, "eventTime": "2026-01-05T12:00:00"})
    assert problems_of({**event, "producer": "not a uri"})
    event["run"]["facets"]["nominalTime"] = {
        **event["run"]["facets"]["parent"],
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-1/NominalTimeRunFacet.json"
        "#/$defs/NominalTimeRunFacet",
    }
    assert problems_of(event) == ["run nominalTime: 'nominalStartTime' is a required property"]


test_a_bad_event_or_facet_would_be_seen.pytestmark = with_schemas


def test_an_unchanged_build_completes_with_the_version_that_was_there(home):
    home.declare("PM100")
    module, _ = built(
        home,
        """\
        from examlops_dagster import asset

        @asset("same", deps=["PM100"], timeout_seconds=None)
        def same(**upstream):
            return 1

        @asset("below", deps=["same"], timeout_seconds=None)
        def below(**upstream):
            return 2
        """,
        "below",
    )
    home.advance("PM100", modules=module)
    home.exa(module, "below")
    events = events_of(home, "below")
    assert [e["eventType"] for e in events] == ["START", "COMPLETE"] * 2
    assert events[-1]["run"]["facets"]["examlops_build"]["state"] == "unchanged"
    first, second = (output_of(e, "below")["facets"]["version"] for e in (events[1], events[3]))
    assert first == second


FAILS = """\
from examlops_dagster import asset

@asset("breaks", deps=["PM100"], timeout_seconds=None, retries=1)
def breaks(**upstream):
    raise ValueError("no such column: café")
"""


class TestFailure:
    @pytest.fixture(scope="class")
    @classmethod
    def failed(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home:
            home.declare("PM100")
            _, report = built(home, FAILS, "breaks")
            assert not report.ok
            return Told(home, "breaks")

    def test_each_attempt_is_a_run_with_a_start_and_a_fail(self, failed):
        events = events_of(failed, "breaks")
        assert [e["eventType"] for e in events] == ["START", "FAIL"] * 2
        assert len({e["run"]["runId"] for e in events}) == 2

    def test_the_error_has_its_message_and_traceback(self, failed):
        facet = last(failed, "breaks")["run"]["facets"]["errorMessage"]
        assert "no such column: café" in facet["message"]
        assert "ValueError" in facet["stackTrace"]
        assert 'raise ValueError("no such column' in facet["stackTrace"]

    def test_lineage_is_not_wiped_by_it(self, failed):
        event = last(failed, "breaks")
        assert [i["name"] for i in event["inputs"]] == ["PM100"]
        assert "version" not in output_of(event, "breaks")["facets"]

    def test_a_retry_says_so(self, failed):
        assert last(failed, "breaks")["run"]["facets"]["examlops_build"]["attempt"] == 2

    def test_the_schemas_have_nothing_against_it(self, failed):
        events = events_of(failed, "breaks")
        assert [problem for event in events for problem in problems_of(event)] == []

    test_the_schemas_have_nothing_against_it.pytestmark = with_schemas


def test_a_build_without_a_backend_imports_no_openlineage(home):
    home.write(
        "plain.py", "from examlops_dagster import asset\n\n@asset\ndef one():\n    return 1\n"
    )
    program = (
        "import sys, plain\n"
        "from examlops_dagster import materialize\n"
        "assert materialize('one', modules=[plain], in_process=True).ok\n"
        "assert not [m for m in sys.modules if m.startswith('openlineage')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
