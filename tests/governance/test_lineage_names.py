"""The names under which datasets and aliases are told."""

import pytest
from fakes.marquez import marquez
from lineages import (
    Told,
    built,
    events_of,
    home_for_a_class,
    last,
    output_of,
    problems_of,
    with_schemas,
)

from examlops_dagster.governance.lineage import deliver
from examlops_dagster.governance.lineage_names import Names, physical


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
