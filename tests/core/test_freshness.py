from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given
from strategies import crons, moments_around_dst

from examlops_dagster.core.freshness import Always, Manual, Schedule, is_zone

UTC = timezone.utc
MINUTE = timedelta(minutes=1)


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def ticks_by_brute_force(cron, zone, start, end):
    """Every tick from ``start`` to before ``end``, found by looking at each minute.

    What DST skips happens at the first minute after the gap; what it repeats happens the second
    time, except where the cron names every hour.
    """
    tz = ZoneInfo(zone)
    every_hour = cron.split()[1] == "*"
    minute = start
    while minute < end:
        local = minute.astimezone(tz)
        wall = local.replace(tzinfo=None)
        matches = croniter.match(cron, wall)
        comes_again = local.fold == 0 and local.utcoffset() != local.replace(fold=1).utcoffset()
        before = (minute - MINUTE).astimezone(tz).replace(tzinfo=None)
        skipped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE)]
        ends_gap = not every_hour and any(croniter.match(cron, w) for w in skipped)
        if (matches and (every_hour or not comes_again)) or ends_gap:
            yield minute
        minute += MINUTE


def ticks_of(schedule, start, end):
    tick = schedule.next_tick(start - MINUTE, "UTC")
    while tick < end:
        yield tick
        tick = schedule.next_tick(tick, "UTC")


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 0 6 * * *", "has 6 fields; give five"),
        ("0 6 * *", "has 4 of five fields"),
        ("", "has 0 of five fields"),
        ("61 * * * *", "cannot be read"),
        ("@reboot", "cannot be read"),
        ("H 6 * * *", "cannot be read"),
        ("R 6 * * *", "cannot be read"),
        ("0 0 31 2 *", "names a day that never comes"),
    ],
)
def test_a_cron_that_cannot_tick_is_told(cron, words):
    assert words in Schedule(cron).problem()


@pytest.mark.parametrize(
    "cron", ["0 6 * * *", "*/5 * * * *", "@daily", "0 0 29 2 *", "0 9 * mar fri", "0 0 L * *"]
)
def test_a_cron_that_can_tick_is_no_problem(cron):
    assert Schedule(cron).problem() is None


def test_a_zone_that_is_not_an_iana_name_is_told():
    assert "'CEST' is not an IANA name" in Schedule("0 6 * * *", "CEST").problem()
    assert Schedule("0 6 * * *", "Europe/Berlin").problem() is None


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC"])
def test_zones_are_known_by_their_names(name):
    assert is_zone(name)


@pytest.mark.parametrize("name", ["", "Berlin", "../etc/passwd", "Europe/\0"])
def test_anything_else_is_no_zone(name):
    assert not is_zone(name)


def test_a_word_for_rebuild_that_is_unknown_is_told():
    assert "rebuild='never'" in Schedule("0 6 * * *", rebuild="never").problem()


def test_a_tick_at_this_very_minute_is_the_latest():
    schedule = Schedule("0 6 * * *")
    assert schedule.latest_tick(utc(2026, 1, 5, 6, 0), "UTC") == utc(2026, 1, 5, 6, 0)
    assert schedule.latest_tick(utc(2026, 1, 5, 6, 0, 59), "UTC") == utc(2026, 1, 5, 6, 0)
    assert schedule.latest_tick(utc(2026, 1, 5, 5, 59, 59), "UTC") == utc(2026, 1, 4, 6, 0)


def test_the_next_tick_is_after_now():
    schedule = Schedule("0 6 * * *")
    assert schedule.next_tick(utc(2026, 1, 5, 6, 0), "UTC") == utc(2026, 1, 6, 6, 0)


def test_the_zone_of_the_schedule_goes_before_that_of_the_platform():
    now = utc(2026, 1, 5, 12)
    assert Schedule("0 6 * * *").latest_tick(now, "Europe/Berlin") == utc(2026, 1, 5, 5)
    assert Schedule("0 6 * * *", "Asia/Tokyo").latest_tick(now, "Europe/Berlin") == utc(
        2026, 1, 4, 21
    )


def test_ticks_are_in_utc():
    tick = Schedule("0 6 * * *", "Europe/Berlin").latest_tick(utc(2026, 1, 5, 12), "UTC")
    assert tick.tzinfo is UTC


def test_a_tick_in_the_skipped_hour_comes_when_the_hour_is_over():
    schedule = Schedule("30 2 * * *", "Europe/Berlin")
    assert schedule.next_tick(utc(2024, 3, 30, 12), "UTC") == utc(2024, 3, 31, 1, 0)


def test_a_daily_tick_in_the_repeated_hour_comes_once():
    schedule = Schedule("30 2 * * *", "Europe/Berlin")
    assert list(ticks_of(schedule, utc(2024, 10, 26, 12), utc(2024, 10, 28, 12))) == [
        utc(2024, 10, 27, 1, 30),
        utc(2024, 10, 28, 1, 30),
    ]
    assert schedule.latest_tick(utc(2024, 10, 27, 0, 45), "UTC") == utc(2024, 10, 26, 0, 30)


def test_an_hourly_tick_comes_in_both_repeated_hours():
    schedule = Schedule("0 * * * *", "Europe/Berlin")
    assert len(list(ticks_of(schedule, utc(2024, 10, 26, 22), utc(2024, 10, 27, 23)))) == 25


CHANGES = {
    "Europe/Berlin": [utc(2024, 3, 31, 1), utc(2024, 10, 27, 1)],
    "America/New_York": [utc(2024, 3, 10, 7), utc(2024, 11, 3, 6)],
}


@pytest.mark.parametrize(
    ("zone", "change"), [(z, c) for z, changes in CHANGES.items() for c in changes]
)
@pytest.mark.parametrize("cron", ["0 2 * * *", "30 1 * * *", "15 */2 * * *", "*/20 * * * *"])
def test_ticks_around_a_dst_change_are_those_found_minute_by_minute(zone, change, cron):
    start, end = change - timedelta(hours=6), change + timedelta(hours=6)
    expected = list(ticks_by_brute_force(cron, zone, start, end))
    assert list(ticks_of(Schedule(cron, zone), start, end)) == expected


@given(cron=crons, moment=moments_around_dst)
def test_now_lies_between_the_latest_tick_and_the_next(cron, moment):
    zone, now = moment
    schedule = Schedule(cron, zone)
    latest, following = schedule.latest_tick(now, "UTC"), schedule.next_tick(now, "UTC")
    assert latest <= now < following
    assert schedule.next_tick(latest, "UTC") == following
    assert schedule.latest_tick(following - timedelta(seconds=1), "UTC") == latest


@given(cron=crons, moment=moments_around_dst)
def test_the_latest_tick_is_the_one_found_minute_by_minute(cron, moment):
    zone, now = moment
    start = now.replace(second=0, microsecond=0) - timedelta(hours=5)
    expected = list(ticks_by_brute_force(cron, zone, start, now + timedelta(microseconds=1)))
    latest = Schedule(cron, zone).latest_tick(now, "UTC")
    if expected:
        assert latest == expected[-1]
    else:
        assert latest < start


def test_the_kinds_of_freshness_are_shown_in_words():
    assert [str(f) for f in (Always, Manual, Schedule("0 6 * * *"))] == [
        "always",
        "manual",
        "schedule 0 6 * * *",
    ]
