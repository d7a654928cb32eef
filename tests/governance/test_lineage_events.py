"""What is told of a build, and that the schemas of OpenLineage have nothing against it."""

import json
import subprocess
import sys
from datetime import datetime, timezone

import pytest
from fakes.marquez import marquez
from lineages import (
    OURS,
    Told,
    events_of,
    facets_in,
    home_for_a_class,
    problems_of,
    with_schemas,
)

from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.governance.lineage import deliver
from examlops_dagster.governance.lineage_events import end_of
from examlops_dagster.governance.lineage_facets import PRODUCER
from examlops_dagster.governance.lineage_names import Names, physical
from examlops_dagster.governance.lineage_rows import Facts

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


def built(home, text, *names, **how):
    module = home.module(text)
    report = home.exa(module, *names, **how)
    return module, report


def last(home, name):
    return events_of(home, name)[-1]


def output_of(event, name):
    [found] = [o for o in event["outputs"] if o["name"] == name]
    return found


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


PARTITIONED = """\
from examlops_dagster import AssetOutput, all_keys, asset, daily, partitions

SPACE = {"day": daily("2024-01-01", "2024-01-04", timezone="Europe/Berlin")}

@asset("jobs_daily", partitions=SPACE, deps=["PM100"], timeout_seconds=None)
def jobs_daily(day, **upstream):
    return AssetOutput({"day": day}, metadata={"dagster/row_count": 7})

@asset("grid", partitions={"day": daily("2024-01-01", "2024-01-02"), "site": partitions(["a"])},
       deps=["PM100"], timeout_seconds=None)
def grid(day, site, **upstream):
    return 1

@asset("total", deps=[all_keys(jobs_daily)], timeout_seconds=None)
def total(**upstream):
    return len(upstream["jobs_daily"])
"""


class TestPartitions:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home:
            home.declare("PM100")
            _, report = built(home, PARTITIONED, "total", "grid")
            assert report.ok
            return Told(home, "jobs_daily", "grid", "total")

    def test_each_partition_is_a_run_that_says_which(self, told):
        events = events_of(told, "jobs_daily")
        assert len({e["run"]["runId"] for e in events}) == 3
        subset = output_of(events[-1], "jobs_daily")["outputFacets"]["subset"]["outputCondition"]
        assert subset["partitions"] == [
            {"dimensions": {"day": "2024-01-03"}, "identifier": "2024-01-03"}
        ]

    def test_the_nominal_time_is_the_window_in_its_zone(self, told):
        facet = last(told, "jobs_daily")["run"]["facets"]["nominalTime"]
        assert facet["nominalStartTime"] == "2024-01-03T00:00:00+01:00"
        assert facet["nominalEndTime"] == "2024-01-04T00:00:00+01:00"

    def test_the_rows_that_a_function_counts_are_told(self, told):
        event = last(told, "jobs_daily")
        facets = output_of(event, "jobs_daily")["outputFacets"]
        assert facets["outputStatistics"]["rowCount"] == 7

    def test_two_dimensions_keep_their_names(self, told):
        facets = output_of(last(told, "grid"), "grid")["outputFacets"]
        assert facets["subset"]["outputCondition"]["partitions"] == [
            {"dimensions": {"day": "2024-01-01", "site": "a"}, "identifier": "2024-01-01|a"}
        ]

    def test_an_upstream_is_one_input_with_all_the_partitions_that_were_read(self, told):
        [read] = last(told, "total")["inputs"]
        assert read["name"] == "jobs_daily"
        assert len(read["inputFacets"]["subset"]["inputCondition"]["partitions"]) == 3
        assert read["facets"]["examlops_versions"]["total"] == 3

    @pytest.mark.parametrize("name", ["jobs_daily", "grid", "total"])
    def test_the_schemas_have_nothing_against_it(self, told, name):
        events = events_of(told, name)
        assert [problem for event in events for problem in problems_of(event)] == []

    test_the_schemas_have_nothing_against_it.pytestmark += with_schemas


def test_the_columns_and_rows_of_a_table_are_told(home):
    pytest.importorskip("pyarrow")
    home.declare("PM100")
    built(
        home,
        """\
        from examlops_dagster import asset

        @asset("table", deps=["PM100"], timeout_seconds=None, serializer="parquet")
        def table(**upstream):
            import pandas
            return pandas.DataFrame({"job": [1, 2], "name": ["a", "b"]})
        """,
        "table",
    )
    output = output_of(last(home, "table"), "table")
    fields = [(f["name"], f["type"]) for f in output["facets"]["schema"]["fields"]]
    assert fields[0] == ("job", "int64")
    assert fields[1][0] == "name"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_what_dagster_says_of_a_table_is_told(home):
    home.declare("PM100")
    built(
        home,
        """\
        from dagster import (
            AssetKey, MetadataValue, TableColumn, TableColumnDep, TableColumnLineage, TableSchema
        )
        from examlops_dagster import AssetOutput, asset

        @asset("orders", deps=["PM100"], timeout_seconds=None)
        def orders(**upstream):
            return AssetOutput(metadata={
                "dagster/table_name": "shop.public.orders",
                "dagster/storage_kind": "snowflake",
                "dagster/row_count": MetadataValue.int(12),
                "dagster/column_schema": TableSchema([TableColumn("id", "int", description="Key")]),
                "dagster/column_lineage": TableColumnLineage(
                    {"id": [TableColumnDep(AssetKey("PM100"), "raw_id")]}
                ),
            })
        """,
        "orders",
    )
    event = last(home, "orders")
    output = output_of(event, "orders")
    [field] = output["facets"]["schema"]["fields"]
    assert (field["name"], field["type"], field["description"]) == ("id", "int", "Key")
    [link] = output["facets"]["symlinks"]["identifiers"]
    assert (link["name"], link["type"]) == ("shop.public.orders", "TABLE")
    [source] = output["facets"]["columnLineage"]["fields"]["id"]["inputFields"]
    assert (source["name"], source["field"]) == ("PM100", "raw_id")
    assert source["namespace"] == event["inputs"][0]["namespace"]
    assert problems_of(event) == []


test_what_dagster_says_of_a_table_is_told.pytestmark = with_schemas


class TestNames:
    def test_the_namespace_is_that_of_the_jobs_and_begins_that_of_the_datasets(self):
        names = Names.of({"EXAMLOPS_OPENLINEAGE_NAMESPACE": "prod"})
        assert names.namespace == "prod"
        assert names.dataset("model") == ("prod://dataset", "model")
        assert Names.of({}).dataset("model") == ("examlops://dataset", "model")

    def test_an_alias_has_a_name_of_its_own(self):
        assert Names().dataset("out", is_alias=True) == ("examlops://aliases", "out")

    @pytest.mark.parametrize(
        ("uri", "namespace", "name"),
        [
            ("s3://bucket/a/b.parquet", "s3://bucket", "a/b.parquet"),
            ("s3://key:secret@bucket/a?X-Amz-Signature=1", "s3://bucket", "a"),
            ("file:///data/a%20b", "file", "/data/a b"),
            ("/data/a", "file", "/data/a"),
            (
                "postgresql://me:pw@db:5432/shop/public/orders",
                "postgres://db:5432",
                "shop.public.orders",
            ),
            ("https://host/data?token=1", "https://host", "data"),
        ],
    )
    def test_what_is_known_by_a_uri_has_the_name_that_others_give_it(self, uri, namespace, name):
        assert physical(uri) == (namespace, name)


ALIASES = """\
from examlops_dagster import Dataset, DatasetAlias, Metadata, asset, task

@task(outlets=[DatasetAlias("out"), Dataset("s3://lake/fixed")], timeout_seconds=None)
def producer():
    yield Metadata("s3://lake/one", extra={"rows": 1}, alias="out")
    yield Metadata("s3://lake/two", extra={"rows": 2}, alias="out")

@asset("reader", deps=[DatasetAlias("out")], timeout_seconds=None)
def reader(**upstream):
    return 1
"""


def test_what_somebody_emits_from_outside_is_told_without_a_build(home, monkeypatch):
    module = home.module(ALIASES)
    project = home.project(module)
    project.emit("out", "s3://lake/three", {})
    project.close()
    with marquez() as consumer:
        monkeypatch.setenv("EXAMLOPS_OPENLINEAGE_URL", consumer.url)
        project = home.project(module)
        deliver(project.database, project.home)
        assert deliver(project.database, project.home).delivered == 0
        [event] = consumer.events
    assert (event["eventType"], event["job"]["name"]) == ("COMPLETE", "asset:out")
    assert [(o["namespace"], o["name"]) for o in event["outputs"]] == [
        ("s3://lake", "three"),
        ("examlops://aliases", "out"),
    ]


class TestAliases:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home:
            module, report = built(home, ALIASES, "producer")
            assert report.ok
            assert home.exa(module, "reader").ok
            return Told(home, "producer", "reader", "out", "s3://lake/one")

    def test_what_an_alias_was_resolved_to_is_written_at_the_end_alone(self, told):
        start, end = events_of(told, "producer")
        assert [(o["namespace"], o["name"]) for o in start["outputs"]] == [
            ("examlops://dataset", "producer")
        ]
        assert {(o["namespace"], o["name"]) for o in end["outputs"]} == {
            ("examlops://dataset", "producer"),
            ("s3://lake", "fixed"),
            ("s3://lake", "one"),
            ("s3://lake", "two"),
            ("examlops://aliases", "out"),
        }

    def test_who_reads_the_alias_is_joined_to_who_resolved_it(self, told):
        [read] = last(told, "reader")["inputs"]
        assert (read["namespace"], read["name"]) == ("examlops://aliases", "out")
        made = output_of(last(told, "producer"), "out")
        assert made["facets"]["version"] == read["facets"]["version"]

    @pytest.mark.parametrize("name", ["out", "s3://lake/one"])
    def test_of_an_alias_or_a_dataset_the_events_of_who_wrote_it_are_shown(self, told, name):
        assert events_of(told, name) == events_of(told, "producer")

    def test_the_job_of_a_task_says_so(self, told):
        assert last(told, "producer")["job"]["facets"]["jobType"]["jobType"] == "TASK"

    @pytest.mark.parametrize("name", ["producer", "reader"])
    def test_the_schemas_have_nothing_against_it(self, told, name):
        events = events_of(told, name)
        assert [problem for event in events for problem in problems_of(event)] == []

    test_the_schemas_have_nothing_against_it.pytestmark += with_schemas


JOBS = """\
from examlops_dagster import asset

@asset("features", orchestrator="scheduler", resources={"time": "1m"})
def features():
    return 1

def closure():
    def hidden():
        return 2
    return hidden

model = asset("model", orchestrator="scheduler", resources={"time": "1m"})(closure())
"""


class TestJobs:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home, pytest.MonkeyPatch.context() as patch:
            patch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
            patch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
            _, report = built(home, JOBS, "features", "model")
            assert report.ok
            return Told(home, "features", "model")

    def test_the_job_of_the_scheduler_is_told(self, told):
        facet = last(told, "features")["run"]["facets"]["examlops_hpcJob"]
        assert (facet["scheduler"], facet["state"]) == ("mock", "COMPLETED")
        assert facet["jobId"]
        assert (
            last(told, "features")["run"]["facets"]["examlops_build"]["orchestrator"] == "scheduler"
        )

    def test_a_fallback_is_told(self, told):
        facets = last(told, "model")["run"]["facets"]
        assert "local" in facets["examlops_build"]["fallback"]
        assert "examlops_hpcJob" not in facets

    def test_the_schemas_have_nothing_against_it(self, told):
        assert problems_of(last(told, "features")) == []

    test_the_schemas_have_nothing_against_it.pytestmark = with_schemas


def test_a_flow_run_of_prefect_is_told():
    facts = Facts(
        "b",
        Node("model"),
        BuildState.SUCCEEDED,
        "",
        {},
        "prefect",
        "",
        {"orchestrator": "prefect", "prefect_flow_run_id": "f"},
        1,
        "d",
        "",
        datetime(2026, 1, 5, tzinfo=timezone.utc),
        datetime(2026, 1, 6, tzinfo=timezone.utc),
    )
    facet = end_of(facts, Names()).run.facets["examlops_build"]
    assert (facet.orchestrator, facet.prefect_flow_run_id) == ("prefect", "f")


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
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
