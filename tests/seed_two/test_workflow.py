"""Every statement and every acceptance criterion of the second seed, over a clock that is moved.

The seed is "Workflow: Freshness-Driven Run and Tasks". Where we differ from it on purpose,
DESIGN.md section 4 says so, and the test is named after what we do.
"""

import inspect
from datetime import datetime, timezone

import pytest
from worlds import World, names, source, step_names

from examlops_dagster import (
    Always,
    DefinitionError,
    Manual,
    Schedule,
    asset,
    daily,
    partitions,
    sensor,
    sink,
    task,
)
from examlops_dagster.core.declarations import (
    DEFAULT_TIMEOUT,
    Declaration,
    NodeType,
    Sink,
    closed_over,
)
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.core.status import State
from examlops_dagster.core.walk import Walk
from examlops_dagster.errors import AssetBuildError, BuildTimeoutError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.local import LocalOrchestrator


def at(hour, minute=0, day=5):
    """A moment of January 2026; the 5th is a Monday."""
    return datetime(2026, 1, day, hour, minute, tzinfo=timezone.utc)


class Counting:
    """The local orchestrator in this process, which keeps what it was asked for."""

    name = "local"

    def __init__(self):
        self._local = LocalOrchestrator(in_process=True)
        self.requests = []

    @property
    def called(self):
        return [str(request.node) for request in self.requests]

    def run(self, request):
        self.requests.append(request)
        return self._local.run(request)


class Values:
    def __init__(self, ledger):
        self._ledger = ledger

    def keep(self, node, value):
        self._ledger.keep(node, value)

    def load(self, node):
        return decode(self._ledger.value(node))


def declared(things):
    return closed_over(t if isinstance(t, Declaration) else declaration_of(t) for t in things)


class Platform(World):
    """Decorated functions, and the automation that sees them from its first tick on."""

    def __init__(self, clock, *things, zone="UTC"):
        super().__init__(clock, *declared(things), zone=zone, first_seen={})
        self.orchestrator = Counting()

    @property
    def walk(self):
        return Walk(
            self.graph,
            self.ledger,
            Values(self.ledger),
            self.orchestrator,
            self.clock,
            self.code,
            self.zone,
            self.slept.append,
            self.first_seen,
        )

    def see(self):
        for node in self.nodes.scheduled():
            self.first_seen.setdefault(node, self.clock())

    def tick(self):
        """Let automation look once, and build what it finds; give the names of what was built."""
        self.see()
        before = len(self.orchestrator.requests)
        self.run_due()
        return self.orchestrator.called[before:]

    def at(self, *moment, **more):
        self.clock.set(at(*moment, **more))
        return self

    def state(self, name, partition=""):
        return self.status()[Node(name, partition)].state

    def value(self, name, partition=""):
        return decode(self.ledger.value(Node(name, partition)))

    def count(self, name):
        return self.orchestrator.called.count(name)


@pytest.fixture
def platform(clock):
    """Make a platform at midnight, which automation has seen."""

    def make(*things, start=None, **how):
        clock.set(start or at(0))
        made = Platform(clock, *things, **how)
        made.see()
        return made

    return make


def refused(*functions):
    with pytest.raises(DefinitionError) as caught:
        build_graph({d.name: d for d in declared(functions)})
    return str(caught.value)


# "Every asset, sensor, and task declares a freshness value"


def test_always_is_the_default_of_assets_and_tasks_and_manual_of_sensors():
    @asset()
    def a(): ...

    @task()
    def t(): ...

    @sensor()
    def s(): ...

    assert [declaration_of(f).freshness for f in (a, t, s)] == [Always, Always, Manual]


@pytest.mark.parametrize("freshness", [Always, Manual, Schedule("0 5 * * *")])
@pytest.mark.parametrize("decorate", [asset, task])
def test_assets_and_tasks_take_each_of_the_three_kinds(decorate, freshness):
    @decorate(freshness=freshness)
    def node(): ...

    build_graph({"node": declaration_of(node)})
    assert declaration_of(node).freshness == freshness


@pytest.mark.parametrize("freshness", [Manual, Schedule("*/5 * * * *")])
def test_sensors_take_manual_and_schedule(freshness):
    @sensor(freshness=freshness)
    def node(): ...

    build_graph({"node": declaration_of(node)})
    assert declaration_of(node).freshness == freshness


def test_always_is_not_valid_for_sensors():
    @sensor(freshness=Always)
    def inbox(): ...

    text = refused(inbox)
    assert f"{__file__}:" in text
    assert "sensor 'inbox'" in text
    assert "Manual or Schedule" in text


SEEDS = {
    asset: ("name inputs partitions serializer freshness timeout_seconds description tags"),
    sensor: "name freshness timeout_seconds description tags",
    task: ("name inputs freshness timeout_seconds retries retry_backoff description tags"),
}


@pytest.mark.parametrize("decorate", SEEDS)
def test_the_decorators_take_every_argument_of_the_seed(decorate):
    given = {
        "name": "other",
        "freshness": Schedule("0 5 * * *"),
        "timeout_seconds": 7,
        "description": "words",
        "tags": {"team": "data"},
        "inputs": {"x": "upstream"},
        "partitions": {"ticker": partitions(["AAPL"])},
        "serializer": "json",
        "retries": 2,
        "retry_backoff": 1.5,
    }
    wanted = SEEDS[decorate].split()

    @decorate(**{name: given[name] for name in wanted})
    def node(**anything): ...

    declaration = declaration_of(node)
    assert declaration.name == "other"
    for name in set(wanted) - {"name", "inputs", "partitions"}:
        assert getattr(declaration, name) == given[name]
    assert [(u.parameter, u.name) for u in declaration.upstreams] == (
        [("x", "upstream")] if "inputs" in wanted else []
    )


def test_a_decorated_function_is_usable_as_before():
    @asset
    @sink("./a.json")
    def a(x: int = 2) -> int:
        return x + 1

    assert a(3) == 4
    assert inspect.signature(a).parameters["x"].default == 2


# Always


@pytest.fixture
def chain(platform):
    """trace (a source) -> a -> b -> c, all Always."""

    @asset(deps=["trace"])
    def a(**upstream): ...

    @asset(deps=[a])
    def b(**upstream): ...

    @asset(deps=[b])
    def c(**upstream): ...

    return platform(source("trace"), a, b, c)


def test_always_assets_are_built_without_anybody_asking(chain):
    assert chain.tick() == ["a", "b", "c"]
    assert chain.tick() == []


def test_any_upstream_change_cascades_through_always_assets(chain):
    chain.tick()
    chain.change_source("trace")
    assert chain.tick() == ["a", "b", "c"]
    assert set(chain.states().values()) == {"fresh"}


def test_an_asset_with_freshness_always_becomes_runnable_immediately_when_stale_and_upstream_ready(
    chain,
):
    chain.tick()
    chain.change_source("trace")
    assert [chain.state(name) for name in "abc"] == [State.RUNNABLE] * 3
    assert step_names(chain.due()) == ["a", "b", "c"]


def test_staleness_is_computed_from_provenance_and_not_from_time(chain):
    chain.tick()
    chain.at(0, day=30)
    assert set(chain.states().values()) == {"fresh"}


# Manual


@pytest.fixture
def pinned(platform):
    """trace -> baseline (Manual) -> features -> report, and beside that reads trace alone."""

    @asset(deps=["trace"], freshness=Manual)
    def baseline(**upstream): ...

    @asset(deps=[baseline])
    def features(**upstream): ...

    @asset(deps=[features, "trace"])
    def report(**upstream): ...

    @asset(deps=["trace"])
    def beside(**upstream): ...

    return platform(source("trace"), baseline, features, report, beside)


def test_a_manual_asset_is_never_updated_by_itself_even_when_stale(pinned):
    assert pinned.tick() == ["beside"]
    assert pinned.state("baseline") is State.WAITING_FOR_REQUEST
    assert pinned.why("baseline")[-1] == "Manual: exa assets materialize baseline"


def test_manual_freshness_blocks_downstream_always_assets_from_auto_updating(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    assert pinned.tick() == ["beside"]
    assert pinned.state("features") is State.WAITING_FOR_UPSTREAM
    assert "upstream baseline is waiting for request" in pinned.why("features")[-1]


def test_manual_blocks_transitively_also_what_another_input_made_stale(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    pinned.tick()
    assert pinned.state("report") is State.WAITING_FOR_UPSTREAM
    assert pinned.count("report") == 1


def test_what_is_blocked_remains_stale_until_the_manual_upstream_is_refreshed(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    for _ in range(3):
        pinned.clock.advance(days=1)
        pinned.tick()
    assert pinned.count("features") == 1
    pinned.materialize("baseline")
    assert pinned.tick() == ["features", "report"]


def test_an_asset_with_freshness_manual_is_refreshed_when_explicitly_requested(pinned):
    assert names(pinned.materialize("baseline").rebuilt) == ["trace", "baseline"]


def test_an_asset_with_freshness_manual_is_refreshed_when_a_targeted_downstream_requires_it(pinned):
    pinned.materialize("report")
    pinned.change_source("trace")
    assert names(pinned.materialize("report").rebuilt) == ["baseline", "features", "report"]


def test_a_fresh_manual_asset_blocks_nothing(pinned):
    pinned.materialize("baseline")
    assert sorted(pinned.tick()) == ["beside", "features", "report"]


def test_a_manual_task_runs_by_request_alone(platform):
    @task(freshness=Manual)
    def mail(): ...

    world = platform(mail)
    world.at(0, day=20)
    assert world.tick() == []
    assert names(world.materialize("mail").rebuilt) == ["mail"]


# Schedule


@pytest.fixture
def daily_report(platform):
    """The two assets of the seed."""

    @asset(freshness=Schedule("0 5 * * *"))
    def prices() -> dict[str, str]:
        return {"ok": "yes"}

    @asset(inputs={"prices": prices}, freshness=Schedule("0 6 * * *"))
    def daily_report(prices: dict[str, str]) -> dict[str, str]:
        return {"report": prices["ok"]}

    return platform(prices, daily_report)


def test_before_its_first_tick_a_scheduled_asset_waits(daily_report):
    daily_report.at(4, 59)
    assert daily_report.tick() == []
    assert daily_report.state("prices") is State.WAITING_FOR_SCHEDULE
    assert daily_report.why("prices")[-1] == "next tick 2026-01-05 05:00 UTC"


def test_at_5_prices_becomes_eligible(daily_report):
    daily_report.at(5)
    assert daily_report.state("prices") is State.RUNNABLE
    assert daily_report.tick() == ["prices"]


def test_a_downstream_asset_can_be_stale_at_5_10_and_still_not_runnable_until_its_6_00_schedule(
    daily_report,
):
    assert daily_report.at(5).tick() == ["prices"]
    assert daily_report.at(5, 10).tick() == []
    assert daily_report.state("daily_report").value == "stale_waiting_for_schedule"
    assert daily_report.at(6).state("daily_report").value == "runnable_stale"
    assert daily_report.tick() == ["daily_report"]
    assert daily_report.value("daily_report") == {"report": "yes"}


def test_prices_that_come_out_equal_leave_daily_report_fresh(daily_report):
    daily_report.at(6).tick()
    assert daily_report.at(5, day=6).tick() == ["prices"]
    assert daily_report.state("daily_report") is State.FRESH
    assert daily_report.at(6, day=6).tick() == []


@pytest.fixture
def moving(platform):
    """The seed's two assets, with prices that differ each time."""
    days = iter(range(100))

    @asset(freshness=Schedule("0 5 * * *"))
    def prices():
        return {"day": next(days)}

    @asset(inputs={"prices": prices}, freshness=Schedule("0 6 * * *"))
    def daily_report(prices):
        return {"report": prices["day"]}

    world = platform(prices, daily_report, start=at(7, day=4))
    world.materialize("daily_report")
    return world


def test_after_prices_updates_daily_report_is_stale_waiting_for_schedule_before_6(moving):
    moving.at(5)
    assert moving.tick() == ["prices"]
    moving.at(5, 10)
    assert moving.tick() == []
    verdict = moving.status()[Node("daily_report")]
    assert verdict.state.value == "stale_waiting_for_schedule"
    assert verdict.why == ("upstream prices changed (1 → 2)", "next tick 2026-01-05 06:00 UTC")


def test_at_6_if_upstream_is_settled_daily_report_becomes_runnable_stale(moving):
    moving.at(5).tick()
    moving.at(6)
    assert moving.state("daily_report").value == "runnable_stale"
    assert moving.tick() == ["daily_report"]
    assert moving.value("daily_report") == {"report": 1}


def test_at_6_it_waits_while_its_upstream_is_not_settled(moving):
    moving.ledger.claim(Node("prices"), "somebody builds it")
    moving.at(6)
    assert moving.state("daily_report") is State.WAITING_FOR_UPSTREAM
    moving.ledger.release(Node("prices"), "somebody builds it")
    assert moving.tick() == ["prices", "daily_report"]


def test_an_asset_with_freshness_schedule_becomes_runnable_only_when_its_cron_window_opens(moving):
    moving.materialize("prices", force=True)
    for hour in (8, 12, 23):
        moving.at(hour, day=4)
        assert moving.state("daily_report") is State.WAITING_FOR_SCHEDULE
    moving.at(6)
    assert moving.state("daily_report") is State.RUNNABLE


def test_a_tick_alone_rebuilds_no_asset_with_upstreams(daily_report):
    daily_report.at(6, 30, day=4)
    daily_report.materialize("daily_report")
    for day in (5, 6, 7):
        daily_report.at(7, day=day).tick()
    assert daily_report.count("prices") == 4
    assert daily_report.count("daily_report") == 1


def test_a_tick_rebuilds_an_asset_that_says_always(platform):
    @asset(deps=["trace"], freshness=Schedule("0 6 * * *", rebuild="always"))
    def hourly_copy(**upstream): ...

    world = platform(source("trace"), hourly_copy)
    for day in (5, 6):
        assert world.at(6, day=day).tick() == ["hourly_copy"]
        assert world.at(7, day=day).tick() == []


def test_missed_ticks_count_once(daily_report):
    daily_report.at(7)
    daily_report.tick()
    daily_report.at(7, day=15)
    assert daily_report.tick() == ["prices"]
    assert daily_report.tick() == []


def test_a_scheduled_asset_can_be_built_at_once_by_asking(daily_report):
    outcome = daily_report.materialize("daily_report")
    assert names(outcome.rebuilt) == ["prices", "daily_report"]


def test_cron_ticks_are_evaluated_in_the_declared_time_zone(platform):
    @asset(freshness=Schedule("0 5 * * *", timezone="Asia/Tokyo"))
    def tokyo(): ...

    @asset(freshness=Schedule("0 5 * * *"))
    def berlin(): ...

    world = platform(tokyo, berlin, start=at(12, day=4), zone="Europe/Berlin")
    assert world.at(20, day=4).tick() == ["tokyo"]
    assert world.at(3, 59).tick() == []
    assert world.at(4).tick() == ["berlin"]


# Timeouts


def test_the_timeout_is_300_seconds_for_each_kind_of_node():
    @asset
    def a(): ...

    @sensor
    def s(): ...

    @task
    def t(): ...

    for node in (a, s, t):
        assert declaration_of(node).timeout_seconds == DEFAULT_TIMEOUT == 300


def test_the_timeout_applies_per_attempt_and_marks_the_attempt_as_timed_out(
    clock, tmp_path, monkeypatch
):
    monkeypatch.setenv("TIMEOUT_CALLS", str(tmp_path))
    import worker_for_timeouts as module

    world = Platform(clock, module.slow)
    with LocalOrchestrator(grace_seconds=0.2) as local:
        world.orchestrator = local
        outcome = world.materialize("slow")
    [error] = outcome.failed.values()
    assert isinstance(error, BuildTimeoutError)
    assert [state for _, state in world.ledger.attempts] == [BuildState.TIMED_OUT] * 2
    assert world.states()["slow"] == "timed out"
    calls = module.calls()
    assert len(calls) == 2
    assert not any(module.is_alive(pid) for pid in calls)


# Serve: ticks, catch-up, what is not polled


def test_a_scheduled_asset_reuses_upstreams_that_are_fresh(platform):
    @asset(deps=["trace"])
    def base(**upstream): ...

    @asset(deps=[base], freshness=Schedule("0 5 * * *", rebuild="always"))
    def at_five(**upstream): ...

    world = platform(source("trace"), base, at_five)
    world.tick()
    assert world.at(5).tick() == ["at_five"]


def test_a_scheduled_task_runs_at_each_tick_though_nothing_is_stale(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def mail(): ...

    world = platform(mail)
    for minute in (10, 20, 30):
        assert world.at(0, minute).tick() == ["mail"]
        assert world.at(0, minute + 5).tick() == []


def test_always_nodes_are_kept_fresh_without_a_tick_above_or_below_them(chain):
    chain.tick()
    chain.at(3)
    chain.change_source("trace")
    assert chain.tick() == ["a", "b", "c"]


def test_a_tick_never_builds_a_manual_upstream(platform):
    @asset(deps=["trace"], freshness=Manual)
    def baseline(**upstream): ...

    @asset(deps=[baseline], freshness=Schedule("0 5 * * *", rebuild="always"))
    def report(**upstream): ...

    world = platform(source("trace"), baseline, report)
    assert world.at(5).tick() == []
    assert world.state("report") is State.WAITING_FOR_UPSTREAM


def test_while_a_job_is_in_flight_its_tick_is_skipped_and_those_of_other_jobs_are_not(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def slow(): ...

    @task(freshness=Schedule("*/10 * * * *"))
    def quick(): ...

    world = platform(slow, quick)
    world.ledger.claim(Node("slow"), "a run that takes long")
    assert world.at(0, 10).tick() == ["quick"]
    assert world.at(0, 20).tick() == ["quick"]
    assert world.state("slow") is State.RUNNING
    world.ledger.release(Node("slow"), "a run that takes long")
    assert world.at(0, 21).tick() == ["slow"]


def test_a_job_that_outlasted_its_tick_waits_for_the_next_one(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def slow():
        clock.advance(minutes=15)

    world = platform(slow)
    clock = world.clock
    assert world.at(0, 10).tick() == ["slow"]
    assert clock() == at(0, 25)
    assert world.tick() == []
    assert world.at(0, 30).tick() == ["slow"]


def test_after_downtime_a_job_catches_up_once_since_its_last_run_is_recorded(platform):
    @task(freshness=Schedule("*/10 * * * *"))
    def mail(): ...

    world = platform(mail)
    world.at(0, 10).tick()
    restarted = Platform(world.clock, mail)
    restarted.ledger, restarted.first_seen = world.ledger, world.first_seen
    assert restarted.at(2, 3).tick() == ["mail"]
    assert restarted.tick() == []


def test_no_mail_at_deployment(platform):
    @task(freshness=Schedule("0 6 * * *"))
    def mail(): ...

    world = platform(mail, start=at(12))
    assert world.tick() == []
    assert world.at(6, day=6).tick() == ["mail"]


# States


def test_the_states_are_those_of_the_seed_and_two_more():
    assert {state.value for state in State} == {
        "fresh",
        "stale_waiting_for_schedule",
        "stale_waiting_for_upstream",
        "runnable_stale",
        "running",
        "failed",
        "historical",
        "stale_waiting_for_request",
        "undeclared",
    }


def test_what_is_no_longer_declared_is_historical(chain):
    chain.tick()
    chain.declare(source("trace"))
    assert chain.state("a") is State.HISTORICAL


# Sensors


@pytest.fixture
def inbox(platform):
    """The seed's sensor; ``says`` holds what it is going to return."""
    says = [(True, ["a.csv", "b.csv"])]

    @sensor(freshness=Schedule("*/5 * * * *"))
    def inbox_files() -> tuple[bool, list[str]]:
        return says[-1]

    @asset(inputs={"paths": inbox_files})
    def ingest_paths(paths: tuple[bool, list[str]]) -> list[dict[str, str]]:
        got.append(paths)
        return [{"path": path} for path in paths[1]]

    got = []
    world = platform(inbox_files, ingest_paths)
    world.says, world.got = says, got
    return world


def test_a_sensor_with_freshness_schedule_records_observations_on_its_cron_cadence(inbox):
    for minute in (5, 10, 15):
        assert "inbox_files" in inbox.at(0, minute).tick()
        assert inbox.at(0, minute + 3).tick() == []
    ended = [(a.node.asset, state) for a, state in inbox.ledger.attempts]
    assert ended.count(("inbox_files", BuildState.SUCCEEDED)) == 3
    assert inbox.ledger.records()[Node("inbox_files")].built_at == at(0, 15)


def test_downstream_receives_the_complete_tuple_and_not_just_the_payload(inbox):
    inbox.at(0, 5).tick()
    assert inbox.got == [(True, ["a.csv", "b.csv"])]
    assert isinstance(inbox.got[0], tuple)


def test_when_update_detected_is_true_downstream_assets_become_stale(inbox):
    inbox.at(0, 5).tick()
    assert inbox.at(0, 10).tick() == ["inbox_files", "ingest_paths"]  # though the list is equal


def test_when_update_detected_is_false_downstream_assets_do_not_become_stale(inbox):
    inbox.at(0, 5).tick()
    inbox.says.append((False, ["c.csv"]))
    assert inbox.at(0, 10).tick() == ["inbox_files"]
    assert inbox.state("ingest_paths") is State.FRESH


def test_downstream_of_a_sensor_that_saw_nothing_reads_the_last_true_tuple(inbox):
    inbox.at(0, 5).tick()
    inbox.says.append((False, ["c.csv"]))
    inbox.at(0, 10).tick()
    inbox.materialize("ingest_paths", force=True)
    assert inbox.got[-1] == (True, ["a.csv", "b.csv"])


def test_a_manual_sensor_looks_only_when_asked(platform):
    @sensor
    def inbox_files():
        return True, 1

    world = platform(inbox_files)
    assert world.at(0, day=20).tick() == []
    assert names(world.materialize("inbox_files").rebuilt) == ["inbox_files"]


def test_a_sensor_that_a_person_names_always_looks(inbox):
    inbox.at(0, 5).tick()
    assert names(inbox.materialize("inbox_files").rebuilt) == ["inbox_files"]


def test_what_a_sensor_returns_must_be_a_tuple_of_a_bool_and_a_value(platform):
    @sensor(freshness=Schedule("*/5 * * * *"))
    def plain():
        return ["a.csv"]

    world = platform(plain)
    world.at(0, 5).tick()
    assert "(update_detected, output)" in world.why("plain")[-1]


# Tasks


@pytest.fixture
def reporting(platform):
    """The seed's sensor, asset and task."""

    @sensor(freshness=Schedule("0 5 * * *"))
    def upstream_db_rows():
        return True, [{"row": "1"}]

    @asset(inputs={"rows": upstream_db_rows})
    def report_rows(rows):
        _, data = rows
        return data

    @task(inputs={"rows": report_rows}, freshness=Schedule("0 6 * * *"))
    def send_report(rows) -> None:
        sent.append(rows)

    sent = []
    world = platform(upstream_db_rows, report_rows, send_report)
    world.sent = sent
    return world


def test_a_sensor_feeds_an_asset_that_feeds_a_task(reporting):
    assert reporting.at(5).tick() == ["upstream_db_rows", "report_rows"]
    assert reporting.sent == []
    assert reporting.at(6).tick() == ["send_report"]
    assert reporting.sent == [[{"row": "1"}]]


def test_assets_and_tasks_may_consume_sensors_as_inputs(platform):
    @sensor(freshness=Schedule("0 5 * * *"))
    def rows():
        return True, "rows"

    @task(inputs={"rows": rows})
    def store(rows):
        got.append(rows)

    got = []
    platform(rows, store).at(5).tick()
    assert got == [(True, "rows")]


def test_tasks_use_the_same_freshness_primitive_as_assets(reporting):
    assert reporting.at(5, 10).state("send_report") is State.WAITING_FOR_SCHEDULE
    reporting.tick()
    assert reporting.at(6).state("send_report") is State.RUNNABLE


def test_tasks_record_successful_executions_against_current_upstream_provenance(reporting):
    reporting.at(6).tick()
    records = reporting.ledger.records()
    read = records[Node("send_report")].built_from[Node("report_rows")]
    rows = records[Node("report_rows")]
    assert (read.version, read.data_version) == (rows.version, rows.data_version)


def test_an_always_task_runs_when_its_upstream_changed(platform):
    @asset(deps=["trace"])
    def table(**upstream): ...

    @task(deps=[table])
    def store(**upstream): ...

    world = platform(source("trace"), table, store)
    assert world.tick() == ["table", "store"]
    assert world.tick() == []
    world.change_source("trace")
    assert world.tick() == ["table", "store"]


def test_a_task_that_a_person_names_always_runs(reporting):
    reporting.at(6).tick()
    assert names(reporting.materialize("send_report").rebuilt) == ["send_report"]
    assert len(reporting.sent) == 2


@pytest.mark.parametrize("decorate", [asset])
def test_a_task_must_not_be_an_input_to_an_asset(decorate):
    @task
    def mail(): ...

    @decorate(inputs={"mail": mail})
    def reader(mail): ...

    text = refused(mail, reader)
    assert "asset 'reader' has task 'mail' as upstream" in text


def test_a_task_must_not_be_an_input_to_a_sensor():
    with pytest.raises(TypeError, match="@sensor takes no inputs"):
        sensor(inputs={"mail": "mail"})
    tasks = Declaration("mail", NodeType.TASK, function=print)
    from examlops_dagster.core.declarations import Upstream

    reads = Declaration(
        "inbox", NodeType.SENSOR, function=print, upstreams=(Upstream("mail"),), freshness=Manual
    )
    with pytest.raises(DefinitionError, match="sensor 'inbox' has task 'mail' as upstream"):
        build_graph({"mail": tasks, "inbox": reads})


def test_a_task_may_depend_on_a_task(platform):
    @task(freshness=Schedule("0 6 * * *"))
    def store(): ...

    @task(deps=[store])
    def mail(**upstream): ...

    assert platform(store, mail).at(6).tick() == ["store", "mail"]


def test_retries_count_further_attempts_so_that_a_mail_is_sent_once_by_default(platform):
    @task(freshness=Schedule("0 6 * * *"))
    def mail():
        raise OSError("no route")

    world = platform(mail)
    world.at(6).tick()
    assert world.count("mail") == 1
    assert world.states()["mail"] == "failed"


def test_a_task_is_retried_with_a_back_off_that_grows_linearly(platform):
    @task(freshness=Schedule("0 6 * * *"), retries=3, retry_backoff=2.5)
    def mail():
        raise OSError("no route")

    world = platform(mail)
    world.at(6).tick()
    assert world.count("mail") == 4
    assert world.slept == [2.5, 5.0, 7.5]
    assert [r.attempt for r in world.orchestrator.requests] == [1, 2, 3, 4]


def test_a_task_whose_retry_succeeds_has_run(platform):
    answers = [OSError("no route"), None]

    @task(freshness=Schedule("0 6 * * *"), retries=1)
    def mail():
        answer = answers.pop(0)
        if answer:
            raise answer

    world = platform(mail)
    world.at(6).tick()
    assert world.states()["mail"] == "fresh"
    assert world.tick() == []


def test_a_failed_scheduled_task_is_tried_again_at_its_next_tick_and_not_before(platform):
    @task(freshness=Schedule("0 6 * * *"))
    def mail():
        raise OSError("no route")

    world = platform(mail)
    world.at(6).tick()
    for hour in range(7, 24):
        assert world.at(hour).tick() == []
    assert world.at(6, day=6).tick() == ["mail"]


# Sinks


def test_sinks_are_stacked_below_asset_on_any_fsspec_path():
    @asset(freshness=Always)
    @sink("./report.json")
    @sink("s3://my-bucket/report.json")
    def report() -> dict:
        return {"rows": 42}

    build_graph({"report": declaration_of(report)})
    assert declaration_of(report).sinks == (
        Sink("./report.json"),
        Sink("s3://my-bucket/report.json"),
    )
    assert report() == {"rows": 42}


# Partitions


@pytest.fixture
def tickers(platform):
    """The seed's partitioned asset, and a report for each of its keys."""
    broken = set()

    @asset(
        partitions={"ticker": partitions(["AAPL", "MSFT", "GOOG"])},
        freshness=Schedule("0 5 * * *"),
    )
    def fetch_prices(ticker: str) -> dict[str, str]:
        if ticker in broken:
            raise ValueError(f"no {ticker}")
        return {"ticker": ticker, "day": str(world.clock().day)}

    @asset(
        partitions={"ticker": partitions(["AAPL", "MSFT", "GOOG"])},
        inputs={"price": fetch_prices},
    )
    def report(ticker, price):
        return price

    world = platform(fetch_prices, report)
    world.broken = broken
    return world


def test_at_5_each_stale_partition_becomes_independently_eligible(tickers):
    tickers.materialize(Node("fetch_prices", "MSFT"))
    tickers.at(5)
    assert [tickers.state("fetch_prices", t) for t in ("AAPL", "MSFT", "GOOG")] == (
        [State.RUNNABLE] * 3
    )
    tickers.at(5, 1)
    tickers.materialize(Node("fetch_prices", "MSFT"))
    assert tickers.state("fetch_prices", "MSFT") is State.FRESH
    assert tickers.state("fetch_prices", "AAPL") is State.RUNNABLE


def test_one_run_may_build_many_runnable_partitions_at_once(tickers):
    tickers.at(5)
    assert step_names(tickers.due()) == [
        *(f"fetch_prices[{t}]" for t in ("AAPL", "MSFT", "GOOG")),
        *(f"report[{t}]" for t in ("AAPL", "MSFT", "GOOG")),
    ]


def test_partitioned_assets_evaluate_staleness_and_eligibility_per_partition(tickers):
    tickers.broken.add("MSFT")
    tickers.at(5).tick()
    assert tickers.state("fetch_prices", "MSFT") is State.FAILED
    assert tickers.state("report", "MSFT") is State.WAITING_FOR_UPSTREAM
    for ticker in ("AAPL", "GOOG"):
        assert tickers.state("fetch_prices", ticker) is State.FRESH
        assert tickers.state("report", ticker) is State.FRESH


def test_a_bad_partition_fails_alone_and_is_tried_again_at_its_own_tick(tickers):
    tickers.broken.add("MSFT")
    tickers.at(5).tick()
    tickers.broken.clear()
    assert tickers.at(9).tick() == []
    assert set(tickers.at(5, day=6).tick()) == {
        f"{name}[{t}]" for name in ("fetch_prices", "report") for t in ("AAPL", "MSFT", "GOOG")
    }


def test_manual_freshness_holds_per_partition_too(platform):
    space = {"ticker": partitions(["AAPL", "MSFT"])}

    @asset(partitions=space, freshness=Manual)
    def pinned(ticker):
        return ticker

    @asset(partitions=space, deps=[pinned])
    def below(ticker, **upstream): ...

    world = platform(pinned, below)
    world.materialize(Node("pinned", "AAPL"))
    assert world.tick() == ["below[AAPL]"]
    assert world.state("below", "MSFT") is State.WAITING_FOR_UPSTREAM


def test_a_partition_of_a_time_window_ticks_only_until_its_first_success_after_its_end(platform):
    @asset(partitions={"day": daily("2026-01-03")}, freshness=Schedule("0 5 * * *"))
    def jobs(day):
        return day

    world = platform(jobs, start=at(0))
    assert world.at(5).tick() == ["jobs[2026-01-03]", "jobs[2026-01-04]"]
    assert world.at(0, 1, day=6).tick() == []
    assert world.state("jobs", "2026-01-05") is State.WAITING_FOR_SCHEDULE
    assert world.at(5, day=6).tick() == ["jobs[2026-01-05]"]


# One pass


def test_one_pass_discovers_what_is_stale_and_builds_it_when_eligible(platform):
    @asset(deps=["trace"])
    def always(**upstream): ...

    @asset(deps=["trace"], freshness=Manual)
    def manual(**upstream): ...

    @asset(deps=["trace"], freshness=Schedule("0 5 * * *"))
    def scheduled(**upstream): ...

    world = platform(source("trace"), always, manual, scheduled)
    assert world.tick() == ["always"]
    assert world.states() == {
        "trace": "fresh",
        "always": "fresh",
        "manual": "waiting for request",
        "scheduled": "waiting for schedule",
    }
    assert world.at(5).tick() == ["scheduled"]


def test_a_failure_is_an_asset_build_error_with_the_last_line(platform):
    @asset
    def broken():
        raise ValueError("no luck")

    world = platform(broken)
    [error] = world.materialize("broken").failed.values()
    assert isinstance(error, AssetBuildError)
    assert world.why("broken") == ("never materialized", "ValueError: no luck")
