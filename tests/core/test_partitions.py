from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from strategies import spaces_over_dst

from examlops_dagster.core.mappings import all_keys, keys, same_key, upstream_keys
from examlops_dagster.core.partitions import (
    DynamicSpace,
    PartitionSpace,
    StaticSpace,
    daily,
    dynamic,
    hourly,
    monthly,
    parse_space,
    partitions,
    weekly,
)
from examlops_dagster.core.windows import TimeWindowSpace, Unit

UTC = timezone.utc


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def space(**dimensions):
    return PartitionSpace(tuple(dimensions.items()))


NOW = utc(2024, 1, 10)


def keys_of(dimension, now=NOW, **dynamic_keys):
    return space(key=dimension).keys(now, dynamic_keys)


# keys


def test_a_static_space_has_the_keys_that_it_lists():
    assert keys_of(partitions(["eu", "us"])) == ["eu", "us"]


def test_a_day_counts_once_it_has_ended():
    assert keys_of(daily("2024-01-08"), utc(2024, 1, 9, 23, 59)) == ["2024-01-08"]
    assert keys_of(daily("2024-01-08"), utc(2024, 1, 10)) == ["2024-01-08", "2024-01-09"]


def test_the_end_of_a_space_is_exclusive():
    assert keys_of(daily("2024-01-08", "2024-01-09")) == ["2024-01-08"]
    assert keys_of(daily("2024-01-08", "2024-01-08")) == []


def test_a_space_that_begins_later_has_no_keys_yet():
    assert keys_of(daily("2025-01-01")) == []


def test_days_end_in_the_zone_of_the_space():
    assert keys_of(daily("2024-01-09", timezone="Asia/Tokyo"), utc(2024, 1, 9, 15)) == [
        "2024-01-09"
    ]
    assert keys_of(daily("2024-01-09", timezone="America/New_York"), utc(2024, 1, 10, 4)) == []


def test_hours_have_the_keys_of_dagster():
    assert keys_of(hourly("2024-01-09-22:00"), utc(2024, 1, 10)) == [
        "2024-01-09-22:00",
        "2024-01-09-23:00",
    ]


def test_weeks_run_from_sunday_to_sunday():
    assert keys_of(weekly("2024-01-01"), utc(2024, 1, 21)) == ["2024-01-07", "2024-01-14"]


def test_a_week_may_begin_on_the_start_itself():
    assert keys_of(weekly("2024-01-07"), utc(2024, 1, 14)) == ["2024-01-07"]


def test_months_begin_on_the_first():
    assert keys_of(monthly("2023-10-15"), utc(2024, 2, 1)) == [
        "2023-11-01",
        "2023-12-01",
        "2024-01-01",
    ]


def test_a_dynamic_space_has_the_keys_that_were_added():
    assert keys_of(dynamic("regions"), regions=["eu"]) == ["eu"]
    assert keys_of(dynamic("regions")) == []


def test_two_dimensions_have_all_pairs_in_the_order_of_their_names():
    both = space(day=daily("2024-01-08"), region=partitions(["eu", "us"]))
    assert both.keys(utc(2024, 1, 10), {}) == [
        "2024-01-08|eu",
        "2024-01-08|us",
        "2024-01-09|eu",
        "2024-01-09|us",
    ]
    assert both.split("2024-01-09|us") == {"day": "2024-01-09", "region": "us"}


def test_dimensions_are_in_the_order_of_dagster():
    both = {"region": partitions(["eu"]), "day": daily("2024-01-08", "2024-01-09")}
    assert PartitionSpace.of(both).keys(NOW, {}) == ["2024-01-08|eu"]


def test_the_hour_that_dst_repeats_has_two_keys_as_in_dagster():
    found = keys_of(hourly("2024-10-27-01:00", timezone="Europe/Berlin"), utc(2024, 10, 27, 3))
    assert found == [
        "2024-10-27-01:00",
        "2024-10-27-02:00",
        "2024-10-27-02:00+0100",
        "2024-10-27-03:00",
    ]


def test_the_first_of_two_repeated_hours_counts_before_the_second_has_ended():
    found = keys_of(hourly("2024-10-27-01:00", timezone="Europe/Berlin"), utc(2024, 10, 27, 0, 30))
    assert found == ["2024-10-27-01:00"]


def test_the_hour_that_dst_skips_has_no_key():
    found = keys_of(hourly("2024-03-31-01:00", timezone="Europe/Berlin"), utc(2024, 3, 31, 2))
    assert found == ["2024-03-31-01:00", "2024-03-31-03:00"]


def test_a_start_inside_the_skipped_hour_begins_after_it():
    found = keys_of(hourly("2024-03-31-02:00", timezone="Europe/Berlin"), utc(2024, 3, 31, 2))
    assert found == ["2024-03-31-03:00"]


@given(spaces_over_dst)
def test_keys_are_unique_and_windows_contiguous(space_and_now):
    found, now = space_and_now
    windows = [found.window(key) for key in found.keys_at(now)]
    assume(windows)
    assert len(set(found.keys_at(now))) == len(windows)
    in_utc = [(a.astimezone(UTC), b.astimezone(UTC)) for a, b in windows]
    assert all(end == start for (_, end), (start, _) in pairwise(in_utc))


@given(spaces_over_dst)
def test_exactly_the_windows_that_have_ended_count(space_and_now):
    found, now = space_and_now
    later = [found.window(key)[1] for key in found.keys_at(now + timedelta(days=32))]
    assert len([end for end in later if end.astimezone(UTC) <= now]) == len([*found.keys_at(now)])


@given(spaces_over_dst)
def test_a_window_has_the_length_of_its_unit(space_and_now):
    found, now = space_and_now
    for key in found.keys_at(now):
        start, end = found.window(key)
        wall = end.replace(tzinfo=None) - start.replace(tzinfo=None)
        if found.unit is Unit.HOURLY:
            assert end.astimezone(UTC) - start.astimezone(UTC) == timedelta(hours=1)
        elif found.unit is Unit.MONTHLY:
            assert (start.day, end.day) == (1, 1)
            assert timedelta(days=28) <= wall <= timedelta(days=31)
        else:
            assert wall == timedelta(days=7 if found.unit is Unit.WEEKLY else 1)
            assert start.time() == datetime.min.time()


@given(spaces_over_dst, spaces_over_dst)
def test_overlapping_windows_are_those_that_share_time(one, other):
    (mine, now), (theirs, _) = one, other
    for key in list(mine.keys_at(now))[-3:]:
        start, end = (m.astimezone(UTC) for m in mine.window(key))
        expected = []
        for candidate in theirs.keys_at(end + timedelta(days=32)):
            first, last = (m.astimezone(UTC) for m in theirs.window(candidate))
            if first < end and last > start:
                expected.append(candidate)
        assert list(theirs.overlapping(*mine.window(key))) == expected


# problems


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        (partitions([]), "no keys"),
        (partitions(["a", "a"]), "a key stands there twice"),
        (partitions([""]), "key '' is empty"),
        (partitions(["a...b"]), "key 'a...b'"),
        (partitions(["a|b"]), "key 'a|b'"),
        (partitions(["a\nb"]), "key 'a\\nb'"),
        (partitions([1]), "key 1 is not text"),
        (daily("yesterday"), "'yesterday' is not a date"),
        (daily(""), "'' is not a date"),
        (daily("2024-01-01", "2024-13-01"), "'2024-13-01' is not a date"),
        (daily(date(2024, 1, 1)), "is not a date"),
        (daily("2024-01-01", timezone="CEST"), "time zone 'CEST' is not an IANA name"),
        (["a", "b"], "is not made by partitions"),
    ],
)
def test_a_bad_dimension_is_told(dimension, words):
    [problem] = space(key=dimension).problems()
    assert problem.startswith("partition dimension 'key': ")
    assert words in problem


def test_more_than_two_dimensions_are_told():
    three = space(a=partitions("x"), b=partitions("y"), c=partitions("z"))
    assert three.problems() == ["3 partition dimensions; Dagster takes 2"]


def test_a_dimension_that_is_no_parameter_name_is_told():
    [problem] = PartitionSpace((("a day", partitions("x")),)).problems()
    assert "'a day' is not a parameter name" in problem


def test_a_good_space_has_no_problems():
    good = space(day=daily("2024-01-01", timezone="Europe/Berlin"), region=dynamic("regions"))
    assert good.problems() == []


# text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("daily:2024-01-01", space(partition=daily("2024-01-01"))),
        ("daily:2024-01-01:2024-02-01", space(partition=daily("2024-01-01", "2024-02-01"))),
        ("day=daily:2024-01-01", space(day=daily("2024-01-01"))),
        ("hourly:2024-01-01-06:00", space(partition=hourly("2024-01-01-06:00"))),
        (
            "hourly:2024-01-01-06:00:2024-01-02",
            space(partition=hourly("2024-01-01-06:00", "2024-01-02")),
        ),
        ("weekly:2024-01-01", space(partition=weekly("2024-01-01"))),
        ("monthly:2024-01-01", space(partition=monthly("2024-01-01"))),
        ("static:eu,us", space(partition=StaticSpace(("eu", "us")))),
        ("region=static:a=b", space(region=StaticSpace(("a=b",)))),
        ("static:a=b", space(partition=StaticSpace(("a=b",)))),
        ("static:a:b", space(partition=StaticSpace(("a:b",)))),
        ("dynamic:regions", space(partition=DynamicSpace("regions"))),
    ],
)
def test_a_space_is_read_from_text(text, expected):
    assert parse_space(text) == expected


@pytest.mark.parametrize("text", ["", "daily", "daily:", "yearly:2024-01-01", "dynamic:", "static"])
def test_text_of_another_form_is_refused_with_the_forms(text):
    with pytest.raises(ValueError, match="are not of the form daily:2024-01-01"):
        parse_space(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("daily:soon", "'soon' is not a date"),
        ("daily:2024-01-01:soon", "is not a date"),
        ("static:", "key ''"),
        ("static:a,a", "twice"),
    ],
)
def test_text_that_names_a_bad_space_is_refused_with_the_problem(text, words):
    with pytest.raises(ValueError, match=words):
        parse_space(text)


# mappings


DAYS = space(day=daily("2024-01-08"))
HOURS = space(hour=hourly("2024-01-08"))
REGIONS = space(region=partitions(["eu", "us"]))
BOTH = space(day=daily("2024-01-08"), region=partitions(["eu", "us"]))


def read(key, mapped=None, *, own, of):
    existing = of.keys(NOW, {}) if of else [""]
    return list(upstream_keys(key, mapped, own, of, existing))


def test_an_upstream_without_partitions_is_read_whole():
    assert read("2024-01-08", own=DAYS, of=None) == [""]


def test_the_same_space_is_read_by_the_same_key():
    assert read("2024-01-08", own=DAYS, of=DAYS) == ["2024-01-08"]


def test_a_key_of_the_same_space_is_read_though_it_does_not_exist():
    assert read("2030-01-01", own=DAYS, of=DAYS) == ["2030-01-01"]


def test_an_asset_without_partitions_reads_all_keys():
    assert read("", own=None, of=REGIONS) == ["eu", "us"]


def test_a_day_reads_its_hours():
    found = read("2024-01-09", own=DAYS, of=HOURS)
    assert (len(found), found[0], found[-1]) == (24, "2024-01-09-00:00", "2024-01-09-23:00")


def test_an_hour_reads_its_day():
    assert read("2024-01-08-05:00", own=HOURS, of=DAYS) == ["2024-01-08"]


def test_an_hour_of_today_reads_the_day_that_has_not_ended():
    assert read("2024-01-10-05:00", own=HOURS, of=DAYS) == ["2024-01-10"]


def test_days_of_another_zone_are_those_that_overlap():
    there = space(day=daily("2024-01-01", timezone="America/New_York"))
    assert read("2024-01-09", own=DAYS, of=there) == ["2024-01-08", "2024-01-09"]


def test_a_week_reads_no_day_before_the_upstream_begins():
    weeks = space(week=weekly("2023-12-31"))
    assert read("2024-01-07", own=weeks, of=DAYS)[0] == "2024-01-08"


def test_no_window_after_the_end_of_the_upstream_is_read():
    ended = space(day=daily("2024-01-01", "2024-01-09"))
    weeks = space(week=weekly("2023-12-31"))
    assert read("2024-01-07", own=weeks, of=ended) == ["2024-01-07", "2024-01-08"]


def test_a_shared_dimension_is_read_by_its_key():
    assert read("2024-01-09", own=DAYS, of=BOTH) == ["2024-01-09|eu", "2024-01-09|us"]
    assert read("2024-01-09|us", own=BOTH, of=REGIONS) == ["us"]


def test_spaces_that_share_nothing_are_read_whole():
    assert read("2024-01-08", own=DAYS, of=REGIONS) == ["eu", "us"]


def test_all_keys_reads_all():
    assert read("eu", all_keys("x"), own=REGIONS, of=REGIONS) == ["eu", "us"]


def test_same_key_reads_the_same_key_of_another_space():
    other = space(region=partitions(["us", "eu", "asia"]))
    assert read("eu", same_key("x"), own=REGIONS, of=other) == ["eu"]


def test_keys_reads_what_the_function_names():
    assert read("eu", keys("x", lambda key: [key, "us"]), own=REGIONS, of=REGIONS) == ["eu", "us"]


def test_keys_takes_one_key_as_well_as_many():
    assert read("eu", keys("x", lambda key: key), own=REGIONS, of=REGIONS) == ["eu"]


def test_a_window_is_given_in_the_zone_of_the_space():
    start, end = TimeWindowSpace(Unit.DAILY, "2024-01-01", None, "Europe/Berlin").window(
        "2024-03-31"
    )
    assert (start.tzinfo, end.isoformat()) == (
        ZoneInfo("Europe/Berlin"),
        "2024-04-01T00:00:00+02:00",
    )
