"""``--detach``: the request goes on in a session of its own, and the command returns."""

import os
from pathlib import Path

import pytest
from waiting import is_alive, wait_until

MOCK = {"EXAMLOPS_HPC_SCHEDULER": "mock", "EXAMLOPS_ASSET_ORCHESTRATOR": "scheduler"}
PIPELINE = """\
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(command=["/bin/sh", "-c", f"while ! test -e '{HERE}/quick'; do sleep 0.2; done"])
def model(): ...


@asset(orchestrator="local", timeout_seconds=None)
def local():
    if (HERE / "bad").exists():
        raise ValueError("no good")
    return 1
"""


@pytest.fixture
def mock(exa, tmp_path):
    """A project with a mock cluster of its own."""
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    yield exa
    exa.write("quick", "")  # no job outlives its test


def test_it_returns_with_the_first_job_and_the_request_goes_on(mock):
    told = mock("assets", "materialize", "model", "--detach", "--json", **MOCK).json
    assert told["detached"] is True
    assert told["job"] == {"name": "model", "job_id": "1", "scheduler": "mock"}
    assert os.getsid(told["pid"]) == told["pid"]
    assert mock.states()["model"] == "running"
    mock.write("quick", "")
    wait_until(lambda: not is_alive(told["pid"]))
    assert mock.states()["model"] == "fresh"
    log = Path(told["log"])
    assert log.is_relative_to(mock.folder)
    assert "model: submitted job 1 on mock" in log.read_text()
    assert '"model"' in log.with_suffix(".out").read_text()


def test_a_person_is_told_the_job_the_log_and_how_to_follow(mock):
    out = mock("run", "model", "--detach", **MOCK).out
    first, job, follow, log = out.splitlines()
    assert first.startswith("Detached: process ")
    assert job == "  model: job 1 on mock"
    assert follow == "  follow it: exa hpc logs 1 --follow"
    assert log.startswith("  log: ")
    mock.write("quick", "")
    pid = int(first.split()[2])
    wait_until(lambda: not is_alive(pid))
    assert mock.versions()["model"] == 1


def test_a_request_that_ends_without_a_job_gives_its_result_and_exit_code(mock):
    done = mock("assets", "materialize", "local", "--detach")
    assert done.out == "Materialized local: rebuilt local\n"
    told = mock("assets", "materialize", "local", "--force", "--detach", "--json").json
    assert told["rebuilt"] == ["local"]
    mock.write("bad", "")
    done = mock("assets", "materialize", "local", "--force", "--detach", code=1)
    assert "Failed local: ValueError: no good" in done.err
    assert "nosuch" in mock("assets", "materialize", "nosuch", "--detach", code=2).err
