"""Generators for the property tests."""

from datetime import date, datetime, timedelta, timezone

from hypothesis import strategies as st
from worlds import built, sensor_of, source, task_of

from examlops_dagster.core.declarations import NodeType, Upstream
from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.partitions import partitions
from examlops_dagster.core.windows import TimeWindowSpace, Unit

ZONES = ("Europe/Berlin", "America/New_York")

_minutes = st.sampled_from(["0", "30", "17", "*/20", "5,35", "*"])
_hours = st.sampled_from(["*", "0", "1", "2", "3", "*/2", "1-4", "23"])
_days = st.sampled_from(["* * *", "* * 0", "* * 1-5", "1 * *"])
crons = st.builds("{} {} {}".format, _minutes, _hours, _days)

_changes = {
    "Europe/Berlin": ("2024-03-31T01:00+00:00", "2024-10-27T01:00+00:00"),
    "America/New_York": ("2024-03-10T07:00+00:00", "2024-11-03T06:00+00:00"),
}
moments_around_dst = st.builds(
    lambda change, seconds: (
        change[0],
        datetime.fromisoformat(change[1]) + timedelta(seconds=seconds),
    ),
    st.sampled_from([(zone, change) for zone, both in _changes.items() for change in both]),
    st.integers(-14 * 3600, 14 * 3600),
)
"""A zone, and a moment less than 14 hours from one of its changes."""

spaces_over_dst = st.builds(
    lambda unit, zone, day, length: (
        TimeWindowSpace(unit, f"2024-{day:%m-%d}", None, zone),
        datetime(2024, day.month, day.day, tzinfo=timezone.utc) + length,
    ),
    st.sampled_from(Unit),
    st.sampled_from(ZONES),
    st.dates(date(2024, 2, 20), date(2024, 11, 10)),
    st.timedeltas(timedelta(0), timedelta(days=60)),
)
"""A space of time windows, and a moment at which to look at it."""

printable = st.text(
    st.characters(min_codepoint=33, exclude_categories=("C", "Z")), min_size=1, max_size=30
)
freshness_kinds = st.sampled_from(
    [
        Always,
        Always,
        Manual,
        Schedule("0 6 * * *"),
        Schedule("*/10 * * * *", rebuild="always"),
    ]
)


@st.composite
def pipelines(draw, max_size=9):
    """Declarations of a random graph, sources first, upstreams before downstreams."""
    size = draw(st.integers(1, max_size))
    found = []
    tasks = set()
    for n in range(size):
        name = f"n{n}"
        allowed = [d.name for d in found if d.name not in tasks]
        above = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=3)) if allowed else []
        kind = draw(st.sampled_from(["asset", "asset", "asset", "source", "task"]))
        if kind == "source":
            found.append(source(name))
            continue
        node_type = NodeType.ASSET
        if kind == "task":
            node_type = NodeType.TASK
            tasks.add(name)
        edges = [Upstream(a) for a in above]
        found.append(built(name, *edges, node_type=node_type, freshness=draw(freshness_kinds)))
    return draw(st.permutations(found))


scheduled_kinds = st.sampled_from(
    [Manual, Schedule("0 6 * * *"), Schedule("*/10 * * * *"), Schedule("30 */3 * * *")]
)
outcomes = st.sampled_from(["new", "new", "same", "fails", "fails once"])
TWO_KEYS = {"key": partitions("xy")}


@st.composite
def platforms(draw, max_size=8):
    """Declarations with sensors, tasks and partitions among them, and how each function ends."""
    found, tasks, how = [], set(), {}
    for n in range(draw(st.integers(1, max_size))):
        name = f"n{n}"
        allowed = [d.name for d in found if d.name not in tasks]
        above = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=3)) if allowed else []
        kind = draw(st.sampled_from(["asset"] * 5 + ["source", "task", "sensor"]))
        how[name] = draw(outcomes)
        edges = [Upstream(a) for a in above]
        retries = draw(st.integers(0, 1))
        if kind == "source":
            found.append(source(name))
        elif kind == "sensor":
            found.append(sensor_of(name, freshness=draw(scheduled_kinds), retries=retries))
        elif kind == "task":
            tasks.add(name)
            found.append(task_of(name, *edges, freshness=draw(freshness_kinds), retries=retries))
        else:
            space = draw(st.sampled_from([None, None, None, TWO_KEYS]))
            freshness = draw(freshness_kinds)
            found.append(built(name, *edges, freshness=freshness, retries=retries, space=space))
    return found, how


events = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 3000)),
    st.tuples(st.just("source"), st.integers(0, 7)),
    st.tuples(st.just("code"), st.integers(0, 7)),
    st.tuples(st.just("ask"), st.integers(0, 7)),
    st.tuples(st.just("tick"), st.just(0)),
)
"""What may happen to a platform: minutes pass, a source or code changes, somebody asks, a tick."""
