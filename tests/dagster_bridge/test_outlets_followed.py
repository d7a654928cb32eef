"""Who follows an alias or a dataset: when it runs, and which events it is given."""

from homes import names_of

from examlops_dagster import DatasetAlias


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
    assert home.value(seed, "by_dataset") == [{"k": "v"}]


def test_a_request_runs_the_producer_first_and_then_its_consumer(home, seed):
    report = home.exa(seed, "by_alias")
    assert names_of(report.rebuilt) == ["my_task", "by_alias"]
    assert len(report.runs) == 2
    assert len(home.value(seed, "by_alias")) == 1


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
    assert home.value(module, "consumer") == ["s3://a", "s3://b"]
    module.ADD = []
    home.exa(module, "producer")
    assert home.states(module)["consumer"] == "fresh"


def test_a_first_run_gets_no_history_and_later_ones_what_is_new(home):
    module = home.module(QUIET)
    for uri in ("s3://1", "s3://2", "s3://3"):
        module.ADD = [uri]
        home.exa(module, "producer")
    home.exa(module, "consumer", no_deps=True)
    assert home.value(module, "consumer") == ["s3://3"]
    for uri in ("s3://4", "s3://5"):
        module.ADD = [uri]
        home.exa(module, "producer")
    home.exa(module, "consumer", no_deps=True)
    assert home.value(module, "consumer") == ["s3://4", "s3://5"]


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


def test_conditions_of_several_hold_together_or_one_by_one(home):
    module = home.module(CONDITIONS)
    assert home.states(module)["both"] == home.states(module)["either"] == "waiting for upstream"
    home.emit(module, "s3://a", "s3://a")
    assert home.states(module)["both"] == "waiting for upstream"
    assert home.exa(module, "either").ok
    assert home.value(module, "either") == {"s3://a": 1}
    home.emit(module, "b", "s3://somewhere")
    assert home.exa(module, "both", "either").ok
    home.emit(module, "b", "s3://elsewhere")
    assert home.states(module)["both"] == "fresh"
    assert home.why(module, "either") == ("upstream b changed (1 → 2)",)
    home.emit(module, "s3://a", "s3://a")
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
        home.emit(module, "out", f"s3://{number}")
    home.exa(module, "one_by_one")
    for number in range(3, 6):
        home.emit(module, "out", f"s3://{number}")
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
    home.emit(module, "out", "s3://x")
    assert home.exa(module, "reader").ok
    assert home.value(module, "reader") == ["s3://x"]


def test_an_inlet_that_is_no_upstream_gives_the_latest_events_and_triggers_nothing(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(inlets=[DatasetAlias("seen"), DatasetAlias("never")], timeout_seconds=None)
        def reader(inlet_events):
            return [len(inlet_events[DatasetAlias(name)]) for name in ("seen", "never")]
        """
    )
    home.emit(module, "seen", "s3://x")
    assert home.exa(module, "reader").ok
    assert home.value(module, "reader") == [1, 0]
    home.emit(module, "seen", "s3://y")
    assert home.states(module)["reader"] == "fresh"


def test_a_condition_names_what_it_waits_for():
    condition = (DatasetAlias("a") & DatasetAlias("b")) | DatasetAlias("c")
    assert str(condition.over(lambda a: a.name)) == "(a & b) | c"


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
    assert home.value(module, "reader") == "none"
