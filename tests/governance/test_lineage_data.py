"""What is told of the data that a build reads and makes: partitions, columns and rows."""

import pytest
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
from needs import library

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
    library("pyarrow")
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
