"""Partitions in runs: each key with its own event and version, a bad one failing alone."""

import json

import pytest
from dagster import AssetKey
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)
from homes import names_of
from ticks import FORMS, Automation

from examlops_dagster.core.records import Node
from examlops_dagster.errors import UsageError

PARTS = """\
from pathlib import Path

from examlops_dagster import asset, partitions

HERE = Path(__file__).parent
SPACE = {"k": partitions(["a", "b", "c", "d"])}


def called(name):
    with (HERE / "calls").open("a") as file:
        print(name, file=file)


@asset(partitions=SPACE, timeout_seconds=None)
def parts(k):
    called(f"parts[{k}]")
    if k in (HERE / "bad").read_text().split():
        raise ValueError(f"{k} is bad")
    return {"k": k}


@asset(partitions=SPACE, inputs={"part": parts}, timeout_seconds=None)
def doubled(k, part):
    called(f"doubled[{k}]")
    return [part["k"], part["k"]]


@asset(inputs={"parts": doubled}, timeout_seconds=None)
def total(parts):
    called("total")
    return sorted(parts)
"""


@pytest.fixture
def module(home):
    home.write("bad", "")
    return home.module(PARTS)


def calls(home):
    path = home.folder / "calls"
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def runs(home):
    return [run for run in home.instance.get_runs() if run.status.value != "NOT_STARTED"]


def events_of(home, name):
    return {event.partition: event for event in home.events(name)}


# A range is one run


def test_a_whole_partitioned_slice_is_one_run(home, module):
    assert home.exa(module, "doubled").ok
    assert len(runs(home)) == 1
    assert calls(home) == [
        *(f"parts[{k}]" for k in "abcd"),
        *(f"doubled[{k}]" for k in "abcd"),
    ]


def test_a_slice_over_two_partition_spaces_is_two_runs(home, module):
    assert home.exa(module, "total").ok
    assert len(runs(home)) == 2
    assert home.records(module)["total"].built_from == {
        Node("doubled", k): (1, home.records(module)[f"doubled[{k}]"].data_version) for k in "abcd"
    }


def test_each_key_has_an_event_and_a_data_version_of_its_own(home, module):
    home.exa(module, "doubled")
    events = events_of(home, "doubled")
    records = home.records(module)
    assert set(events) == set("abcd")
    assert len({e.tags["dagster/data_version"] for e in events.values()}) == 4
    for k, event in events.items():
        assert event.tags["dagster/data_version"] == records[f"doubled[{k}]"].data_version
        assert records[f"doubled[{k}]"].built_from == {
            Node("parts", k): (1, records[f"parts[{k}]"].data_version)
        }
    assert home.instance.get_materialized_partitions(AssetKey("doubled")) == set("abcd")


def test_only_stale_keys_are_built_in_as_few_runs(home, module):
    home.exa(module, "doubled")
    calls(home)
    for k in "ac":
        home.report("parts", "from elsewhere", partition=k)
    before = len(runs(home))
    home.write("bad", "")
    report = home.exa(module, "doubled", force=False)
    assert names_of(f.node for f in report.failed) == ["doubled[a]", "doubled[c]"]  # no value kept
    assert calls(home) == []
    assert len(runs(home)) == before + 1


def test_one_key_is_asked_for_alone(home, module):
    assert home.exa(module, "doubled", partition="b").ok
    assert calls(home) == ["parts[b]", "doubled[b]"]
    assert home.states(module)["doubled[a]"] == "never built"


def test_a_range_is_asked_for(home, module):
    assert home.exa(module, "doubled", partition="b...c").ok
    assert calls(home) == ["parts[b]", "parts[c]", "doubled[b]", "doubled[c]"]
    assert len(runs(home)) == 1


@pytest.mark.parametrize("partition", ["x", "b...x", "c...b", "k=x", "other=a"])
def test_a_partition_that_does_not_exist_is_refused(home, module, partition):
    with pytest.raises(UsageError):
        home.exa(module, "doubled", partition=partition)
    assert runs(home) == []


def test_force_builds_each_key_anew(home, module):
    home.exa(module, "doubled")
    calls(home)
    assert home.exa(module, "doubled", force=True, partition="a...b").ok
    assert calls(home) == ["doubled[a]", "doubled[b]"]
    assert home.versions(module)["doubled[a]"] == 1  # its content is equal


# A bad key


def test_a_bad_key_fails_alone_in_the_records(home, module):
    home.write("bad", "b")
    report = home.exa(module, "doubled")
    assert names_of(f.node for f in report.failed) == ["parts[b]"]
    assert set(events_of(home, "parts")) == {"a", "c", "d"}
    states = home.states(module)
    assert [states[f"parts[{k}]"] for k in "abcd"] == ["fresh", "failed", "fresh", "fresh"]
    [run] = runs(home)
    assert run.status.value == "FAILURE"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Function `AssetSelection.keys`:DeprecationWarning")
def test_what_is_below_the_good_keys_is_built_by_the_next_tick(home, module, form):
    home.write("bad", "b")
    kept = Automation(home, module, form)
    kept.tick()
    kept.tick()
    states = home.states(module)
    assert [states[f"doubled[{k}]"] for k in "abcd"] == [
        "fresh",
        "waiting for upstream",
        "fresh",
        "fresh",
    ]
    assert states["total"] == "waiting for upstream"
    assert kept.tick() == []


def test_a_bad_key_is_retried_and_the_good_ones_are_not(home):
    home.write("bad", "b")
    text = PARTS.replace("partitions=SPACE, timeout", "partitions=SPACE, retries=2, timeout")
    module = home.module(text)
    home.exa(module, "parts")
    assert calls(home) == ["parts[a]", "parts[b]", "parts[c]", "parts[d]", "parts[b]", "parts[b]"]
    assert len(events_of(home, "parts")) == 3


# What Dagster starts without us: a click, a backfill


def whole_range(first="a", last="d"):
    return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}


def test_a_range_that_a_person_clicks_is_built_whole(home, module):
    home.exa(module, "doubled")
    calls(home)
    result = home.click(module, "parts", "doubled", tags=whole_range("b", "c"))
    assert result.success
    assert calls(home) == ["parts[b]", "parts[c]", "doubled[b]", "doubled[c]"]
    assert len(home.events("doubled")) == 6


def test_a_key_that_a_person_clicks_lifts_its_hold_and_is_built(home, module):
    home.write("bad", "b")
    home.exa(module, "parts")
    home.write("bad", "")
    assert home.click(module, "parts", partition="b").success
    assert home.states(module)["parts[b]"] == "fresh"


# Keys that are not next to each other


def test_a_run_names_the_keys_of_each_asset_where_they_differ(home, module):
    home.exa(module, "parts", partition="a")
    home.exa(module, "parts", partition="c")
    kept = Automation(home, module, "sensor")
    [request] = kept.requests()
    assert json.loads(request.tags["examlops/keys"]) == {
        "parts": [["b", "b"], ["d", "d"]],
        "doubled": [["a", "d"]],
    }
    kept.queue(request)
    running = {name for name, state in home.states(module).items() if state == "running"}
    assert running == {"parts[b]", "parts[d]", *(f"doubled[{k}]" for k in "abcd")}


# Two dimensions


def test_two_dimensions_are_built_each_key_with_both(home):
    module = home.module(
        """\
        from examlops_dagster import asset, daily, partitions

        SPACE = {"site": partitions(["x", "y"]), "day": daily("2024-01-01", "2024-01-04")}

        @asset(partitions=SPACE, timeout_seconds=None)
        def jobs(site, day):
            return f"{site} on {day}"

        @asset(partitions=SPACE, inputs={"job": jobs}, timeout_seconds=None)
        def report(site, day, job):
            return [site, day, job]

        @asset(partitions={"site": partitions(["x", "y"])}, inputs={"jobs": jobs},
               timeout_seconds=None)
        def by_site(site, jobs):
            return sorted(jobs.values())
        """
    )
    assert home.exa(module, "report").ok
    assert len(runs(home)) == 1
    assert set(events_of(home, "report")) == {
        f"2024-01-0{d}|{s}" for d in (1, 2, 3) for s in ("x", "y")
    }
    report = home.exa(module, "report", force=True, partition="site=y,day=2024-01-02")
    assert names_of(report.rebuilt) == ["report[2024-01-02|y]"]
    report = home.exa(module, "report", force=True, partition="day=2024-01-01...2024-01-02")
    assert len(report.rebuilt) == 4
    assert home.exa(module, "by_site").ok
    project = home.project(module)
    value, _ = project.value(Node("by_site", "y"))
    assert json.loads(value.payload) == [f"y on 2024-01-0{d}" for d in (1, 2, 3)]


def test_keys_at_opposite_corners_are_built_and_no_others(home):
    """Dagster reads a range of two dimensions in each of them."""
    module = home.module(
        """\
        from examlops_dagster import asset, partitions

        SPACE = {"a": partitions("123"), "b": partitions("xyz")}

        @asset(partitions=SPACE, timeout_seconds=None)
        def cells(a, b):
            return a + b
        """
    )
    for key in ("1|y", "3|x"):
        home.report("cells", "outside", partition=key)
    home.wipe("cells")
    for key in ("1|x", "1|z", "2|x", "2|y", "2|z", "3|y", "3|z"):
        home.report("cells", "outside", partition=key)
    kept = Automation(home, module, "sensor")
    [request] = kept.requests()
    assert request.tags[ASSET_PARTITION_RANGE_START_TAG] == "1|x"
    assert request.tags[ASSET_PARTITION_RANGE_END_TAG] == "3|y"
    kept.queue(request)
    states = home.states(module)
    assert {name for name, state in states.items() if state == "running"} == {
        "cells[1|y]",
        "cells[3|x]",
    }
    kept.execute(request)
    assert {b.node.partition for b in home.builds("cells") if b.orchestrator == "local"} == {
        "1|y",
        "3|x",
    }
    assert kept.requested() == []


# Time windows and dynamic keys


def test_dynamic_keys_are_built_when_they_are_added(home):
    module = home.module(
        """\
        from examlops_dagster import asset, dynamic

        @asset(partitions={"site": dynamic("sites")}, timeout_seconds=None)
        def jobs(site):
            return site

        @asset(partitions={"site": dynamic("sites")}, inputs={"job": jobs}, timeout_seconds=None)
        def report(site, job):
            return [job]

        @asset(inputs={"reports": report}, timeout_seconds=None)
        def total(reports):
            return sorted(reports)
        """
    )
    home.instance.add_dynamic_partitions("sites", ["bologna", "jülich"])
    assert home.exa(module, "total").ok
    assert set(events_of(home, "report")) == {"bologna", "jülich"}
    assert set(home.states(module).values()) == {"fresh"}
    home.instance.add_dynamic_partitions("sites", ["kajaani"])
    kept = Automation(home, module, "sensor")
    assert kept.requested() == [["jobs", "report"]]
    kept.tick()
    kept.tick()
    assert kept.requested() == []
    assert set(home.states(module).values()) == {"fresh"}
    assert json.loads(home.project(module).value(Node("total"))[0].payload) == [
        "bologna",
        "jülich",
        "kajaani",
    ]


def test_a_window_of_days_reads_the_hours_in_it(home):
    module = home.module(
        """\
        from examlops_dagster import asset, daily, hourly

        @asset(partitions={"hour": hourly("2024-01-01", "2024-01-03")}, timeout_seconds=None)
        def ticks(hour):
            return hour

        @asset(partitions={"day": daily("2024-01-01", "2024-01-03")}, inputs={"ticks": ticks},
               timeout_seconds=None)
        def days(day, ticks):
            return len(ticks)
        """
    )
    assert home.exa(module, "days", partition="2024-01-02").ok
    assert len(runs(home)) == 2
    assert len(events_of(home, "ticks")) == 24
    assert home.project(module).value(Node("days", "2024-01-02"))[0].payload == b"24"


def test_ds_is_the_date_of_the_partition_in_a_run(home):
    module = home.module(
        """\
        from examlops_dagster import asset, daily

        @asset(partitions={"day": daily("2024-01-01", "2024-01-03")}, timeout_seconds=None)
        def days(day, ds):
            return [day, ds]
        """
    )
    home.exa(module, "days")
    assert home.project(module).value(Node("days", "2024-01-02"))[0].payload == (
        b'["2024-01-02","2024-01-02"]'
    )


def test_ds_is_the_date_of_the_tick_of_a_scheduled_node(home, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_TIMEZONE", "UTC")
    module = home.module(
        """\
        from examlops_dagster import Schedule, asset

        @asset(freshness=Schedule("0 0 1 1 *"), timeout_seconds=None)
        def yearly(ds):
            return ds
        """
    )
    kept = Automation(home, module, "sensor")
    kept.requests()
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 370")
    kept.tick()
    value = json.loads(home.project(module).value(Node("yearly"))[0].payload)
    assert value.endswith("-01-01")
