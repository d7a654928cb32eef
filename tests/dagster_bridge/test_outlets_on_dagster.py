"""Aliases as Dagster knows them: edges, reports, sources with partitions, and its log."""

from dagster import AssetKey


def test_the_edges_are_there_before_anything_ran(home, seed):
    graph = home.definitions(seed).resolve_asset_graph()
    assert graph.get(AssetKey("my-task-outputs")).parent_keys == {AssetKey("my_task")}
    assert graph.get(AssetKey("by_alias")).parent_keys == {AssetKey("my-task-outputs")}


def test_a_report_over_rest_on_an_alias_names_its_dataset(home, seed):
    from dagster import AssetMaterialization

    home.instance.report_runless_asset_event(
        AssetMaterialization(
            AssetKey("my-task-outputs"), metadata={"dataset": "s3://elsewhere", "rows": 3}
        )
    )
    assert home.states(seed)["by_alias"] == "never built"
    [event] = home.emissions("my-task-outputs")
    assert (event.uri, event.extra, event.source) == ("s3://elsewhere", {"rows": 3}, "")


def test_a_report_over_rest_on_a_dataset_triggers_who_follows_it(home, seed):
    home.report("s3/bucket/both", "v7")
    assert home.states(seed)["by_dataset"] == "never built"
    assert home.exa(seed, "by_dataset").ok
    assert home.value(seed, "by_dataset") == [{}]


SOURCES = """\
from examlops_dagster import DatasetAlias, asset


@asset(outlets=DatasetAlias("out"), timeout_seconds=None)
def loader(outlet_events):
    outlet_events["out"].add("raw_days", partition=DAY)
    outlet_events["out"].add("raw_all")


@asset(deps=["raw_all"], timeout_seconds=None)
def report(**upstream):
    return upstream


DAY = "mon"
"""


def test_an_alias_is_resolved_to_a_partition_of_a_declared_source(home):
    home.declare("raw_days", partitions="static:mon,tue")
    home.declare("raw_all")
    module = home.module(SOURCES)
    assert home.exa(module, "loader").ok
    assert home.exa(module, "report").ok
    versions = home.versions(module)
    assert (versions["raw_days[mon]"], versions["raw_all"]) == (1, 1)
    assert "raw_days[tue]" not in {n for n, v in versions.items() if v}
    home.exa(module, "loader", force=True)
    assert home.why(module, "report") == ("upstream raw_all changed (1 → 2)",)
    module.DAY = "never"
    [failed] = home.exa(module, "loader", force=True).failed
    assert "has no partition 'never'" in failed.reason


def test_a_lost_platform_db_is_filled_with_events_from_dagsters_log(home, seed):
    home.exa(seed, "to_both")
    home.exa(seed, "to_both", force=True)
    before = [(e.uri, e.extra, e.version) for e in home.emissions("out2")]
    home.close()
    for path in home.folder.glob("platform.db*"):
        path.unlink()
    assert home.states(seed)["by_dataset"] == "never built"
    assert [(e.uri, e.extra, e.version) for e in home.emissions("out2")] == before


SEVERAL = """\
from examlops_dagster import Dataset, DatasetAlias, asset, task


@task(outlets=[DatasetAlias("out")], timeout_seconds=None)
def one(outlet_events):
    outlet_events["out"].add("s3://one")


@task(outlets=[DatasetAlias("out")], timeout_seconds=None)
def other(outlet_events):
    outlet_events["out"].add("s3://other")


@asset(deps=[DatasetAlias("out")], timeout_seconds=None)
def first(): ...


@asset(deps=[DatasetAlias("out"), Dataset("s3://one")], timeout_seconds=None)
def second(inlet_events):
    return [[e.uri for e in inlet_events[name]] for name in ("out", "s3://one")]
"""


def test_an_alias_that_several_nodes_name_is_one(home):
    graph = home.definitions(home.module(SEVERAL)).resolve_asset_graph()
    alias = graph.get(AssetKey("out"))
    assert alias.parent_keys == {AssetKey("one"), AssetKey("other")}
    assert alias.child_keys == {AssetKey("first"), AssetKey("second")}


def test_every_consumer_of_an_alias_is_stale_by_one_event(home):
    module = home.module(SEVERAL)
    home.exa(module, "one")
    home.exa(module, "first", "second", no_deps=True)
    home.exa(module, "other")
    states = home.states(module)
    assert states["first"] == states["second"] == "stale"


def test_an_event_is_read_under_its_alias_and_under_its_dataset(home):
    module = home.module(SEVERAL)
    home.exa(module, "one")
    home.exa(module, "second", no_deps=True)
    assert home.value(module, "second") == [["s3://one"], ["s3://one"]]
    home.exa(module, "other")
    home.exa(module, "second", no_deps=True)
    assert home.value(module, "second") == [["s3://other"], []]
