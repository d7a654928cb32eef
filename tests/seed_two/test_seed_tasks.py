"""Tasks in the second seed."""

import pytest
from worlds import names, source

from examlops_dagster import Schedule, asset, sensor, task
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State


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
