"""A build that fails: what is recorded, what is told, and how it is tried again."""

import re
from pathlib import Path

import pytest

PIPELINE = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"])
def features(**upstream):
    return 1


def explode():
    try:
        raise OSError("no space left")
    except OSError as error:
        raise ValueError("the disk is full") from error


@asset(deps=[features])
def model(**upstream):
    with (HERE / "tries").open("a") as file:
        file.write("tried\\n")
    if not (HERE / "repaired").exists():
        explode()
    return 2


@asset(deps=[model])
def report(**upstream):
    return 3


@asset(timeout_seconds=0.3)
def endless():
    time.sleep(60)


@asset
def leaves():
    raise SystemExit("no licence")
"""


@pytest.fixture(scope="module")
def failing(shared):
    shared.write("pipeline.py", PIPELINE)
    shared.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')
    shared("assets", "declare", "PM100")
    return shared


@pytest.fixture(scope="module")
def failed(failing):
    """Give what the first request said; all that follows looks at what it left."""
    return failing("assets", "materialize", "report", code=1)


def test_a_failure_is_told_in_its_last_line_with_the_place_of_the_whole(failing, failed):
    assert failed.out == ""
    assert "\nFailed model: ValueError: the disk is full\n" in f"\n{failed.err}"
    assert "rebuilt before: PM100, features" in failed.err
    assert failed.is_quiet
    assert "explode" not in failed.err
    [log] = re.findall(r"^  log: (.+)$", failed.err, re.MULTILINE)
    whole = Path(log).read_text()
    assert "Traceback (most recent call last)" in whole
    assert 'pipeline.py", line ' in whole
    assert "in explode" in whole
    assert "OSError: no space left" in whole
    assert whole.splitlines()[-1] == "ValueError: the disk is full"


def test_a_failure_records_no_version_and_leaves_what_was_built_before(failing, failed):
    rows = {row["name"]: row for row in failing("assets", "status", "--json").json}
    assert rows["model"]["state"] == "failed"
    assert rows["model"]["version"] == 0
    assert "ValueError: the disk is full" in rows["model"]["reasons"]
    assert (rows["PM100"]["state"], rows["PM100"]["version"]) == ("fresh", 1)
    assert (rows["features"]["state"], rows["features"]["version"]) == ("fresh", 1)
    assert rows["report"]["state"] == "stale_waiting_for_upstream"
    assert "upstream model is failed: exa assets retry model" in rows["report"]["reasons"]
    shown = failing("assets", "status", "model", "--check", code=3).out
    assert shown.splitlines()[1].split(maxsplit=3)[:3] == ["model", "—", "failed"]
    [build] = failing("assets", "history", "model", "--json").json
    assert (build["state"], build["version"]) == ("failed", None)
    assert build["error"] == "ValueError: the disk is full"
    assert "the disk is full" in failing("assets", "history", "model").out


def test_a_failed_build_is_not_tried_by_itself_and_is_tried_when_somebody_asks(failing, failed):
    blocked = {b["name"]: b["reason"] for b in failing("assets", "plan", "--json").json["blocked"]}
    assert "failed" in blocked["model"]
    assert failing.lines("tries") == ["tried"]
    failing.write("repaired", "yes")
    again = failing("assets", "materialize", "report")
    assert again.out == (
        "Materialized report: rebuilt model, report\n  skipped (fresh): PM100, features\n"
    )
    assert failing.lines("tries") == ["tried", "tried"]
    [last, first] = failing("assets", "history", "model", "--json").json
    assert (last["state"], last["version"], first["state"]) == ("succeeded", 1, "failed")


def test_a_build_that_takes_too_long_and_one_that_exits_are_failures_too(failing):
    done = failing("assets", "materialize", "endless", "leaves", "--json", code=1)
    told = {failure["name"]: failure["error"] for failure in done.json["failed"]}
    assert "Failed endless: timed out after 0.3 s" in done.err
    assert "Failed leaves: SystemExit: no licence" in done.err
    assert told == {"endless": "timed out after 0.3 s", "leaves": "SystemExit: no licence"}
    assert done.is_quiet
    shown = failing("assets", "status", "endless").out.splitlines()[1]
    assert shown.startswith("endless  —        timed out  never materialized; timed out after")
    assert failing.states()["endless"] == "failed"


def test_history_survives_what_declared_it(failing, failed):
    failing.write("nothing.py", "")
    nothing = {"EXAMLOPS_MODULES": "nothing"}
    refused = failing("assets", "undeclare", "model", code=2)
    assert "model was not declared from the command line" in refused.err
    assert failing("assets", "undeclare", "PM100").out == "Undeclared PM100\n"
    assert failing("assets", "status", **nothing).out.startswith("No assets declared.")
    assert failing("assets", "list", **nothing).out.startswith("No assets declared.")
    rows = failing("assets", "list", "--all", "--json", **nothing).json
    historical = {row["name"]: (row["state"], row["version"]) for row in rows}
    assert historical["PM100"] == historical["features"] == ("historical", 1)
    assert "endless" not in historical
    assert "failed" in failing("assets", "history", "model", **nothing).out
    assert "timed out" in failing("assets", "history", "endless", **nothing).out
    assert "succeeded" in failing("assets", "history", "PM100", **nothing).out
    assert "No asset named 'x'" in failing("assets", "history", "x", code=2, **nothing).err
