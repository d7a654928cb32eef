from hypothesis import given
from hypothesis import strategies as st
from worlds import built, record

from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildResult, Value
from examlops_dagster.core.versions import (
    attempt_fingerprint,
    content_version,
    keeps_former_value,
    next_version,
    result_data_version,
)

FORMER = record(3, "former")
ONE = Value("json", b"1")


def test_the_order_of_keys_is_not_content():
    assert content_version(Value("json", b'{"a": 1, "b": 2}')) == content_version(
        Value("json", b'{"b":2,"a":1}')
    )


def test_other_content_has_another_version():
    assert content_version(ONE) != content_version(Value("json", b"2"))
    assert content_version(ONE) != content_version(Value("pickle", b"1"))


def test_equal_content_keeps_the_number():
    assert next_version(FORMER, 9, "former") == 3


def test_new_content_gets_a_number_above_all_that_were_given():
    assert next_version(FORMER, 9, "new") == 10
    assert next_version(None, 0, "new") == 1


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_numbers_name_one_content_each_and_never_come_back(contents):
    former, highest, given_to = None, 0, {}
    for data in contents:
        version = next_version(former, highest, data)
        assert given_to.setdefault(version, data) == data
        assert version == highest or version == highest + 1
        former, highest = record(version, data), max(highest, version)


def test_the_data_version_that_the_function_gave_goes_first():
    assert result_data_version(BuildResult(ONE, "theirs"), FORMER, "build") == "theirs"


def test_without_one_it_is_the_hash_of_the_value():
    assert result_data_version(BuildResult(ONE), FORMER, "build") == content_version(ONE)


def test_without_a_value_it_belongs_to_this_build_alone():
    assert result_data_version(BuildResult(), FORMER, "build") == "build"


def test_a_sensor_that_saw_something_has_a_new_one_though_its_output_is_equal():
    result = BuildResult(ONE, "theirs", update_detected=True)
    assert result_data_version(result, FORMER, "build") == "build"
    assert not keeps_former_value(result, FORMER)


def test_a_sensor_that_saw_nothing_keeps_the_former():
    result = BuildResult(ONE, "theirs", update_detected=False)
    assert result_data_version(result, FORMER, "build") == "former"
    assert keeps_former_value(result, FORMER)


def test_a_sensor_that_saw_nothing_the_first_time_has_one_as_any_node():
    result = BuildResult(ONE, update_detected=False)
    assert result_data_version(result, None, "build") == content_version(ONE)
    assert not keeps_former_value(result, None)


def test_a_fingerprint_does_not_depend_on_the_order_of_inputs_and_resources():
    a, b = Node("a"), Node("b")
    one = attempt_fingerprint(built("x", resources={"p": 1, "q": 2}), "c", {a: "1", b: "2"}, None)
    two = attempt_fingerprint(built("x", resources={"q": 2, "p": 1}), "c", {b: "2", a: "1"}, None)
    assert one == two


def test_a_fingerprint_tells_inputs_apart():
    x = built("x")
    found = {
        attempt_fingerprint(x, "c", {Node("a"): "12", Node("b"): "3"}, None),
        attempt_fingerprint(x, "c", {Node("a"): "1", Node("b"): "23"}, None),
        attempt_fingerprint(x, "c", {Node("a", "12"): "", Node("b"): "3"}, None),
        attempt_fingerprint(x, "c1", {Node("a"): "2", Node("b"): "3"}, None),
    }
    assert len(found) == 4
