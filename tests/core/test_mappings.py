import pytest

from examlops_dagster.core.mappings import same_key_problem
from examlops_dagster.core.partitions import (
    PartitionSpace,
    daily,
    dynamic,
    hourly,
    monthly,
    partitions,
    weekly,
)

DAYS = daily("2024-01-01")
OTHER_DAYS = daily("2020-01-01", timezone="Europe/Berlin")
HOURS = hourly("2024-01-01")
WEEKS = weekly("2024-01-01")
MONTHS = monthly("2024-01-01")
REGIONS = partitions(["eu", "us"])
SITES = partitions(["eu", "asia"])
DATES = partitions(["2024-01-01", "2024-02-01"])
USERS = dynamic("users")


def problem(own, theirs):
    return same_key_problem(*(PartitionSpace.of(dimensions) for dimensions in (own, theirs)))


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (DAYS, DAYS),
        (DAYS, OTHER_DAYS),
        (WEEKS, DAYS),
        (MONTHS, DAYS),
        (REGIONS, SITES),
        (DATES, DAYS),
        (DAYS, DATES),
        (USERS, REGIONS),
        (DAYS, USERS),
        (USERS, USERS),
    ],
)
def test_keys_that_may_be_there_are_no_problem(own, theirs):
    assert problem({"x": own}, {"x": theirs}) is None
    assert problem({"x": own}, {"another": theirs}) is None
    assert problem({"x": own, "y": USERS}, {"x": theirs, "y": USERS}) is None


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (DAYS, HOURS),
        (HOURS, DAYS),
        (DAYS, WEEKS),
        (DAYS, MONTHS),
        (WEEKS, MONTHS),
        (MONTHS, WEEKS),
        (DAYS, REGIONS),
        (REGIONS, DAYS),
        (REGIONS, partitions(["asia"])),
    ],
)
def test_keys_that_are_never_there_are_a_problem(own, theirs):
    assert "which do not match" in problem({"x": own}, {"x": theirs})
    assert problem({"x": own, "y": USERS}, {"x": theirs, "y": USERS}) is not None


def test_one_dimension_and_two_have_no_key_in_common():
    assert problem({"x": DAYS}, {"x": DAYS, "y": REGIONS}) is not None
    assert problem({"x": DAYS, "y": REGIONS}, {"x": DAYS}) is not None


def test_a_problem_describes_both_spaces():
    many = partitions(list("abcd"))
    assert problem({"day": DAYS, "letter": many}, {"user": USERS}) == (
        "same_key between keys of day (daily) and letter (a, b, c, ...) and those of user "
        "(dynamic), which do not match"
    )
