"""Numbers in variables: taken, or told and not used."""

import pytest

from examlops_dagster.schedulers.job import MAX_VALUE_BYTES, max_value_bytes
from examlops_dagster.schedulers.whole_numbers import whole_number


def test_a_number_is_taken():
    assert whole_number({"X": " 7 "}, "X", 1) == 7


@pytest.mark.parametrize("environment", [{}, {"X": ""}, {"X": "  "}])
def test_what_is_not_said_is_the_default(environment, caplog):
    assert whole_number(environment, "X", 3) == 3
    assert not caplog.text


@pytest.mark.parametrize("text", ["many", "-1", "2.5", "4G", "²", "1"])
def test_what_is_no_such_number_is_told_and_not_used(text, caplog):
    assert whole_number({"X": text}, f"X{text}", 3, least=2) == 3
    assert whole_number({f"X{text}": text}, f"X{text}", 3, least=2) == 3
    assert f"X{text}={text} is no whole number from 2 on; it is not used, 3 holds" in caplog.text


def test_it_is_told_once_for_a_thousand_keys(caplog):
    for _ in range(1000):
        whole_number({"ONCE": "x"}, "ONCE", 3)
    assert len(caplog.records) == 1


def test_a_limit_of_values_with_a_unit_is_told(caplog):
    assert max_value_bytes({"EXAMLOPS_HPC_MAX_VALUE": "2G"}) == MAX_VALUE_BYTES
    assert "EXAMLOPS_HPC_MAX_VALUE=2G" in caplog.text
