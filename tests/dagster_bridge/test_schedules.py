"""Schedules of sensors and tasks: one run a due tick, none while one is in flight, one catch-up."""

import gc
import logging
import subprocess
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from dagster import DagsterRunStatus
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._scheduler.scheduler import launch_scheduled_runs
from ticks import Automation, place

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.due import schedule_name

JOBS = """\
from examlops_dagster import Manual, Schedule, asset, sensor, task


@sensor("in-box", freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
def inbox():
    return True, ["a.csv"]


@asset(inputs={"inbox": "in-box"}, timeout_seconds=None)
def ingest(inbox):
    return inbox[1]


@task(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
def alone():
    return None


@task(freshness=Schedule("0 0 1 * *"), deps=[ingest], timeout_seconds=None)
def mail(**upstream):
    return None


@task(freshness=Schedule("30 6 * * *", timezone="Asia/Tokyo"), timeout_seconds=None)
def tokyo():
    return None


@asset(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
def monthly():
    return 1


@task(timeout_seconds=None)
def always():
    return None


@sensor(freshness=Manual, timeout_seconds=None)
def by_hand():
    return True, 1
"""


def latest_month():
    """Give the tick of all schedules; the next one is not so near that it may come meanwhile."""
    now = datetime.now(ZoneInfo("Europe/Berlin"))
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    monkeypatch.setenv("EXAMLOPS_TIMEZONE", "Europe/Berlin")


@pytest.fixture
def jobs(home):
    return Automation(home, home.module(JOBS), "sensor")


def evaluate(jobs, name, tick=None):
    """Give the names that a schedule requests, or why it skips."""
    data = jobs.evaluate_schedule(name, tick or latest_month())
    if not data.run_requests:
        return data.skip_message
    [request] = data.run_requests
    return request


def names(request):
    return [key.to_user_string() for key in request.asset_selection]


def test_each_sensor_and_task_with_a_cron_has_a_schedule_and_nothing_else_has(jobs):
    found = {s.name: s for s in jobs.repository.schedule_defs}
    assert set(found) == {
        schedule_name("in-box"),
        "alone_schedule",
        "mail_schedule",
        "tokyo_schedule",
    }
    assert all(s.default_status.value == "RUNNING" for s in found.values())


def test_the_zone_is_the_schedules_else_that_of_the_environment(jobs):
    zones = {s.name: s.execution_timezone for s in jobs.repository.schedule_defs}
    assert zones["tokyo_schedule"] == "Asia/Tokyo"
    assert zones["alone_schedule"] == "Europe/Berlin"


def test_a_due_tick_requests_one_run_of_the_node(jobs):
    request = evaluate(jobs, "alone")
    assert names(request) == ["alone"]
    assert request.tags["examlops/slice"] == "true"
    assert request.run_key is None


def test_the_first_tick_after_deployment_is_one_that_the_node_waited_for(jobs):
    assert names(evaluate(jobs, "in-box")) == ["in-box"]


def test_the_run_of_a_tick_is_the_last_one_for_it(jobs):
    jobs.execute(evaluate(jobs, "alone"))
    assert jobs.home.endings("alone") == ["succeeded"]
    assert "alone is fresh" in evaluate(jobs, "alone")


@pytest.mark.parametrize(
    "status", [DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED]
)
def test_a_tick_is_skipped_while_the_former_run_is_in_flight_and_others_are_not(jobs, status):
    jobs.queue(evaluate(jobs, "alone"), status)
    assert "alone is running" in evaluate(jobs, "alone")
    assert names(evaluate(jobs, "in-box")) == ["in-box"]


def test_a_tick_is_skipped_while_somebody_else_builds_the_node(jobs):
    project = jobs.home.project(jobs.module)
    project.ledger.claim(Node("alone"), "exa")
    assert "alone is running" in evaluate(jobs, "alone")
    project.ledger.release(Node("alone"), "exa")
    assert names(evaluate(jobs, "alone")) == ["alone"]


def test_the_run_of_a_task_builds_what_is_stale_above_it_first(jobs):
    """A mail at the tick at which its data come is not about yesterday's."""
    request = evaluate(jobs, "mail")
    assert names(request) == ["in-box", "ingest", "mail"]
    assert jobs.execute(request).success
    assert jobs.states()["mail"] == "fresh"
    assert "in-box is fresh" in evaluate(jobs, "in-box")


def test_a_sensor_that_is_queued_for_a_task_is_not_requested_by_its_own_schedule(jobs):
    jobs.queue(evaluate(jobs, "mail"))
    assert "in-box is running" in evaluate(jobs, "in-box")


def test_a_task_waits_for_what_is_in_flight_and_automation_makes_up_for_the_tick(jobs, monkeypatch):
    request = evaluate(jobs, "in-box")
    run = jobs.queue(request)
    assert "mail is waiting for upstream" in evaluate(jobs, "mail")
    jobs.instance.delete_run(run.run_id)
    jobs.execute(request)
    jobs.execute(evaluate(jobs, "alone"))
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    [first] = jobs.requested()
    assert {"ingest", "mail"} <= set(first)


def test_a_task_below_partitions_waits_for_their_run(home):
    module = home.module(
        """\
        from examlops_dagster import Schedule, asset, partitions, task

        @asset(partitions={"k": partitions("ab")}, timeout_seconds=None)
        def parts(k):
            return k

        @task(freshness=Schedule("0 0 1 * *"), deps=[parts], timeout_seconds=None)
        def mail(**upstream):
            return None
        """
    )
    jobs = Automation(home, module, "sensor")
    assert "its upstreams are built first" in evaluate(jobs, "mail")
    jobs.tick()
    assert names(evaluate(jobs, "mail")) == ["mail"]


def test_a_task_does_not_run_what_somebody_turned_off_or_what_is_probed(home, jobs):
    jobs.turn_off(schedule_name("in-box"))
    assert "its upstreams are built first" in evaluate(jobs, "mail")
    probing = Automation(home, home.module(JOBS), "sensor", probe_sensors=True)
    assert "its upstreams are built first" in evaluate(probing, "mail")


def test_a_tick_of_a_schedule_shows_that_it_is_on_whatever_others_of_its_name_are(jobs):
    jobs.turn_off(schedule_name("alone"), place("theirs"))
    assert names(evaluate(jobs, "alone")) == ["alone"]


def test_a_failed_tick_is_not_tried_again_before_the_next_one(home):
    module = home.module(
        """\
        from examlops_dagster import Schedule, task

        @task(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
        def broken():
            raise OSError("no route")
        """
    )
    jobs = Automation(home, module, "sensor")
    jobs.execute(evaluate(jobs, "broken"))
    assert "broken is failed: " in evaluate(jobs, "broken")
    assert jobs.requested() == []


def test_a_turned_off_automation_has_no_schedules(home):
    assert Automation(home, home.module(JOBS), "conditions").repository.schedule_defs
    assert (
        not home.definitions(home.module(JOBS), automation="off").get_repository_def().schedule_defs
    )


# Through Dagster's own scheduler

EVERY_MONTH = """\
from examlops_dagster import Schedule, build_definitions, task


@task(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
def mail():
    return None


@task(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
def other():
    return None


defs = build_definitions(__import__("sys").modules[__name__], automation="sensor")
"""

QUEUE_ALONE = """\
telemetry:
  enabled: false
run_coordinator:
  module: dagster._core.test_utils
  class: MockedRunCoordinator
"""


@pytest.fixture
def scheduler(home, monkeypatch):
    """Give a function that lets Dagster's scheduler look once; runs stay where they are put."""
    home.write("dagster.yaml", QUEUE_ALONE)
    path = home.write("each_month.py", EVERY_MONTH)
    target = PythonFileTarget(str(path), None, str(home.folder), None)
    with create_test_daemon_workspace_context(target, home.instance) as workspace:
        context = workspace.create_request_context()
        [location] = context.code_locations
        [repository] = location.get_repositories().values()
        schedules = {s.name: s for s in repository.get_schedules()}

        def look(**started_months_ago):
            for name, months in started_months_ago.items():
                schedule = schedules[f"{name}_schedule"]
                start = datetime.now(timezone.utc) - timedelta(days=31 * months)
                home.instance.add_instigator_state(
                    InstigatorState(
                        schedule.get_remote_origin(),
                        InstigatorType.SCHEDULE,
                        InstigatorStatus.RUNNING,
                        ScheduleInstigatorData("0 0 1 * *", start.timestamp()),
                    )
                )
            list(
                launch_scheduled_runs(
                    workspace, logging.getLogger("scheduler"), datetime.now(timezone.utc), {}
                )
            )
            runs = home.instance.get_runs()
            return sorted(run.tags["dagster/schedule_name"] for run in runs)

        yield look
    for thing in gc.get_objects():  # Dagster asks its code server to end, and does not wait
        if isinstance(thing, subprocess.Popen) and "dagster" in map(str, thing.args):
            thing.wait(120)


def test_after_downtime_there_is_one_catch_up_and_not_several(home, scheduler):
    assert scheduler(mail=7).count("mail_schedule") == 1


def test_the_tick_that_was_made_up_for_is_not_made_up_for_again(home, scheduler):
    scheduler(mail=7)
    [run] = [r for r in home.instance.get_runs() if "mail" in r.tags["dagster/schedule_name"]]
    home.instance.report_run_canceled(run)
    for _ in range(3):
        assert scheduler().count("mail_schedule") == 1
