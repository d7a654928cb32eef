"""The defects of dagster-openlineage 0.2.1 (facts/openlineage.md, 4.2), which ours does not have."""

import json
import os
import signal
import subprocess
import time

import pytest
from command import COMMAND
from dagster import MonthlyPartitionsDefinition
from fakes.marquez import marquez
from homes import PROGRAMS
from lineages import (
    Told,
    assert_whole,
    ends_by_run,
    events_of,
    facets_in,
    home_for_a_class,
    problems_of,
    with_schemas,
)
from ticks import Automation
from waiting import wait_until

LIMIT_SECONDS = 300
SENSOR = "deliver_lineage"

PIPELINE = """\
from dagster import multiprocess_executor
from examlops_dagster import asset, build_definitions, daily, monthly, partitions, sink

@asset("features", deps=["PM100"], timeout_seconds=None, owners=["team:ml"], tags={"tier": "gold"})
def features(**upstream):
    "Features of jobs."
    return {"read": 1}

@asset("model", inputs={"features": features}, timeout_seconds=None, owners=["ada@example.org"])
def model(features):
    return 1

@asset("breaks", deps=["PM100"], timeout_seconds=None)
def breaks(**upstream):
    raise ValueError("no")

@asset("below", deps=["breaks"], timeout_seconds=None)
def below(**upstream):
    return 1
"""

DEFINITIONS = """\
from dagster import multiprocess_executor
from examlops_dagster import build_definitions

defs = build_definitions(["pipeline"], executor=multiprocess_executor)
"""


@pytest.fixture
def consumer(monkeypatch):
    # a backend on a busy machine is not one that is gone
    monkeypatch.setattr("examlops_dagster.governance.lineage_backend.TIMEOUT_SECONDS", 120.0)
    with marquez() as found:
        monkeypatch.setenv("EXAMLOPS_OPENLINEAGE_URL", found.url)
        yield found


def tick(home, module, **how):
    """Evaluate the sensor once, as the daemon does, and give what it said."""
    return Automation(home, module, "sensor", **how).evaluate(SENSOR).skip_message


class TestMultiprocess:
    """A run of Dagster alone, under its multiprocess executor, in which a step fails."""

    @pytest.fixture(scope="class")
    @classmethod
    def consumed(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home, marquez() as consumer:
            home.declare("PM100")
            home.write("pipeline.py", PIPELINE)
            home.write("defs.py", DEFINITIONS)
            environment = {**os.environ, "EXAMLOPS_OPENLINEAGE_URL": consumer.url}
            argv = [PROGRAMS / "dagster", "asset", "materialize", "-m", "defs", "--select"]
            done = subprocess.run(
                [*argv, "features,model,breaks,below"],
                env=environment, timeout=LIMIT_SECONDS, check=False, capture_output=True,
            )  # fmt: skip
            assert done.returncode == 1
            assert b"multiprocess executor" in done.stderr
            argv = [COMMAND, "-m", "pipeline", "lineage", "deliver"]
            subprocess.run(argv, env=environment, timeout=LIMIT_SECONDS, check=True)
            yield consumer

    def test_d1_no_two_jobs_share_a_run_id(self, consumed):
        jobs = {}
        for event in consumed.events:
            jobs.setdefault(event["run"]["runId"], set()).add(event["job"]["name"])
        assert all(len(names) == 1 for names in jobs.values())
        parents = {
            e["run"]["facets"]["parent"]["run"]["runId"]
            for e in consumed.events
            if "parent" in e["run"]["facets"]
        }
        assert len(parents) == 1
        assert parents.isdisjoint(jobs)

    def test_d2_assets_have_inputs(self, consumed):
        assert {("features", "PM100"), ("model", "features")} <= consumed.edges

    def test_d3_what_was_built_in_a_child_is_not_told_as_failed_by_another(self, consumed):
        assert consumed.kinds("asset:features") == ["START", "COMPLETE"]
        assert consumed.kinds("asset:model") == ["START", "COMPLETE"]
        assert consumed.kinds("asset:breaks") == ["START", "FAIL"]

    def test_d7_what_was_skipped_has_no_run(self, consumed):
        assert consumed.kinds("asset:below") == []

    def test_d7_a_start_is_when_it_began_and_not_when_it_was_planned(self, consumed):
        first_end = consumed.of_job("asset:features")[1]["eventTime"]
        assert consumed.of_job("asset:model")[0]["eventTime"] > first_end

    def test_d8_jobs_datasets_and_physical_names_have_their_own_namespaces(self, consumed):
        assert {job[0] for job in consumed.jobs} == {"examlops"}
        assert {dataset[0] for dataset in consumed.datasets} == {"examlops://dataset"}

    def test_d9_every_facet_that_was_missing_is_there(self, consumed):
        event = consumed.of_job("asset:features")[-1]
        assert {"jobType", "ownership", "documentation", "tags"} <= set(event["job"]["facets"])
        assert {"parent", "processing_engine"} <= set(event["run"]["facets"])
        [output] = event["outputs"]
        assert {"version", "datasetType", "ownership", "documentation"} <= set(output["facets"])
        assert "outputStatistics" in output["outputFacets"]

    def test_d15_tags_are_told(self, consumed):
        facets = consumed.of_job("asset:features")[-1]["job"]["facets"]
        assert [(t["key"], t["value"]) for t in facets["tags"]["tags"]] == [("tier", "gold")]

    def test_d17_each_asset_has_its_own_owners(self, consumed):
        for name, owner in (("features", "team:ml"), ("model", "user:ada@example.org")):
            facets = consumed.of_job(f"asset:{name}")[-1]["job"]["facets"]
            assert [o["name"] for o in facets["ownership"]["owners"]] == [owner]


def test_d4_a_runless_event_does_not_stop_the_sensor(home, chain, consumer):
    home.report("PM100", "from outside")
    home.observe("PM100", "seen")
    assert "Delivered" in tick(home, chain)
    home.exa(chain, "model")
    home.report("PM100", "again")
    tick(home, chain)
    kinds = consumer.kinds("asset:PM100")
    assert kinds == ["COMPLETE"] * 3
    assert all("parent" not in e["run"]["facets"] for e in consumer.of_job("asset:PM100"))
    assert consumer.kinds("asset:model") == ["START", "COMPLETE"]


def test_d5_a_tick_delivers_hundreds_of_events(home, consumer):
    module = home.module(
        """\
        from examlops_dagster import asset, partitions

        KEYS = [f"k{n:03}" for n in range(150)]

        @asset("keys", partitions={"k": partitions(KEYS)}, timeout_seconds=None)
        def keys(k):
            return k
        """
    )
    automation = Automation(home, module, "sensor")
    sensor = automation.repository.get_sensor_def(SENSOR)
    assert sensor.minimum_interval_seconds == 30
    automation.tick()
    assert "Delivered 300 lineage events, 0 wait" in automation.evaluate(SENSOR).skip_message
    assert_whole(consumer.events)


def test_d6_an_outage_of_a_hundred_builds_loses_nothing(home, consumer):
    module = home.module(
        """\
        from examlops_dagster import asset, partitions

        KEYS = [f"k{n:03}" for n in range(100)]

        @asset("keys", partitions={"k": partitions(KEYS)}, timeout_seconds=None)
        def keys(k):
            return k
        """
    )
    consumer.answer = lambda event: 503
    assert home.exa(module, "keys").ok
    assert consumer.events == []
    consumer.answer = lambda event: None
    home.sql("UPDATE lineage_deliverer SET next_at = 0")  # as when its time has come
    tick(home, module)
    assert len(consumer.of_job("asset:keys")) == 200
    assert_whole(consumer.events)


def test_d7_a_cancelled_run_is_told_as_aborted(home):
    home.declare("PM100")
    home.write(
        "slow.py",
        """\
        import time
        from pathlib import Path
        from examlops_dagster import asset

        @asset("slow", deps=["PM100"])
        def slow(**upstream):
            Path("building").touch()
            time.sleep(600)

        @asset("after", deps=["slow"])
        def after(**upstream):
            return 1
        """,
    )
    command = subprocess.Popen(
        [COMMAND, "-m", "slow", "assets", "materialize", "after"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((home.folder / "building").exists)
        command.send_signal(signal.SIGINT)
        assert command.wait(LIMIT_SECONDS) == 130
    finally:
        command.kill()
        command.wait()
    events = events_of(home, "slow")
    assert [e["eventType"] for e in events] == ["START", "ABORT"]
    assert events_of(home, "after") == []
    assert [problem for event in events for problem in problems_of(event)] == []


test_d7_a_cancelled_run_is_told_as_aborted.pytestmark = with_schemas


class TestPartitions:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home:
            module = home.module(
                """\
                from examlops_dagster import asset, hourly, monthly, partitions

                @asset("months", timeout_seconds=None,
                       partitions={"m": monthly("2024-01-01", "2024-04-01", timezone="Asia/Tokyo")})
                def months(m):
                    return m

                @asset("grid", timeout_seconds=None, partitions={
                    "hour": hourly("2024-01-01-00:00", "2024-01-01-02:00"),
                    "site": partitions(["a", "b"])})
                def grid(hour, site):
                    return hour
                """
            )
            assert home.exa(module, "months", "grid").ok
            return Told(home, "months", "grid")

    def test_d10_a_month_is_a_month_in_its_own_zone(self, told):
        facet = events_of(told, "months")[3]["run"]["facets"]["nominalTime"]
        assert facet["nominalStartTime"] == "2024-02-01T00:00:00+09:00"
        assert facet["nominalEndTime"] == "2024-03-01T00:00:00+09:00"
        window = MonthlyPartitionsDefinition("2024-01-01", timezone="Asia/Tokyo")
        start = window.time_window_for_partition_key("2024-02-01").start
        assert start.isoformat() == facet["nominalStartTime"]

    def test_d10_both_dimensions_are_told(self, told):
        event = events_of(told, "grid")[-1]
        [output] = event["outputs"]
        [partition] = output["outputFacets"]["subset"]["outputCondition"]["partitions"]
        assert partition["dimensions"] == {"hour": "2024-01-01-01:00", "site": "b"}
        facet = event["run"]["facets"]["nominalTime"]
        assert facet["nominalStartTime"] == "2024-01-01T01:00:00+00:00"

    def test_d1_each_partition_of_one_run_has_its_own_run_id(self, told):
        events = events_of(told, "months")
        assert len(set(told.runs["months"])) == 1
        assert len(ends_by_run(events)) == 3
        assert_whole(events)


def test_d11_what_others_reported_keeps_its_run_and_partition(home, consumer):
    module = home.module(
        """\
        from examlops_dagster import asset, partitions

        @asset("days", partitions={"day": partitions(["mon", "tue"])}, timeout_seconds=None)
        def days(day):
            return day
        """
    )
    home.report("days", "v", partition="tue")
    tick(home, module)
    [event] = consumer.of_job("asset:days")
    [output] = event["outputs"]
    assert (
        output["outputFacets"]["subset"]["outputCondition"]["partitions"][0]["identifier"] == "tue"
    )
    assert event["run"]["facets"]["examlops_build"]["partition"] == "tue"


def test_d12_a_check_that_failed_does_not_change_what_was_built(home):
    module = home.module(
        """\
        from examlops_dagster import asset, sink

        @asset("report", timeout_seconds=None)
        @sink("/proc/nowhere/report.json")
        def report():
            return {"a": 1}
        """
    )
    done = home.exa(module, "report")
    assert done.failed_sinks
    assert [e["eventType"] for e in events_of(home, "report")] == ["START", "COMPLETE"]


def test_d13_every_schema_url_and_producer_is_a_uri_that_names_something(home, chain):
    home.exa(chain, "model")
    for event in events_of(home, "model"):
        assert problems_of(event) == []  # which looks each facet's schema up by its URL
        for _, facet in facets_in(event):
            assert facet["_producer"].startswith("urn:examlops-dagster:")


test_d13_every_schema_url_and_producer_is_a_uri_that_names_something.pytestmark = with_schemas


def test_d14_attempts_and_re_executions_have_run_ids_of_their_own(home):
    home.declare("PM100")
    module = home.module(
        """\
        from pathlib import Path
        from examlops_dagster import asset

        @asset("shaky", deps=["PM100"], timeout_seconds=None, retries=1)
        def shaky(**upstream):
            if not Path("once").exists():
                Path("once").touch()
                raise OSError("not yet")
            return 1
        """
    )
    assert home.exa(module, "shaky").ok
    home.exa(module, "shaky", force=True)
    events = events_of(home, "shaky")
    assert [e["eventType"] for e in events] == ["START", "FAIL", *["START", "COMPLETE"] * 2]
    assert_whole(events)
    parents = [e["run"]["facets"]["parent"]["run"]["runId"] for e in events]
    assert parents[0] == parents[2] != parents[4]


def test_d16_a_backend_that_is_down_does_not_slow_the_builds(home, chain, consumer):
    consumer.answer = lambda event: time.sleep(3.5) or 503
    home.exa(chain, "features")
    posts = consumer.posts
    home.sql("UPDATE lineage_deliverer SET next_at = next_at + 1000")  # however slow this is
    for _ in range(4):
        home.exa(chain, "model", force=True)
    assert consumer.posts == posts <= 1
    spent = [b.ended_at - b.started_at for b in home.builds("model")]
    assert len(spent) == 4
    assert min(s.total_seconds() for s in spent) < 3  # each would wait as long for a backend


def test_d17_jobs_that_the_clients_filters_name_are_left_out(home, chain, consumer):
    home.write("openlineage.yml", "filters:\n  - type: exact\n    match: asset:features\n")
    home.exa(chain, "model")
    assert consumer.kinds("asset:features") == []
    assert consumer.kinds("asset:model") == ["START", "COMPLETE"]


def test_d17_an_instance_that_is_not_ours_to_change_is_told_too(home, chain, consumer):
    assert "event_log_storage" not in (home.folder / "dagster.yaml").read_text()
    assert home.click(chain, "features", "model").success
    assert consumer.posts == 0
    tick(home, chain)
    assert consumer.kinds("asset:model") == ["START", "COMPLETE"]


def test_d18_a_tick_with_nothing_to_tell_asks_little(home, chain, consumer, monkeypatch):
    home.exa(chain, "model")
    automation = Automation(home, chain, "sensor")
    automation.evaluate(SENSOR)
    asked = []
    storage = type(home.instance.event_log_storage)
    for name in ("get_event_records", "get_records_for_run"):
        kept = getattr(storage, name)
        monkeypatch.setattr(
            storage, name, lambda self, *a, _kept=kept, **k: asked.append(1) or _kept(self, *a, **k)
        )
    posts = consumer.posts
    assert automation.evaluate(SENSOR).skip_message == "Delivered 0 lineage events, 0 wait."
    assert asked == []
    assert consumer.posts == posts


def test_there_is_no_sensor_without_a_backend(home, chain):
    names = [s.name for s in Automation(home, chain, "sensor").repository.sensor_defs]
    assert SENSOR not in names


GRAPH = """\
from examlops_dagster import all_keys, asset, partitions, sensor, task

@sensor("watch", timeout_seconds=None)
def watch():
    return True, 1

@asset("days", partitions={"day": partitions(["mon", "tue"])}, deps=["PM100"], timeout_seconds=None)
def days(day, **upstream):
    return day

@asset("total", deps=[all_keys(days), "watch"], timeout_seconds=None)
def total(**upstream):
    return 1

@task("mail", deps=["total"], timeout_seconds=None)
def mail(**upstream):
    return None
"""


def test_what_a_consumer_keeps_is_the_asset_graph(home, consumer):
    home.declare("PM100")
    home.write("graphed.py", GRAPH)
    module = home.module(GRAPH, "graphed")
    assert home.exa(module, "mail").ok
    tick(home, module)  # what a command left to the daemon, on a busy machine
    argv = [COMMAND, "-m", "graphed", "assets", "graph", "--json"]
    shown = subprocess.run(argv, timeout=LIMIT_SECONDS, check=True, capture_output=True)
    graph = json.loads(shown.stdout)
    edges = {(name, dep) for name, deps in graph.items() for dep in deps}
    assert len(edges) == 4
    assert consumer.edges == edges
    names = set(graph)
    assert {name for _, name in consumer.datasets} == names
    found = consumer.lineage("dataset:examlops://dataset:total")
    assert {node["id"] for node in found["graph"]} == {
        "job:examlops:asset:total",
        "job:examlops:asset:mail",
    }
    assert all(kept["versions"] for kept in consumer.datasets.values())
