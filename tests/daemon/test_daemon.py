"""Kept fresh by Dagster's own daemon, in processes of its own; each scenario shares one."""

import time
from datetime import datetime, timedelta, timezone

import pytest
from dagster import AssetKey
from dagster._core.scheduler.instigation import (
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
    TickStatus,
)
from homes import Homestead, run_program
from processes import Site

pytestmark = pytest.mark.slow

DEFS = """\
import os
import sys
import time
from pathlib import Path

from dagster import in_process_executor

from examlops_dagster import (
    Dataset, DatasetAlias, Manual, Schedule, asset, build_definitions, partitions, sensor, task
)

HERE = Path(__file__).parent


def called(name):
    with (HERE / "calls").open("a") as file:
        print(name, file=file)


@asset(deps=["PM100"], timeout_seconds=None)
def features(**upstream):
    called("features")
    return upstream["PM100"]


@asset(inputs={"features": features}, timeout_seconds=None)
def model(features):
    called("model")
    return features


@asset(deps=["other"], timeout_seconds=None)
def beside(**upstream):
    called("beside")
    return upstream["other"]


@asset(deps=["PM100"], freshness=Manual, timeout_seconds=None)
def pinned(**upstream):
    called("pinned")


@asset(retries=1, timeout_seconds=None)
def broken():
    called("broken")
    raise ValueError("no luck")


@asset(partitions={"k": partitions("abc")}, timeout_seconds=None)
def cells(k):
    called(f"cells[{k}]")
    return k


@asset(partitions={"k": partitions(["a", "b", "bad"])}, freshness=Manual, timeout_seconds=None)
def parts(k):
    called(f"parts[{k}]")
    if k == "bad":
        raise ValueError("a bad key")
    return k


@asset(
    partitions={"k": partitions(["a", "b", "bad"])},
    inputs={"part": parts},
    freshness=Manual,
    timeout_seconds=None,
)
def sums(k, part):
    called(f"sums[{k}]")
    return part


@task(freshness=Manual, outlets=[DatasetAlias("out")], timeout_seconds=None)
def writer(outlet_events):
    for uri in (HERE / "emit").read_text().split():
        outlet_events["out"].add(uri)


@asset(deps=[DatasetAlias("out")], timeout_seconds=None)
def of_alias(inlet_events):
    called("of_alias=" + ",".join(sorted(event.uri for event in inlet_events["out"])))


@asset(deps=[Dataset("s3://two")], timeout_seconds=None)
def of_two():
    called("of_two")


MORE

defs = build_definitions(sys.modules[__name__], executor=in_process_executor, OPTIONS)
"""

SCHEDULES = """\
@sensor(freshness=Schedule("* * * * *"), timeout_seconds=None)
def inbox():
    called("inbox")
    return True, ["a.csv"]


@asset(inputs={"inbox": inbox}, timeout_seconds=None)
def ingest(inbox):
    called("ingest")
    return inbox[1]


@task(freshness=Schedule("* * * * *"), timeout_seconds=None)
def slow():
    called("slow")
    while not (HERE / "release").exists():
        time.sleep(0.1)


@task(freshness=Schedule("* * * * *"), timeout_seconds=None)
def quick():
    called("quick")


@task(freshness=Schedule("MINUTE * * * *"), timeout_seconds=None)
def late():
    called("late")
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "home"
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder, monkeypatch)
        home.declare("PM100")
        home.declare("other")
        assert home.instance
        home.close()
    return folder


@pytest.fixture
def site_of(tmp_path, monkeypatch, template):
    sites = []

    def make(more="", **options):
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        defs = DEFS.replace("MORE", more).replace("OPTIONS", written)
        sites.append(Site(tmp_path / "home", monkeypatch, defs, template))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def settled(site):
    """Tell whether no run is open but those of what every minute brings."""
    minutely = {AssetKey("slow"), AssetKey("quick"), AssetKey("ingest")}
    return all(
        run.status.value in ("SUCCESS", "FAILURE") or minutely & set(run.asset_selection or ())
        for run in site.home.instance.get_runs()
    )


def until_it_looked(site, times=2):
    """Wait for whole ticks of the automation from here on, and for the runs that they request."""
    now = time.time()

    def looked():
        states = site.home.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
        ticks = [
            tick
            for state in states
            if state.instigator_name == "keep_fresh"
            for tick in site.home.instance.get_ticks(
                state.instigator_origin_id, state.selector_id, after=now
            )
        ]
        return sum(tick.status is not TickStatus.STARTED for tick in ticks) >= times

    site.until(looked, "the ticks of the automation")
    site.until(lambda: settled(site), "the runs that it asked for")


def check_that_exactly_the_stale_slice_is_rebuilt_once(site):
    expected = sorted(["features", "model", "beside", "cells[a]", "cells[b]", "cells[c]"])
    kept = [*expected, "broken", "broken"]

    def built():
        return [name for name in site.calls() if name in set(kept)]

    site.until(lambda: sorted(built()) == sorted(kept) and settled(site), "the first builds")
    before = len(site.calls())
    site.home.advance("PM100")
    site.until(lambda: site.calls().count("model") == 2 and settled(site), "the stale slice")
    until_it_looked(site)
    after = [name for name in site.calls()[before:] if name in set(kept)]
    assert after == ["features", "model"]
    assert site.calls().count("broken") == 2  # one attempt and one retry, however many ticks
    assert "pinned" not in site.calls()


def followers(site):
    return [name for name in site.calls() if name.startswith("of_")]


def check_that_who_follows_an_alias_or_a_dataset_runs_once_for_each_batch(site):
    for uris, expected in (
        ("", []),  # nothing added, nothing triggered
        ("s3://one s3://two", ["of_alias=s3://one,s3://two", "of_two"]),
        ("s3://three", ["of_alias=s3://three"]),
    ):
        site.home.write("emit", uris)
        before = len(followers(site))
        done = run_program(
            site.folder,
            *("exa", "-f", "defs.py", "assets", "materialize", "writer"),
            DAGSTER_HOME=str(site.folder),
        )
        assert "rebuilt writer" in done.stdout
        site.until(
            lambda before=before, expected=expected: (
                len(followers(site)) >= before + len(expected) and settled(site)
            ),
            f"what follows {uris}",
        )
        until_it_looked(site)
        assert sorted(followers(site)[before:]) == expected


def backfilled(site):
    """Give the status of the backfill that was started in the UI, once it has ended."""
    [backfill] = [
        b for b in site.home.instance.get_backfills() if "parts" in str(b.asset_selection)
    ]
    return backfill.status.value if backfill.status.value.startswith("COMPLETED") else None


def start_backfill(site):
    data = site.graphql(
        """
        mutation ($params: LaunchBackfillParams!) {
          launchPartitionBackfill(backfillParams: $params) {
            __typename
            ... on LaunchBackfillSuccess { backfillId }
            ... on PythonError { message }
          }
        }
        """,
        params={
            "assetSelection": [{"path": ["parts"]}, {"path": ["sums"]}],
            "partitionNames": ["a", "b", "bad"],
            "fromFailure": False,
        },
    )
    assert data["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess", data


def check_the_backfill(site):
    site.until(lambda: backfilled(site), "the end of the backfill")
    assert backfilled(site) == "COMPLETED_FAILED"
    events = {event.partition: event for event in site.home.events("parts")}
    assert set(events) == {"a", "b"}
    versions = {event.tags["dagster/data_version"] for event in events.values()}
    assert len(versions) == 2
    ended = {b.node.partition: b.state.value for b in site.home.builds("parts")}
    assert ended == {"a": "succeeded", "b": "succeeded", "bad": "failed"}


def test_conditions_keep_assets_fresh_and_a_backfill_from_the_ui_completes(site_of):
    site = site_of(automation="conditions")
    site.start_code_server()
    site.start_daemon()
    site.start_web_server()
    start_backfill(site)
    check_that_exactly_the_stale_slice_is_rebuilt_once(site)
    check_that_who_follows_an_alias_or_a_dataset_runs_once_for_each_batch(site)
    check_the_backfill(site)


def test_the_plain_sensor_keeps_assets_fresh_and_schedules_survive(site_of):
    minute = (datetime.now(timezone.utc) - timedelta(minutes=3)).minute
    more = SCHEDULES.replace("MINUTE", str(minute))
    site = site_of(more, automation="sensor", probe_sensors=True)
    site.start_code_server()
    site.start("exa", "exa", "-f", "defs.py", "run", "slow")  # a run that outlasts the next tick
    site.until(lambda: "slow" in site.calls(), "the long run")
    site.start_daemon()
    check_that_exactly_the_stale_slice_is_rebuilt_once(site)
    check_that_who_follows_an_alias_or_a_dataset_runs_once_for_each_batch(site)
    check_one_catch_up_after_a_killed_daemon(site)
    check_that_a_tick_is_skipped_for_what_is_in_flight_alone(site)
    check_that_the_sensor_was_probed_without_a_run(site)


def instigator(site, name):
    states = site.home.instance.all_instigator_state(instigator_type=InstigatorType.SCHEDULE)
    return next((state for state in states if state.instigator_name == name), None)


def check_one_catch_up_after_a_killed_daemon(site):
    """The clock cannot be moved, so all that is remembered is moved three hours back."""
    instance = site.home.instance
    site.until(lambda: instigator(site, "late_schedule"), "the schedule")
    assert site.calls().count("late") == 0
    site.kill("daemon")
    state = instigator(site, "late_schedule")
    assert state.status in (InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE)
    data = state.instigator_data
    back = data.start_timestamp - 3 * 3600
    instance.update_instigator_state(
        state.with_data(ScheduleInstigatorData(data.cron_schedule, back))
    )
    site.home.sql("UPDATE first_seen SET seen_at = seen_at - 3 * 3600 WHERE asset = 'late'")
    site.start_daemon()
    site.until(lambda: "late" in site.calls() and settled(site), "the catch-up")
    site.kill("daemon")
    site.start_daemon()
    until_it_looked(site, 3)
    assert site.calls().count("late") == 1


def ticks(site, name):
    """Give the ticks of a schedule that have been evaluated."""
    state = instigator(site, f"{name}_schedule")
    found = site.home.instance.get_ticks(state.instigator_origin_id, state.selector_id)
    return [tick for tick in found if tick.status is not TickStatus.STARTED]


def check_that_a_tick_is_skipped_for_what_is_in_flight_alone(site):
    site.until(lambda: "quick" in site.calls(), "the next minute")
    site.until(lambda: ticks(site, "slow"), "the tick of the long job")
    assert site.calls().count("slow") == 1
    assert {tick.status for tick in ticks(site, "slow")} == {TickStatus.SKIPPED}
    assert "slow is running" in ticks(site, "slow")[0].skip_reason
    site.home.write("release", "")
    site.until(lambda: site.home.endings("slow") == ["succeeded"], "the end of the long run")


def check_that_the_sensor_was_probed_without_a_run(site):
    site.until(lambda: "ingest" in site.calls(), "what is below the probed sensor")
    assert site.home.events("inbox")
    assert all(
        AssetKey("inbox") not in (run.asset_selection or ())
        for run in site.home.instance.get_runs()
    )
