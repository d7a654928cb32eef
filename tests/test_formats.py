import enum
import math
import threading
from collections import OrderedDict

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster.core.seams import Value
from examlops_dagster.core.versions import content_version
from examlops_dagster.formats import SUFFIXES, decode, dumps, encode

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
picklable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.frozensets(st.integers())
    ),
)


class Level(enum.IntEnum):
    HIGH = 1


def same(left, right):
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@given(plain | picklable)
def test_a_value_comes_back_equal_and_of_the_same_types(value):
    assert same(decode(encode(value)), value)


@given(st.dictionaries(st.text(), scalars))
def test_the_order_of_keys_is_kept_but_is_no_part_of_the_data_version(value):
    turned = dict(reversed(value.items()))
    first, second = encode(value, "json"), encode(turned, "json")
    assert list(decode(second)) == list(turned)
    assert content_version(first) == content_version(second)


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "a"},
        {1, 2},
        Level.HIGH,
        math.inf,
        [math.nan],
        b"bytes",
        OrderedDict(a=1),
        "\ud800",
        "\ud83d\ude00",
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_would_change_is_pickled(value):
    assert encode(value).format == "pickle"


@pytest.mark.parametrize("value", [None, True, 3, -0.0, "ä", [], {"a": [{"b": None}]}])
def test_what_json_keeps_is_json(value):
    assert encode(value).format == "json"


def test_a_list_that_contains_itself_is_pickled():
    value = []
    value.append(value)
    back = decode(encode(value))
    assert back[0] is back


def test_a_list_met_twice_stays_one_list():
    inner = [1]
    back = decode(encode([inner, inner]))
    assert back[0] is back[1]


def test_a_very_deep_value_is_refused_without_a_recursion_error():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TypeError, match="cannot be kept"):
        encode(value)
    while value:  # taken apart here: freeing it in one go is deep too
        value = value[0]


def test_json_by_request_takes_tuples():
    assert decode(encode({"a": (1, 2)}, "json")) == {"a": [1, 2]}


def test_a_local_class_is_pickled_by_value():
    class Local:
        def answer(self):
            return 42

    assert decode(encode(Local())).answer() == 42


@pytest.mark.parametrize("serializer", [None, "json", "pickle", "parquet"])
def test_what_cannot_be_kept_says_what_can_be_done(serializer):
    with pytest.raises(TypeError, match=r"a lock cannot be kept.*AssetOutput") as caught:
        encode(threading.Lock(), serializer)
    assert "serializer=" in str(caught.value)
    assert "timeout_seconds=None" in str(caught.value)


def test_an_unknown_serializer_names_the_known_ones():
    with pytest.raises(ValueError, match="'yaml' is not one of json, pickle, parquet"):
        encode(1, "yaml")


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(ValueError, match="'yaml' is not one of json, pickle, parquet"):
        decode(Value("yaml", b""))


def test_every_format_has_a_suffix():
    assert set(SUFFIXES) == {"json", "pickle", "parquet"}


def frame():
    return pd.DataFrame(
        {
            "number": [1, 2],
            "text": ["a", None],
            "when": pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True),
            "kind": pd.Categorical(["x", "y"]),
        }
    )


def test_a_frame_that_parquet_keeps_is_parquet():
    value = encode(frame())
    assert value.format == "parquet"
    pd.testing.assert_frame_equal(decode(value), frame())


def test_the_same_frame_gives_the_same_bytes():
    assert encode(frame()).payload == encode(frame()).payload


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame({1: [1]}),
        pd.DataFrame({"a": [1]}, index=["row"]),
        pd.DataFrame({"a": [1, 2]}, index=[1, 0]),
        pd.DataFrame({"a": [1, "mixed"]}, dtype=object),
        pd.DataFrame({"a": [1, 2]}, dtype=object),
        pd.DataFrame({"a": [(1, 2)]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
    ],
    ids=["int name", "index", "other index", "mixed", "objects", "tuples", "name twice"],
)
def test_a_frame_that_parquet_would_change_is_pickled(value):
    encoded = encode(value)
    assert encoded.format == "pickle"
    pd.testing.assert_frame_equal(decode(encoded), value)


def test_parquet_by_request_keeps_an_index():
    value = pd.DataFrame({"a": [1]}, index=["row"])
    pd.testing.assert_frame_equal(decode(encode(value, "parquet")), value)


@pytest.mark.parametrize("serializer", [None, "parquet"])
def test_a_table_comes_back_as_a_table(serializer):
    table = pa.table({"a": [1, 2]}, metadata={"made": "here"})
    value = encode(table, serializer)
    assert value.format == "parquet"
    assert decode(value).equals(table, check_metadata=True)


def test_a_table_made_of_a_frame_stays_a_table():
    table = pa.Table.from_pandas(frame())
    assert isinstance(decode(encode(table)), pa.Table)


def test_pickles_for_another_process_hold_functions_by_value():
    assert b"cloudpickle" in dumps(lambda: 1)
    assert b"cloudpickle" not in dumps({"a": 1})
