"""The third seed on a real instance: datasets that are known only while a node runs.

What the tests of the original assert (T1 to T27 of facts/aliases.md), and where it stands here:

T1, T3, T4   test_a_task_emits_to_the_alias..., test_metadata_that_is_yielded...
T2           core/test_emissions.py, test_three_aliases_of_which_two_agree...
T5, T23      nothing is inactive, and nothing is referred to by an API, in Dagster
T6           test_an_alias_that_was_never_resolved...
T7           a string is a key, as the seed has it; anything else is a TypeError
T8           an error, not silence: test_an_undeclared_alias_is_an_error...
T9           test_every_consumer_of_an_alias_is_stale_by_one_event
T10          constant cost: benchmarks/alias_100000.py
T11          test_different_extras_are_different_events: nobody follows these
T12          Dagster's own asset sensors listen to the keys
T13 to T15   core/test_emissions.py, test_the_truth_table_of_conditions
T16          test_the_edges_are_there_before_anything_ran
T17          test_an_alias_that_several_nodes_name_is_one
T18          core/test_emissions.py, test_an_accessor_is_made_once...
T19          one way: the object or its name
T20          test_an_event_is_read_under_its_alias_and_under_its_dataset
T21          inlet_events is given whole: of an upstream what is new, of an inlet the latest 100
T22          only a declared source has partitions: test_an_alias_is_resolved_to_a_partition...
T24          ledger/test_outlets_ledger.py, test_one_event_of_two_aliases...
T25, T26     there is no client of ours with versions of its own
T27          deps and conditions stand for the sensor
"""

import pytest
from dagster import AssetKey
from homes import names_of

from examlops_dagster import DatasetAlias, DefinitionError
from examlops_dagster.ledger.outlets import Outlets

SEED = """\
from examlops_dagster import Dataset, DatasetAlias, Metadata, asset, task


@task(outlets=[DatasetAlias("my-task-outputs")], timeout_seconds=None)
def my_task(*, ds, outlet_events):
    outlet_events["my-task-outputs"].add(Dataset(f"s3://bucket/my-task/{ds}"))


@task(outlets=[DatasetAlias("by-yield")], timeout_seconds=None)
def yielding(*, ds):
    s3_dataset = Dataset(f"s3://bucket/my-task/{ds}")
    yield Metadata(s3_dataset, extra={"k": "v"}, alias="by-yield")


@task(outlets=[DatasetAlias("out1"), DatasetAlias("out2")], timeout_seconds=None)
def to_both(*, ds):
    s3_dataset = Dataset("s3://bucket/both")
    yield Metadata(s3_dataset, extra={"k": "v"}, alias=["out1", "out2"])


@task(outlets=[DatasetAlias("out3"), DatasetAlias("out4")], timeout_seconds=None)
def apart(*, ds, outlet_events):
    dataset = Dataset("s3://bucket/apart")
    outlet_events["out3"].add(dataset, extra={"foo": 1})
    outlet_events["out4"].add(dataset, extra={"foo": 2})


@asset(deps=[DatasetAlias("my-task-outputs")], timeout_seconds=None)
def by_alias(inlet_events):
    return [event.uri for event in inlet_events[DatasetAlias("my-task-outputs")]]


@asset(deps=[Dataset("s3://bucket/both")], timeout_seconds=None)
def by_dataset(inlet_events):
    return [dict(event.extra) for event in inlet_events["s3://bucket/both"]]
"""


@pytest.fixture
def seed(home):
    return home.module(SEED)


def events(home, name, *, alias=True):
    project = home.project()
    found = Outlets(project.database).events(name, alias=alias)
    project.close()
    return found


def value(home, module, name):
    project = home.project(module)
    from examlops_dagster.core.seams import Node
    from examlops_dagster.formats import decode

    found = decode(project.value(Node(name))[0])
    project.close()
    return found


def test_a_task_emits_to_the_alias_and_to_the_dataset(home, seed):
    assert home.exa(seed, "my_task").ok
    [event] = events(home, "my-task-outputs")
    assert event.uri.startswith("s3://bucket/my-task/20")
    assert (event.source, event.aliases, event.extra) == ("my_task", ("my-task-outputs",), {})
    parts = event.uri.replace("://", "/").split("/")
    [stored] = home.instance.fetch_materializations(AssetKey(parts), limit=9).records
    assert stored.asset_materialization.metadata["uri"].value == event.uri
    [of_alias] = home.events("my-task-outputs")
    assert of_alias.metadata["resolved_to"].value == [event.uri]


def test_metadata_that_is_yielded_carries_its_extra(home, seed):
    assert home.exa(seed, "yielding").ok
    [event] = events(home, "by-yield")
    assert event.extra == {"k": "v"}


def test_an_addition_to_several_aliases_is_one_event(home, seed):
    assert home.exa(seed, "to_both").ok
    [one], [other] = events(home, "out1"), events(home, "out2")
    assert one.uri == other.uri == "s3://bucket/both"
    assert one.aliases == ("out1", "out2")
    assert len(home.events("s3/bucket/both")) == 1


def test_different_extras_are_different_events(home, seed):
    assert home.exa(seed, "apart").ok
    extras = [[(e.extra, e.aliases) for e in events(home, alias)] for alias in ("out3", "out4")]
    assert extras == [[({"foo": 1}, ("out3",))], [({"foo": 2}, ("out4",))]]
    assert len(home.events("s3/bucket/apart")) == 2


def test_who_follows_an_alias_runs_once_it_was_resolved(home, seed):
    assert home.states(seed)["by_alias"] == "waiting for upstream"
    assert "my-task-outputs" in home.why(seed, "by_alias")[-1]
    home.exa(seed, "my_task")
    assert home.states(seed)["by_alias"] == "never built"
    assert home.exa(seed, "by_alias").ok
    assert home.states(seed)["by_alias"] == "fresh"
    home.exa(seed, "my_task")
    assert home.why(seed, "by_alias") == ("upstream my-task-outputs changed (1 → 2)",)


def test_who_follows_a_dataset_runs_whatever_alias_it_came_through(home, seed):
    assert home.states(seed)["by_dataset"] == "waiting for upstream"
    home.exa(seed, "to_both")
    assert home.exa(seed, "by_dataset").ok
    assert value(home, seed, "by_dataset") == [{"k": "v"}]


def test_a_request_runs_the_producer_first_and_then_its_consumer(home, seed):
    report = home.exa(seed, "by_alias")
    assert names_of(report.rebuilt) == ["my_task", "by_alias"]
    assert len(report.runs) == 2
    assert len(value(home, seed, "by_alias")) == 1


QUIET = """\
from examlops_dagster import DatasetAlias, asset, task

ADD = []


@task(outlets=[DatasetAlias("out")], timeout_seconds=None)
def producer(outlet_events):
    for uri in ADD:
        outlet_events[DatasetAlias("out")].add(uri)


@asset(deps=[DatasetAlias("out")], timeout_seconds=None)
def consumer(inlet_events):
    return [event.uri for event in inlet_events["out"]]
"""


def test_nothing_added_is_nothing_triggered(home):
    module = home.module(QUIET)
    report = home.exa(module, "consumer")
    assert names_of(report.rebuilt) == ["producer"]
    assert [str(node) for node in report.deferred] == ["consumer"]
    assert home.states(module)["consumer"] == "waiting for upstream"
    module.ADD = ["s3://a", "s3://b"]
    home.exa(module, "producer")
    home.exa(module, "consumer")
    assert value(home, module, "consumer") == ["s3://a", "s3://b"]
    module.ADD = []
    home.exa(module, "producer")
    assert home.states(module)["consumer"] == "fresh"


def test_a_first_run_gets_no_history_and_later_ones_what_is_new(home):
    module = home.module(QUIET)
    for uri in ("s3://1", "s3://2", "s3://3"):
        module.ADD = [uri]
        home.exa(module, "producer")
    home.exa(module, "consumer", no_deps=True)
    assert value(home, module, "consumer") == ["s3://3"]
    for uri in ("s3://4", "s3://5"):
        module.ADD = [uri]
        home.exa(module, "producer")
    home.exa(module, "consumer", no_deps=True)
    assert value(home, module, "consumer") == ["s3://4", "s3://5"]


def test_a_failed_attempt_emits_nothing_and_a_retry_once(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, task

        TRIES = []


        @task(outlets=[DatasetAlias("out")], retries=1, timeout_seconds=None)
        def flaky(outlet_events):
            outlet_events["out"].add("s3://x")
            TRIES.append(1)
            if len(TRIES) == 1:
                raise OSError("once")
        """
    )
    assert home.exa(module, "flaky").ok
    assert len(module.TRIES) == 2
    assert len(events(home, "out")) == len(home.events("s3/x")) == 1


def test_an_undeclared_alias_is_an_error_and_not_silence(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, Metadata, task


        @task(outlets=[DatasetAlias("out")], timeout_seconds=None)
        def adding(outlet_events):
            outlet_events["other"].add("s3://x")


        @task(outlets=[DatasetAlias("out", match="s3://good/*")], timeout_seconds=None)
        def yielding():
            yield Metadata("s3://bad/x", alias="out")
        """
    )
    [failed] = home.exa(module, "adding").failed
    assert "has no outlet 'other'" in failed.reason
    [failed] = home.exa(module, "yielding").failed
    assert "takes s3://good/*, not s3://bad/x" in failed.reason
    assert events(home, "out") == []


def test_a_dataset_that_is_an_outlet_gets_one_event_however_it_was_added(home):
    module = home.module(
        """\
        from examlops_dagster import Dataset, DatasetAlias, Metadata, asset


        @asset(outlets=[Dataset("s3://x"), DatasetAlias("out")], timeout_seconds=None)
        def both():
            yield Metadata(Dataset("s3://x"), extra={"rows": 3}, alias="out")


        @asset(outlets=[Dataset("s3://y")], timeout_seconds=None)
        def plain():
            return 1
        """
    )
    assert home.exa(module, "both", "plain").ok
    [event] = events(home, "s3://x", alias=False)
    assert (event.extra, event.aliases) == ({"rows": 3}, ("out",))
    [event] = events(home, "s3://y", alias=False)
    assert event.aliases == ()


CONDITIONS = """\
from examlops_dagster import Dataset, DatasetAlias, asset

A, B = Dataset("s3://a"), DatasetAlias("b")


@asset(deps=A & B, timeout_seconds=None)
def both(**upstream):
    return sorted(upstream)


@asset(deps=[A | B], timeout_seconds=None)
def either(**upstream):
    return {name: version for name, version in upstream.items() if version}
"""


def emit(home, module, name, uri):
    project = home.project(module)
    project.emit(name, uri)
    project.close()


def test_conditions_of_several_hold_together_or_one_by_one(home):
    module = home.module(CONDITIONS)
    assert home.states(module)["both"] == home.states(module)["either"] == "waiting for upstream"
    emit(home, module, "s3://a", "s3://a")
    assert home.states(module)["both"] == "waiting for upstream"
    assert home.exa(module, "either").ok
    assert value(home, module, "either") == {"s3://a": 1}
    emit(home, module, "b", "s3://somewhere")
    assert home.exa(module, "both", "either").ok
    emit(home, module, "b", "s3://elsewhere")
    assert home.states(module)["both"] == "fresh"
    assert home.why(module, "either") == ("upstream b changed (1 → 2)",)
    emit(home, module, "s3://a", "s3://a")
    assert len(home.why(module, "both")) == 2


def test_each_event_is_a_build_of_its_own_where_that_is_asked(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, each_event, task

        SEEN = []


        @task(deps=each_event(DatasetAlias("out")), timeout_seconds=None)
        def one_by_one(inlet_events):
            SEEN.append([event.uri for event in inlet_events["out"]])
        """
    )
    for number in range(3):
        emit(home, module, "out", f"s3://{number}")
    home.exa(module, "one_by_one")
    for number in range(3, 6):
        emit(home, module, "out", f"s3://{number}")
    report = home.exa(module, "one_by_one")
    assert len(report.rebuilt) == 3
    assert module.SEEN == [["s3://2"], ["s3://3"], ["s3://4"], ["s3://5"]]
    assert home.states(module)["one_by_one"] == "fresh"


def test_an_input_of_an_alias_is_the_list_of_what_is_new(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(inputs={"new": DatasetAlias("out")}, timeout_seconds=None)
        def reader(new):
            return [event.uri for event in new]
        """
    )
    emit(home, module, "out", "s3://x")
    assert home.exa(module, "reader").ok
    assert value(home, module, "reader") == ["s3://x"]


def test_an_inlet_that_is_no_upstream_gives_the_latest_events_and_triggers_nothing(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(inlets=[DatasetAlias("seen"), DatasetAlias("never")], timeout_seconds=None)
        def reader(inlet_events):
            return [len(inlet_events[DatasetAlias(name)]) for name in ("seen", "never")]
        """
    )
    emit(home, module, "seen", "s3://x")
    assert home.exa(module, "reader").ok
    assert value(home, module, "reader") == [1, 0]
    emit(home, module, "seen", "s3://y")
    assert home.states(module)["reader"] == "fresh"


def test_the_worker_process_hands_events_back(home):
    module = home.module(SEED.replace(", timeout_seconds=None", ""))
    assert home.exa(module, "my_task", "to_both").ok
    assert len(events(home, "my-task-outputs")) == len(events(home, "out2")) == 1


def test_a_partition_emits_for_itself(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset, partitions


        @asset(
            partitions={"key": partitions(["a", "b"])},
            outlets=DatasetAlias("out"),
            timeout_seconds=None,
        )
        def parts(key, outlet_events):
            outlet_events["out"].add(f"s3://{key}")
        """
    )
    assert home.exa(module, "parts").ok
    assert [(e.uri, e.source_partition) for e in events(home, "out")] == [
        ("s3://a", "a"),
        ("s3://b", "b"),
    ]
    assert len(home.events("s3/b")) == 1
    assert len(home.events("out")) == 2


def test_a_click_emits_too(home, seed):
    assert home.click(seed, "to_both").success
    assert len(events(home, "out1")) == len(home.events("out1")) == 1
    assert home.states(seed)["by_dataset"] == "never built"


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
    [event] = events(home, "my-task-outputs")
    assert (event.uri, event.extra, event.source) == ("s3://elsewhere", {"rows": 3}, "")


def test_a_report_over_rest_on_a_dataset_triggers_who_follows_it(home, seed):
    home.report("s3/bucket/both", "v7")
    assert home.states(seed)["by_dataset"] == "never built"
    assert home.exa(seed, "by_dataset").ok
    assert value(home, seed, "by_dataset") == [{}]


def test_a_name_is_an_alias_or_an_asset(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(outlets=DatasetAlias("same"))
        def producer(): ...


        @asset
        def same(): ...
        """
    )
    with pytest.raises(DefinitionError, match="share one name space"):
        home.states(module)


def test_a_condition_names_what_it_waits_for():
    condition = (DatasetAlias("a") & DatasetAlias("b")) | DatasetAlias("c")
    assert str(condition.over(lambda a: a.name)) == "(a & b) | c"


def test_a_batch_job_hands_events_back_and_gets_those_of_its_inlets(home, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(home.folder / "spool"))
    module = home.module(SEED.replace(", timeout_seconds=None", ""))
    assert home.exa(module, "to_both", "yielding", "my_task", orchestrator="scheduler").ok
    assert len(events(home, "my-task-outputs")) == len(events(home, "out2")) == 1
    assert home.exa(module, "by_dataset", orchestrator="scheduler").ok
    assert value(home, module, "by_dataset") == [{"k": "v"}]


def test_a_program_of_a_job_appends_lines_to_the_file_of_its_outlets(home, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(home.folder / "spool"))
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset

        LINE = '{"dataset": "s3://x", "extra": {"rows": 3}, "alias": "out"}'


        @asset(
            outlets=DatasetAlias("out"),
            command=["sh", "-c", f"echo '{LINE}' >> $EXAMLOPS_OUTLET_EVENTS"],
        )
        def program(): ...
        """
    )
    assert home.exa(module, "program", orchestrator="scheduler").ok
    [event] = events(home, "out")
    assert (event.uri, event.extra) == ("s3://x", {"rows": 3})


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
    before = [(e.uri, e.extra, e.version) for e in events(home, "out2")]
    home.close()
    for path in home.folder.glob("platform.db*"):
        path.unlink()
    assert home.states(seed)["by_dataset"] == "never built"
    assert [(e.uri, e.extra, e.version) for e in events(home, "out2")] == before


def test_an_alias_that_was_never_resolved_has_no_first_event_and_the_function_goes_on(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(inlets=[DatasetAlias("never")], timeout_seconds=None)
        def reader(inlet_events):
            try:
                inlet_events[DatasetAlias("never")][0]
            except IndexError:
                return "none"
        """
    )
    assert home.exa(module, "reader").ok
    assert value(home, module, "reader") == "none"


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
    assert value(home, module, "second") == [["s3://one"], ["s3://one"]]
    home.exa(module, "other")
    home.exa(module, "second", no_deps=True)
    assert value(home, module, "second") == [["s3://other"], []]
