"""Kept fresh by itself: what a tick requests, in both forms, on a real instance."""

import time
from datetime import timedelta

import pytest
from dagster import AutomationCondition, AutomationConditionSensorDefinition, Definitions
from dagster import asset as plain_asset
from dagster._core.execution.backfill import BulkActionStatus
from ticks import FORMS, Automation, key

from examlops_dagster.core.freshness import Always
from examlops_dagster.dagster_bridge.automation import (
    CONDITION_LIMIT,
    choose_form,
    interval_seconds,
)
from examlops_dagster.dagster_bridge.lost import FIRST_LOOK_BACK

ASSETS = """\
from examlops_dagster import Manual, Schedule, asset, partitions, task


def called(name):
    with open("calls", "a") as file:
        print(name, file=file)


@asset("features", deps=["PM100"], timeout_seconds=None)
def build_features(**upstream):
    called("features")
    return {"read": upstream["PM100"]}


@asset("model", inputs={"features": build_features}, timeout_seconds=None)
def build_model(features):
    called("model")
    return {"from": features}


@asset("beside", deps=["other"], timeout_seconds=None)
def build_beside(**upstream):
    called("beside")
    return {"read": upstream["other"]}


@asset("pinned", deps=["PM100"], freshness=Manual, timeout_seconds=None)
def build_pinned(**upstream):
    called("pinned")


@asset("below", deps=[build_pinned], timeout_seconds=None)
def build_below(**upstream):
    called("below")


@asset("yearly", deps=["PM100"], freshness=Schedule("0 0 29 2 *"), timeout_seconds=None)
def build_yearly(**upstream):
    called("yearly")
"""

PARTS = """\
from examlops_dagster import asset, partitions

SPACE = {"k": partitions(["a", "b", "c", "d"])}


@asset(partitions=SPACE, deps=["PM100"], timeout_seconds=None)
def parts(k, **upstream):
    return [k, upstream["PM100"]]


@asset(partitions=SPACE, deps=[parts], timeout_seconds=None)
def sums(k, **upstream):
    return upstream["parts"]
"""

FAILING = """\
from examlops_dagster import asset, task, Schedule


def called(name):
    with open("calls", "a") as file:
        print(name, file=file)


@asset(retries=2, timeout_seconds=None)
def broken():
    called("broken")
    raise ValueError("no luck")


@asset(deps=[broken], timeout_seconds=None)
def below(**upstream):
    called("below")
"""

# of Dagster itself, where conditions ask for more than one partition
pytestmark = pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`:DeprecationWarning")


def calls(home):
    path = home.folder / "calls"
    return path.read_text().split() if path.exists() else []


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def kept(home, form):
    home.declare("PM100")
    home.declare("other")
    return Automation(home, home.module(ASSETS), form)


@pytest.fixture
def failing(home, form):
    return Automation(home, home.module(FAILING), form)


# What a tick requests


def test_a_slice_is_requested_as_one_run_and_built_once(kept, home):
    assert kept.requested() == [["beside", "features", "model"]]
    assert all(result.success for result in kept.tick())
    assert sorted(calls(home)) == ["beside", "features", "model"]
    assert kept.requested() == []


def test_a_source_that_changes_makes_exactly_the_stale_slice_run(kept, home):
    kept.tick()
    home.advance("PM100")
    [result] = kept.tick()
    assert sorted(calls(home)) == sorted(["beside", *["features", "model"] * 2])
    assert kept.requested() == []
    assert result.dagster_run.tags["examlops/slice"] == "true"


def test_manual_what_it_blocks_and_what_waits_for_its_schedule_are_not_requested(kept, home):
    kept.tick()
    states = kept.states()
    assert states["pinned"] == "waiting for request"
    assert states["below"] == "waiting for upstream"
    assert states["yearly"] == "waiting for schedule"
    assert {"pinned", "below", "yearly"}.isdisjoint(calls(home))
    assert kept.requested() == []


def test_a_manual_asset_that_was_built_lets_what_is_below_it_run(kept):
    kept.tick()
    kept.home.click(kept.definitions, "pinned")
    assert kept.requested() == [["below"]]


def test_content_that_comes_back_is_built_each_time(kept, home):
    for version in ("v1", "v2", "v1"):
        home.report("PM100", version)
        kept.tick()
    assert calls(home).count("features") == 3
    assert calls(home).count("model") == 3


def test_content_that_came_back_before_anybody_looked_needs_no_build(kept, home):
    home.report("PM100", "v1")
    kept.tick()
    home.report("PM100", "v2")
    home.report("PM100", "v1")
    assert kept.requested() == []


def test_a_build_by_hand_between_two_ticks_leaves_nothing_to_do(kept, home):
    kept.tick()
    home.advance("PM100")
    kept.home.click(kept.definitions, "features", "model")
    assert kept.requested() == []


def test_no_cursor_is_needed_and_a_new_process_goes_on(kept, home, form):
    kept.tick()
    home.advance("PM100")
    again = Automation(home, home.module(ASSETS), form)
    assert again.requested() == [["features", "model"]]


def test_the_runs_of_automation_may_answer_unchanged(home, form):
    home.declare("PM100")
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(deps=["PM100"], timeout_seconds=None)
        def same(**upstream):
            return 1

        @asset(inputs={"same": same}, timeout_seconds=None)
        def reader(same):
            return same
        """
    )
    kept = Automation(home, module, form)
    kept.tick()
    home.advance("PM100")
    kept.tick()
    assert home.endings("reader") == ["succeeded", "unchanged"]
    assert kept.requested() == []


# In flight


def test_what_is_queued_is_not_requested_again(kept):
    [request] = kept.requests()
    kept.queue(request)
    assert kept.requested() == []
    assert kept.requested() == []


def test_what_is_queued_shows_as_running(kept, home):
    [request] = kept.requests()
    kept.queue(request)
    states = kept.states()
    assert states["features"] == states["model"] == states["beside"] == "running"


def test_a_node_that_a_long_run_is_done_with_can_be_requested_anew(home, form):
    home.declare("PM100")
    home.declare("other")
    kept = Automation(home, home.module(ASSETS), form)
    [request] = kept.requests()
    run = kept.queue(request)
    home.sql(
        "INSERT INTO builds (build_id, asset, partition, state, fingerprint, code_version, "
        "built_from, orchestrator, run_id, provenance, error, started_at) VALUES "
        "('x', 'beside', '', 'failed', '', '', '[]', 'local', :run_id, '{}', '', 0)",
        run_id=run.run_id,
    )
    assert kept.requested() == [["beside"]]


def test_partitions_of_an_open_backfill_are_not_requested_again(home):
    home.declare("PM100")
    kept = Automation(home, home.module(PARTS), "conditions")
    [request] = kept.requests()
    assert request.requires_backfill_daemon()
    backfill = kept.start_backfill(request)
    assert kept.requested() == []
    kept.execute_backfill(backfill, request)
    assert kept.requested() == []
    home.advance("PM100")  # built in the backfill, and stale once more
    assert kept.requested() == [["parts", "sums"]]
    kept.instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert kept.requested() == [["parts", "sums"]]


def test_a_job_that_is_in_flight_does_not_keep_others_from_their_ticks(kept, home):
    kept.tick()
    home.advance("PM100")
    [request] = kept.requests()
    kept.queue(request)
    home.advance("other")
    assert kept.requested() == [["beside"]]


# Partitions


def test_a_partitioned_slice_is_one_run_or_one_backfill(home, form):
    home.declare("PM100")
    kept = Automation(home, home.module(PARTS), form)
    assert kept.requested() == [["parts", "sums"]]
    [result] = kept.tick()
    assert result.success
    assert len(home.events("parts")) == len(home.events("sums")) == 4
    assert kept.requested() == []


def test_one_key_is_requested_alone(home, form):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, form)
    kept.tick()
    home.report("parts", "from elsewhere", partition="b")
    [request] = kept.requests()
    kept.execute(request)
    assert [event.partition for event in home.events("sums")][4:] == ["b"]
    assert kept.requested() == []


def test_keys_that_are_not_contiguous_are_built_and_no_others(home, form):
    home.declare("PM100")
    module = home.module(PARTS)
    kept = Automation(home, module, form)
    kept.tick()
    for key_ in "ac":
        home.report("parts", "from elsewhere", partition=key_)
    kept.tick()
    assert [len(home.builds("sums", k)) for k in "abcd"] == [2, 1, 2, 1]
    assert kept.requested() == []


# The budget of attempts


def test_a_storm_an_asset_that_always_fails_gets_one_attempt_and_its_retries(failing, home):
    results = failing.tick()
    assert [r.success for r in results] == [False]
    assert calls(home) == ["broken"] * 3
    for _ in range(199):
        assert failing.requests() == []
    assert calls(home) == ["broken"] * 3


def test_one_attempt_is_made_a_run_where_the_run_does_not_retry(home, form):
    """Two runs that were requested before the first one failed share the budget."""
    kept = Automation(home, home.module(FAILING.replace("retries=2", "retries=0")), form)
    [request] = kept.requests()
    kept.execute(request)
    kept.execute(request)
    assert calls(home) == ["broken"]


def test_a_changed_input_gives_a_new_budget(home, form):
    home.declare("PM100")
    kept = Automation(
        home,
        home.module(
            FAILING.replace("retries=2", 'deps=["PM100"]').replace(
                "def broken()", "def broken(**upstream)"
            )
        ),
        form,
    )
    kept.tick()
    assert kept.tick() == []
    home.advance("PM100")
    assert len(kept.tick()) == 1
    assert kept.tick() == []
    assert calls(home) == ["broken"] * 2


def test_a_scheduled_node_that_was_never_built_keeps_to_its_budget(home, form):
    module = home.module(
        """\
        from examlops_dagster import Schedule, asset

        @asset(freshness=Schedule("0 * * * *"), timeout_seconds=None)
        def hourly():
            raise ValueError("no luck")
        """
    )
    kept = Automation(home, module, form)
    assert kept.requested() == []
    home.sql("UPDATE first_seen SET seen_at = seen_at - 7200")
    assert [r.success for r in kept.tick()] == [False]
    assert kept.requested() == []
    assert home.states(module)["hourly"] == "failed"


def test_a_run_that_never_reaches_a_body_is_requested_three_times(home, form):
    """Here a resource of the user cannot be made."""
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(timeout_seconds=None)
        def lonely():
            raise AssertionError("it is never called")
        """
    )

    from dagster import io_manager

    @io_manager
    def examlops_io(context):
        raise OSError("no disk")

    kept = Automation(home, module, form, resources={"examlops_io": examlops_io})
    for _ in range(3):
        assert [r.success for r in kept.tick()] == [False]
    assert kept.requested() == []
    assert home.states(module)["lonely"] == "failed"
    assert "before it was built" in home.why(module, "lonely")[-1]
    assert home.endings("lonely") == ["died"] * 3


def test_a_run_that_somebody_ended_in_the_queue_is_not_requested_again(kept, home):
    [request] = kept.requests()
    run = kept.queue(request)
    kept.instance.report_run_canceled(run)
    assert kept.requested() == []
    states = kept.states()
    assert states["features"] == states["beside"] == "cancelled"
    assert states["model"] == "waiting for upstream"
    assert timedelta(0) < FIRST_LOOK_BACK


def test_what_is_below_a_failed_node_is_no_attempt(failing, home):
    failing.tick()
    failing.requests()
    assert home.builds("below") == []


def test_a_run_that_a_person_executes_again_calls_the_function(failing, home):
    [result] = failing.tick()
    tags = {**result.dagster_run.tags, "dagster/parent_run_id": result.run_id}
    again = home.click(failing.definitions, "broken", tags=tags)
    assert not again.success
    assert calls(home) == ["broken"] * 6


def test_a_run_that_dagster_retries_by_itself_keeps_to_the_budget(failing, home):
    [result] = failing.tick()
    more = {"dagster/parent_run_id": result.run_id, "dagster/retry_number": "1"}
    home.click(failing.definitions, "broken", tags={**result.dagster_run.tags, **more})
    assert calls(home) == ["broken"] * 3


# Many assets


def test_1500_nodes_are_one_run_of_the_plain_sensor(home):
    home.declare("PM100")
    module = home.module(
        """\
        from examlops_dagster import asset

        for n in range(1500):
            @asset(f"n{n}", deps=["PM100" if n < 10 else f"n{n - 10}", "PM100" if n == 0 else "n0"],
                   timeout_seconds=None)
            def node(**upstream):
                return 1
        """
    )
    kept = Automation(home, module, None)  # 500 are too many for conditions
    [request] = kept.requests()
    assert len(request.asset_selection) == 1500
    started = time.process_time()
    kept.requests()
    assert time.process_time() - started < 5
    kept.queue(request)
    assert kept.requests() == []


# The forms


def entities(count):
    return {"automation": None, "entities": count, "into": None}


def test_conditions_are_the_default_up_to_what_dagster_allows():
    assert choose_form(**entities(CONDITION_LIMIT)) == "conditions"
    assert choose_form(**entities(CONDITION_LIMIT + 1)) == "sensor"


def test_a_sensor_of_conditions_in_the_users_definitions_leaves_us_the_plain_one():
    @plain_asset(automation_condition=AutomationCondition.eager())
    def theirs(): ...

    into = Definitions(
        [theirs], sensors=[AutomationConditionSensorDefinition("theirs", target="*")]
    )
    assert choose_form(None, 3, into) == "sensor"
    assert choose_form("conditions", 3, into) == "conditions"
    assert choose_form(None, 3, Definitions([theirs])) == "conditions"


def test_automation_can_be_turned_off(home, chain):
    repository = home.definitions(chain, automation="off").get_repository_def()
    assert repository.sensor_defs == []
    assert repository.schedule_defs == []


def test_both_forms_are_on_by_default_and_named_alike(kept):
    [sensor] = kept.repository.sensor_defs
    assert sensor.name == "keep_fresh"
    assert sensor.default_status.value == "RUNNING"


def test_only_what_is_not_manual_has_a_condition(home):
    home.declare("PM100")
    home.declare("other")
    graph = Automation(home, home.module(ASSETS), "conditions").repository.asset_graph
    assert graph.get(key("features")).automation_condition.get_label() == f"kept fresh: {Always}"
    assert graph.get(key("pinned")).automation_condition is None
    assert (
        graph.get(key("yearly")).automation_condition.get_label()
        == "kept fresh: schedule 0 0 29 2 *"
    )


@pytest.mark.parametrize(("text", "seconds"), [("2", 2), ("0", 1), ("no number", 30), (None, 30)])
def test_the_interval_of_ticks_can_be_set(monkeypatch, text, seconds):
    if text is not None:
        monkeypatch.setenv("EXAMLOPS_KEEP_FRESH_SECONDS", text)
    assert interval_seconds() == seconds


# Sensors and tasks with a schedule of their own

MINUTELY = """\
from examlops_dagster import Schedule, asset, sensor, task


@sensor(freshness=Schedule("0 * * * *"), timeout_seconds=None)
def inbox():
    return True, ["a.csv"]


@asset(inputs={"inbox": inbox}, timeout_seconds=None)
def ingest(inbox):
    return inbox[1]


@task(freshness=Schedule("0 0 1 * *"), inputs={"ingest": ingest}, timeout_seconds=None)
def mail(ingest):
    return None
"""


def test_a_tick_that_just_passed_is_left_to_its_schedule(home, form, monkeypatch):
    kept = Automation(home, home.module(MINUTELY), form)
    assert kept.requested() == []
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(days=40))
    assert kept.requested() == []


def test_a_tick_that_its_schedule_had_to_skip_is_made_up_for(home, form, monkeypatch):
    kept = Automation(home, home.module(MINUTELY), form)
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    assert kept.requested() == [["inbox", "ingest", "mail"]]
    kept.tick()
    assert kept.requested() == []


def test_a_schedule_that_somebody_turned_off_is_not_made_up_for(home, form, monkeypatch):
    kept = Automation(home, home.module(MINUTELY), form)
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    kept.turn_off("mail_schedule")
    assert kept.requested() == [["inbox", "ingest"]]
    kept.turn_off("inbox_schedule")
    assert kept.requested() == []
