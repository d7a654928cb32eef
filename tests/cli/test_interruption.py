"""Ctrl-C, and processes that are killed in the middle of a build."""

import signal
import time

from waiting import is_alive, slowness, wait_until

PIPELINE = """\
import os
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"])
def features(**upstream):
    return 1


@asset(deps=[features])
def model(**upstream):
    if not (HERE / "quick").exists():
        (HERE / "building").write_text(str(os.getpid()))
        time.sleep(600)
    return 2


@asset(deps=[model])
def report(**upstream):
    return 3
"""

RUNS = """\
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    print(*(run.status.value for run in instance.get_runs()))
"""


def prepared(exa):
    exa.write("pipeline.py", PIPELINE)
    exa.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')
    exa("assets", "declare", "PM100")
    return exa


def test_ctrl_c_ends_the_build_and_leaves_what_was_built_before(exa):
    prepared(exa)
    command = exa.start("assets", "materialize", "report")
    worker = int(command.until_file("building"))
    interrupted = time.monotonic()
    command.send(signal.SIGINT)
    done = command.finish(code=130)
    assert time.monotonic() - interrupted < 15 * slowness()
    wait_until(lambda: not is_alive(worker))
    assert done.out == ""
    assert done.is_quiet
    assert "Interrupted; what was built stays recorded." in done.err
    rows = {row["name"]: row for row in exa("assets", "status", "--json").json}
    assert rows["features"]["state"] == "fresh"
    assert rows["model"]["state"] == "failed"
    assert rows["model"]["version"] == 0
    shown = exa("assets", "status", "model").out.splitlines()[1]
    assert shown.split(maxsplit=3)[:3] == ["model", "—", "cancelled"]
    assert rows["report"]["version"] == 0
    [build] = exa("assets", "history", "model", "--json").json
    assert build["state"] == "cancelled"
    assert exa.python(RUNS).out == "CANCELED\n"


def test_a_command_that_is_killed_leaves_a_slice_that_can_be_built_again(exa):
    prepared(exa)
    command = exa.start("assets", "materialize", "report")
    worker = int(command.until_file("building"))
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    wait_until(lambda: not is_alive(worker))
    assert exa.states()["model"] == "runnable_stale"  # neither running nor held
    exa.write("quick", "yes")
    again = exa("assets", "materialize", "report")
    assert "is being built by" not in again.err  # nobody waits for the dead
    assert again.out == (
        "Materialized report: rebuilt model, report\n  skipped (fresh): PM100, features\n"
    )
    builds = exa("assets", "history", "model", "--json").json
    assert [(b["state"], b["version"]) for b in builds] == [("succeeded", 1), ("died", None)]
    numbers = [b["version"] for b in builds if b["version"]]
    assert len(numbers) == len(set(numbers))
    assert exa.states() == dict.fromkeys(("PM100", "features", "model", "report"), "fresh")
    assert "dagster" not in exa.trace("assets", "status")  # the dead run is not looked at again
