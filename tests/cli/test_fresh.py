"""exa run, get, retry, and sink: each time as a person types them."""

import json

import pytest

PIPELINE = """\
from pathlib import Path

from examlops_dagster import AssetOutput, Manual, Schedule, asset, partitions, sensor, sink, task

HERE = Path(__file__).parent


def called(name):
    with (HERE / "calls").open("a") as file:
        print(name, file=file)


@sensor(freshness=Schedule("0 0 29 2 *"), timeout_seconds=None)
def inbox():
    called("inbox")
    return True, ["a.csv"]


@asset(inputs={"inbox": inbox}, timeout_seconds=None)
def ingest(inbox):
    called("ingest")
    return inbox[1]


@asset(deps=["PM100"], timeout_seconds=None)
def features(**upstream):
    called("features")
    return {"read": upstream["PM100"]}


@asset(deps=["PM100"], freshness=Manual, timeout_seconds=None)
def pinned(**upstream):
    called("pinned")
    return 1


@asset(deps=[pinned], timeout_seconds=None)
def below(**upstream):
    called("below")
    return 1


@asset(deps=["PM100"], freshness=Schedule("0 0 29 2 *"), timeout_seconds=None)
def yearly(**upstream):
    called("yearly")
    return 1


@task(freshness=Schedule("0 0 29 2 *"), deps=[features, pinned], timeout_seconds=None)
def mail(**upstream):
    called("mail")


@task(deps=[features], timeout_seconds=None)
def store(**upstream):
    called("store")
"""

BROKEN = """\
from pathlib import Path

from examlops_dagster import asset, partitions, sink

HERE = Path(__file__).parent


@asset(timeout_seconds=None, retries=1)
def broken():
    with (HERE / "calls").open("a") as file:
        print("broken", file=file)
    if (HERE / "bad").exists():
        raise ValueError("no luck")
    return 1


@asset(deps=[broken], timeout_seconds=None)
def after(**upstream):
    return 2


@asset(partitions={"k": partitions(["a", "b", "c", "d"])}, timeout_seconds=None)
def parts(k):
    if k == "b" and (HERE / "bad").exists():
        raise ValueError("b is bad")
    return k


@asset(timeout_seconds=None)
@sink("out/report.json")
def report():
    return {"rows": 42}


@asset(timeout_seconds=None)
def pickled():
    return (1, 2)


@asset(timeout_seconds=None)
def nothing():
    return None
"""


@pytest.fixture(scope="module")
def ran(shared):
    """Give a home in which everything that is due was run once."""
    shared.write("pipeline.py", PIPELINE)
    shared("assets", "declare", "PM100")
    shared.first = shared("-m", "pipeline", "run")
    return shared


def calls(exa):
    found = exa.lines("calls")
    (exa.folder / "calls").unlink(missing_ok=True)
    return found


# exa run


def test_run_builds_what_is_due_and_leaves_the_rest(ran):
    assert sorted(ran.lines("calls")) == ["features", "store"]
    assert ran.first.out == "Built what was due: PM100, features, store\n"
    states = ran.states("-m", "pipeline")
    assert states == {
        "PM100": "fresh",
        "features": "fresh",
        "store": "fresh",
        "inbox": "stale_waiting_for_schedule",
        "ingest": "stale_waiting_for_upstream",
        "pinned": "stale_waiting_for_request",
        "below": "stale_waiting_for_upstream",
        "yearly": "stale_waiting_for_schedule",
        "mail": "stale_waiting_for_schedule",
    }


def let_a_tick_pass(exa):
    """Move what is remembered of the sensor nine years back: a minute could pass by itself."""
    exa.python(
        """\
        import sqlite3
        back = 9 * 366 * 86_400
        with sqlite3.connect("platform.db") as database:
            for column in ("first_seen SET seen_at = seen_at", "heads SET built_at = built_at"):
                database.execute(f"UPDATE {column} - {back} WHERE asset = 'inbox'")
        """
    )


def test_run_builds_what_a_sensor_made_stale_and_says_so(ran):
    calls(ran)
    let_a_tick_pass(ran)
    done = ran("-m", "pipeline", "run", "--json")
    assert calls(ran) == ["inbox", "ingest"]
    assert done.json["rebuilt"] == ["inbox", "ingest"]
    assert done.json["failed"] == []


def test_run_of_a_name_builds_it_only_if_it_is_due(ran):
    calls(ran)
    assert ran("-m", "pipeline", "run", "yearly").out == "Nothing is due.\n"
    assert ran("-m", "pipeline", "run", "features").out == "Nothing is due.\n"
    assert calls(ran) == []


def test_run_of_a_task_or_sensor_runs_it_in_any_case_with_what_is_stale_above_it(ran):
    calls(ran)
    ran("assets", "source-changed", "PM100")
    ran("-m", "pipeline", "run", "mail", "inbox")
    assert sorted(calls(ran)) == ["features", "inbox", "mail", "pinned"]
    ran("-m", "pipeline", "run", "mail")
    assert calls(ran) == ["mail"]


def test_run_of_an_unknown_name_is_wrong_usage(ran):
    done = ran("-m", "pipeline", "run", "featurs", code=2)
    assert "features" in done.err


# A failure


@pytest.fixture(scope="module")
def failed(shared, tmp_path_factory, cache):
    exa = type(shared)(tmp_path_factory.mktemp("failed"), cache)
    exa.write("pipeline.py", BROKEN)
    exa.write("bad", "")
    exa.first = exa("-m", "pipeline", "run", code=1)
    return exa


def test_run_builds_what_does_not_depend_on_what_failed(failed):
    assert failed.lines("calls")[:2] == ["broken"] * 2
    assert "Failed broken: ValueError: no luck" in failed.first.err
    assert "Failed parts[b]: ValueError: b is bad" in failed.first.err
    rows = failed("-m", "pipeline", "assets", "status", "--json").json
    states = {(row["name"], row["partition"]): row["state"] for row in rows}
    assert states["report", None] == states["pickled", None] == "fresh"
    assert states["after", None] == "stale_waiting_for_upstream"
    assert states["parts", "b"] == "failed"
    assert states["parts", "d"] == "fresh"


def test_run_does_not_try_again_what_is_held(failed):
    before = failed.lines("calls")
    assert failed("-m", "pipeline", "run").out == "Nothing is due.\n"
    assert failed.lines("calls") == before


def test_retry_lifts_the_hold_and_builds(exa):
    exa.write("pipeline.py", BROKEN)
    exa.write("bad", "")
    exa("-m", "pipeline", "run", "broken", code=1)
    assert len(exa.lines("calls")) == 2
    exa("-m", "pipeline", "assets", "retry", "broken", code=1)
    assert len(exa.lines("calls")) == 4
    (exa.folder / "bad").unlink()
    done = exa("-m", "pipeline", "assets", "retry", "broken")
    assert done.out == "Materialized broken: rebuilt broken\n"
    assert "broken" not in exa("-m", "pipeline", "run").out


def test_retry_of_one_partition(exa):
    exa.write("pipeline.py", BROKEN)
    exa.write("bad", "")
    exa("-m", "pipeline", "assets", "materialize", "parts", code=1)
    (exa.folder / "bad").unlink()
    done = exa("-m", "pipeline", "assets", "retry", "parts", "--partition", "b", "--json")
    assert done.json["rebuilt"] == ["parts[b]"]
    assert exa("-m", "pipeline", "assets", "status", "--check", "parts").out


# exa get


def test_get_builds_what_is_stale_and_prints_the_value(ran):
    before = json.loads(ran("-m", "pipeline", "get", "features").out)
    ran("assets", "source-changed", "PM100")
    calls(ran)
    for _ in range(2):
        found = json.loads(ran("-m", "pipeline", "get", "features").out)
        assert found == {"read": ran.versions("-m", "pipeline")["PM100"]} != before
    assert calls(ran) == ["features"]


def test_get_of_a_scheduled_or_manual_asset_asks_for_it(ran):
    ran("assets", "source-changed", "PM100")
    calls(ran)
    ran("-m", "pipeline", "get", "below")
    ran("-m", "pipeline", "get", "yearly")
    assert calls(ran) == ["pinned", "below", "yearly"]


def test_get_gives_the_path_where_it_is_asked_for_or_the_value_is_no_text(failed):
    path = failed("-m", "pipeline", "get", "pickled").out.strip()
    assert path.endswith(".pkl")
    assert failed("-m", "pipeline", "get", "report", "--path").out.strip().endswith(".json")
    found = failed("-m", "pipeline", "get", "report", "--json").json
    assert found["value"] == {"rows": 42}
    assert (found["name"], found["version"], found["partition"]) == ("report", 1, None)


def test_get_of_a_partition(failed):
    assert failed("-m", "pipeline", "get", "parts", "--partition", "a").out == '"a"\n'


def test_the_history_of_a_range_and_of_a_partition_that_is_not_there(failed):
    shown = failed("-m", "pipeline", "assets", "history", "parts", "--partition", "a...b").out
    assert "(a)" in shown
    assert "(b)" in shown
    assert "(c)" not in shown
    done = failed("-m", "pipeline", "assets", "history", "parts", "--partition", "x", code=2)
    assert "there is no partition 'x' → they go from a to d" in done.err


def test_get_of_a_task_runs_nothing(ran):
    calls(ran)
    refused = ran("-m", "pipeline", "get", "mail", code=2)
    assert "mail is a task, which has no value → exa run mail" in refused.err
    assert calls(ran) == []


def test_get_of_all_partitions_builds_nothing(failed):
    refused = failed("-m", "pipeline", "get", "parts", code=2)
    assert "parts has partitions → name one: --partition KEY" in refused.err
    assert "building" not in refused.err


def test_get_of_an_asset_that_keeps_nothing_says_what_to_do(failed):
    done = failed("-m", "pipeline", "get", "nothing", code=2)
    assert "let it return the value" in done.err
    assert done.is_quiet


def test_partitions_of_an_unpartitioned_asset_are_refused_with_a_hint(failed):
    words = ["assets", "materialize", "broken", "--partition", "gpu"]
    assert "--resources partition=" in failed("-m", "pipeline", *words, code=2).err


def test_get_of_a_failed_build_fails(failed):
    done = failed("-m", "pipeline", "get", "after", code=1)
    assert "Failed broken" in done.err
    assert done.out == ""


# exa assets sink


def test_sink_writes_the_kept_value_again(failed):
    out = failed.folder / "out"
    assert json.loads((out / "report.json").read_text()) == {"rows": 42}
    (out / "report.json").unlink()
    out.rmdir()
    out.write_text("in the way")
    done = failed("-m", "pipeline", "assets", "sink", "report", code=1)
    assert "Failed sink out/report.json of report" in done.err
    states = failed("-m", "pipeline", "assets", "status", "report", "--json").json
    assert states[0]["state"] == "fresh"
    assert "sink out/report.json failed" in states[0]["reasons"][0]
    assert "failed: out/report.json" in failed("-m", "pipeline", "assets", "list").out
    out.unlink()
    done = failed("-m", "pipeline", "assets", "sink", "report")
    assert done.out == f"Wrote report to {out / 'report.json'}\n"
    assert "failed" not in failed("-m", "pipeline", "assets", "status", "report").out


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(["nothing"], "stack @sink"), (["nosuch"], "nosuch"), (["report", "--partition", "a"], "")],
)
def test_sink_of_what_has_none_is_wrong_usage(failed, words, remedy):
    done = failed("-m", "pipeline", "assets", "sink", *words, code=2)
    assert remedy in done.err
    assert done.is_quiet


# A rebuild that was forced


def test_a_forced_rebuild_that_fails_leaves_the_version_and_is_told(exa):
    exa.write("pipeline.py", BROKEN)
    exa("-m", "pipeline", "assets", "materialize", "broken")
    exa.write("bad", "yes")
    exa("-m", "pipeline", "assets", "materialize", "broken", "--force", code=1)
    [row] = exa("-m", "pipeline", "assets", "status", "broken", "--json").json
    assert (row["state"], row["fresh"], row["version"]) == ("fresh", True, 1)
    assert row["reasons"] == ["last attempt failed: ValueError: no luck"]
    line = exa("-m", "pipeline", "assets", "status").out.splitlines()[1]
    assert line.split(maxsplit=3)[2:] == ["fresh", "last attempt failed: ValueError: no luck"]
    newest = exa("-m", "pipeline", "assets", "history", "broken", "--json").json[0]
    assert (newest["state"], newest["error"]) == ("failed", "ValueError: no luck")
    assert "broken" not in str(exa("-m", "pipeline", "assets", "plan", "--json").json["steps"])
    (exa.folder / "bad").unlink()
    exa("-m", "pipeline", "assets", "materialize", "broken", "--force")
    assert exa("-m", "pipeline", "assets", "status", "broken", "--json").json[0]["reasons"] == []


# A sink beside a build


SLOW = """\
import time
from pathlib import Path

from examlops_dagster import asset, sink

HERE = Path(__file__).parent


@asset(timeout_seconds=None)
@sink("slow.json")
def slow():
    (HERE / "began").write_text("yes")
    while (HERE / "wait").exists():
        time.sleep(0.02)
    return {"rows": 42}
"""


def test_sink_leaves_an_asset_that_is_being_built_to_its_build(exa):
    exa.write("pipeline.py", SLOW)
    exa("-m", "pipeline", "assets", "materialize", "slow")
    (exa.folder / "slow.json").unlink()
    (exa.folder / "began").unlink()
    exa.write("wait", "yes")
    build = exa.start("-m", "pipeline", "assets", "materialize", "slow", "--force")
    build.until_file("began")
    done = exa("-m", "pipeline", "assets", "sink", "slow", code=1)
    assert "slow is being built or written by process" in done.err
    assert "ask again" in done.err
    assert not (exa.folder / "slow.json").exists()
    (exa.folder / "wait").unlink()
    build.finish()
    assert json.loads((exa.folder / "slow.json").read_text()) == {"rows": 42}
    assert exa("-m", "pipeline", "assets", "sink", "slow").out.startswith("Wrote slow to")


def test_who_waits_for_the_build_of_another_process_is_told_of_it(exa):
    exa.write("pipeline.py", SLOW)
    exa.write("wait", "yes")
    first = exa.start("-m", "pipeline", "assets", "materialize", "slow")
    first.until_file("began")
    second = exa.start("-m", "pipeline", "assets", "materialize", "slow")
    second.until("slow is being built by run")
    (exa.folder / "wait").unlink()
    first.finish()
    assert "waiting for it" in second.finish().err
