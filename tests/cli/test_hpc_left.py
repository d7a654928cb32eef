"""Jobs whose waiter was killed, as ``exa hpc`` shows, prunes and cancels them."""

import os
import signal
from pathlib import Path

import pytest
from waiting import is_alive, until_prunable, wait_until

ON_JOBS = {"EXAMLOPS_HPC_SCHEDULER": "mock", "EXAMLOPS_ASSET_ORCHESTRATOR": "scheduler"}

PIPELINE = """\
import os
import time
from pathlib import Path

from examlops_dagster import asset, partitions

HERE = Path(__file__).parent


@asset("parts/all-of.them")
def model():
    (HERE / "building").write_text(str(os.getpid()))
    deadline = time.monotonic() + 600
    while (HERE / "slow").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return 1


@asset(partitions={"k": partitions(["a", "b"])})
def keys(k):
    print("key", k)
    return k
"""
NAME = "parts/all-of.them"


@pytest.fixture
def mock(exa, tmp_path):
    """A project with a mock cluster of its own, whose jobs are numbered from 1."""
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    return exa


@pytest.fixture
def left(mock):
    """Give a job that ended after its waiter was killed, and its folder."""
    mock.write("slow", "")
    command = mock.start("assets", "materialize", NAME, **ON_JOBS)
    command.until_file("building")
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    (mock.folder / "slow").unlink()
    [job] = jobs(mock)
    folder = Path(job["folder"])
    wait_until((folder / "exit.json").exists)
    return folder


def jobs(mock):
    return mock("hpc", "jobs", "--json").json


def test_one_that_ended_is_shown_as_such(mock, left):
    [job] = jobs(mock)
    assert (job["state"], job["exit_code"]) == ("COMPLETING", 0)
    assert "ended with exit code 0; the next request for it records that" in (
        mock("hpc", "jobs").out
    )
    assert left.is_dir()
    mock("assets", "materialize", NAME, **ON_JOBS)
    assert [job["state"] for job in jobs(mock)] == ["COMPLETED"]


def test_a_request_that_would_build_locally_takes_its_result(mock, left):
    (mock.folder / "building").unlink()
    done = mock("assets", "materialize", NAME, EXAMLOPS_HPC_SCHEDULER="mock")
    assert "taking over job 1 on mock" in done.err
    assert not (mock.folder / "building").exists()
    assert [job["state"] for job in jobs(mock)] == ["COMPLETED"]
    [build] = mock("assets", "history", NAME, "-n", "1", "--json").json
    assert build["provenance"]["hpc_job_id"] == "1"


def test_one_of_other_code_ends_before_the_asset_is_built_locally(mock):
    mock.write("slow", "")
    command = mock.start("assets", "materialize", NAME, **ON_JOBS)
    pid = int(command.until_file("building"))
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    mock.write("pipeline.py", PIPELINE.replace("return 1", "return 2"))
    (mock.folder / "slow").unlink()
    os.kill(pid, signal.SIGSTOP)
    done = mock("assets", "materialize", NAME, EXAMLOPS_HPC_SCHEDULER="mock")
    assert f"{NAME}: job 1 on mock is ended (CANCELLED)" in done.err
    assert not is_alive(pid)
    assert mock("get", NAME).out == "2\n"
    assert [job["state"] for job in jobs(mock)] == ["CANCELLED"]


def test_where_no_scheduler_is_found_one_that_may_run_is_told(mock, left):
    done = mock("assets", "materialize", NAME, PATH="/nowhere")
    assert "may run beside this build" in done.err
    assert f"exa hpc jobs --asset {NAME}" in done.err


def test_cancelling_it_keeps_what_it_made(mock, left):
    cancelled = mock("hpc", "cancel", NAME).out
    assert f"Job 1 of {NAME} ended with exit code 0; the next request" in cancelled
    assert left.is_dir()
    assert "taking over job 1" in mock("assets", "materialize", NAME, **ON_JOBS).err


def test_its_folder_is_pruned_and_the_next_request_submits_another(mock, left):
    assert mock("hpc", "prune").out == "Removed 0 job folders\n"
    until_prunable()
    assert mock("hpc", "prune", "--older-than", "1s").out == "Removed 1 job folder\n"
    assert not left.exists()
    [job] = jobs(mock)
    assert job["state"] == "LOST"
    assert "folder was pruned" in job["reason"]
    assert "submitted job 2 on mock" in mock("assets", "materialize", NAME, **ON_JOBS).err


def test_the_name_of_an_asset_is_shown_while_it_is_built(mock):
    assert f"building {NAME}\n" in mock("assets", "materialize", NAME, **ON_JOBS).err


def test_logs_of_a_name_say_which_job_of_an_array_they_are_of(mock):
    mock("assets", "materialize", "keys", **ON_JOBS)
    logs = mock("hpc", "logs", "keys")
    assert "key a" in logs.out
    assert "keys has several jobs; this is 1_0 of keys[a] → exa hpc jobs" in logs.err
    assert "several jobs" not in mock("hpc", "logs", "keys[b]").err


def test_cancelling_an_array_that_ended_says_how(mock):
    mock("assets", "materialize", "keys", **ON_JOBS)
    cancelled = mock("hpc", "cancel", "keys")
    assert cancelled.out == "The tasks of keys had ended: 2 COMPLETED\n"


def test_a_misspelt_variable_is_told_without_the_name_of_a_class(mock):
    wrong = {**ON_JOBS, "EXAMLOPS_HPC_SCHEDULER": "slrum"}
    done = mock("assets", "materialize", NAME, code=1, **wrong)
    assert f"Failed {NAME}: EXAMLOPS_HPC_SCHEDULER=slrum: no scheduler 'slrum'" in done.err


def test_a_scheduler_is_named_in_any_case(mock):
    wrong = {**ON_JOBS, "EXAMLOPS_HPC_SCHEDULER": " Mock "}
    assert "submitted job 1 on mock" in mock("assets", "materialize", NAME, **wrong).err
