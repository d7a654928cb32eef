"""Ticks that their schedule had to skip are made up for."""

from datetime import timedelta

from ticks import Automation, place

MONTHLY = """\
from examlops_dagster import Schedule, asset, sensor, task


@sensor(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
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
    kept = Automation(home, home.module(MONTHLY), form)
    assert kept.requested() == []
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(days=40))
    assert kept.requested() == []


def test_a_tick_that_its_schedule_had_to_skip_is_made_up_for(home, form, monkeypatch):
    kept = Automation(home, home.module(MONTHLY), form)
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    assert kept.requested() == [["inbox", "ingest", "mail"]]
    kept.tick()
    assert kept.requested() == []


def test_a_schedule_that_somebody_turned_off_is_not_made_up_for(home, form, monkeypatch):
    kept = Automation(home, home.module(MONTHLY), form)
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    kept.turn_off("mail_schedule")
    assert kept.requested() == [["inbox", "ingest"]]
    kept.turn_off("inbox_schedule")
    assert kept.requested() == []


def test_a_schedule_turned_off_in_another_code_location_does_not_count(home, form, monkeypatch):
    kept = Automation(home, home.module(MONTHLY), form)
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    kept.turn_off("inbox_schedule", place("theirs"))
    [request] = kept.evaluate_in("ours")
    assert {key.to_user_string() for key in request.asset_selection} == {"inbox", "ingest", "mail"}
    assert kept.evaluate_in("theirs") == []
