import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import library

from examlops_dagster.core.partitions import PartitionSpace, partitions
from examlops_dagster.core.ranges import corners, keys_between, select_keys

LETTERS = PartitionSpace.of({"k": partitions("abcde")})
GRID = PartitionSpace.of({"site": partitions("xyz"), "day": partitions("1234")})
KEYS = {space: space.keys(None, {}) for space in (LETTERS, GRID)}


@pytest.mark.parametrize(
    ("space", "text", "chosen"),
    [
        (LETTERS, "b", "b"),
        (LETTERS, "b...d", "b c d"),
        (LETTERS, "k=b...c", "b c"),
        (LETTERS, "b...b", "b"),
        (GRID, "2|y", "2|y"),
        (GRID, "site=y,day=2", "2|y"),
        (GRID, "day = 2 , site = y", "2|y"),
        (GRID, "site=y", "1|y 2|y 3|y 4|y"),
        (GRID, "day=2...3,site=x...y", "2|x 2|y 3|x 3|y"),
        (GRID, "1|x...2|y", "1|x 1|y 2|x 2|y"),
        (GRID, "1|y...3|y", "1|y 2|y 3|y"),
    ],
)
def test_a_selection_names_keys(space, text, chosen):
    assert select_keys(space, KEYS[space], text) == chosen.split()


@pytest.mark.parametrize(
    ("space", "text", "words"),
    [
        (LETTERS, "f", "there is no partition 'f' → they go from a to e"),
        (LETTERS, "a...f", "there is no partition 'f'"),
        (LETTERS, "d...b", "the range d...b is empty"),
        (GRID, "sit=x", "there is no dimension 'sit', only day, site"),
        (GRID, "site=w", "there is no partition 'w'"),
        (GRID, "1|y...2|x", "the range 1|y...2|x is empty"),
        (GRID, "site=z...x", "the range z...x is empty"),
    ],
)
def test_what_does_not_exist_is_told(space, text, words):
    with pytest.raises(ValueError, match=words.replace("|", r"\|")):
        select_keys(space, KEYS[space], text)


@pytest.mark.parametrize("space", KEYS)
@given(data=st.data())
def test_the_corners_hold_every_key_and_are_the_smallest_range_that_does(space, data):
    existing = KEYS[space]
    wanted = data.draw(st.lists(st.sampled_from(existing), min_size=1, unique=True))
    first, last = corners(space, existing, wanted)
    between = keys_between(space, existing, first, last)
    assert set(wanted) <= set(between)
    assert between == [key for key in existing if key in between]
    for name, _ in space.dimensions:
        ends = {space.split(first)[name], space.split(last)[name]}
        assert ends <= {space.split(key)[name] for key in wanted}


@given(data=st.data())
def test_ranges_are_read_as_dagster_reads_them(data):
    dagster = library("dagster")
    theirs = dagster.MultiPartitionsDefinition(
        {
            "site": dagster.StaticPartitionsDefinition(list("xyz")),
            "day": dagster.StaticPartitionsDefinition(list("1234")),
        }
    )
    first, last = (data.draw(st.sampled_from(KEYS[GRID])) for _ in range(2))
    try:
        expected = theirs.get_partition_keys_in_range(dagster.PartitionKeyRange(first, last))
    except dagster.DagsterInvalidInvocationError:
        expected = []
    assert keys_between(GRID, KEYS[GRID], first, last) == list(map(str, expected))
