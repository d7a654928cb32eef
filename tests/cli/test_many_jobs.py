"""Several jobs waited for by one command: side by side, interrupted, left and taken over."""

import signal
import time

import pytest
from slurms import need_slurm
from waiting import slowness, wait_until

from examlops_dagster.ledger.jobs import OPEN_STATES

PIPELINE = """\
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent
SLOW = f"echo $EXAMLOPS_ASSET; while ! test -e '{HERE}/quick'; do sleep 1; done"


def slow(name, **more):
    @asset(name, command=["/bin/sh", "-c", SLOW], retries=2, **more)
    def built(**upstream): ...
    return built


every = [slow(f"a{n}") for n in range(3)]
below = slow("below", deps=[f"a{n}" for n in range(3)])
stubborn = asset("stubborn", command=["/bin/sh", "-c", f"trap '' TERM; {SLOW}"])(lambda: None)
many = [slow(f"m{n}") for n in range(100)]


@asset(orchestrator="local", timeout_seconds=None)
def here():
    return 1
"""
RUNS = """\
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    print(*(run.status.value for run in instance.get_runs()))
"""
TERMINATE = """\
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    [run] = instance.get_runs()
    instance.report_run_canceling(run)
"""


@pytest.fixture
def on(exa, tmp_path):
    """Give a project that submits to a cluster."""

    def prepare(scheduler):
        if scheduler == "slurm":
            need_slurm()
        exa.apart(PIPELINE, tmp_path / "cache of its own")
        exa.variables = {
            "EXAMLOPS_HPC_SCHEDULER": scheduler,
            "EXAMLOPS_ASSET_ORCHESTRATOR": "scheduler",
            "XDG_RUNTIME_DIR": "",
        }
        return exa

    yield prepare
    exa.write("quick", "")  # no job outlives its test


@pytest.fixture
def mock(on):
    return on("mock")


@pytest.fixture(params=["mock", "slurm"])
def cluster(on, request):
    return on(request.param)


def jobs(mock):
    return mock("hpc", "jobs", "--json", "--limit", "1000").json


def in_queue(mock):
    return [row for row in jobs(mock) if row["state"] in OPEN_STATES]


def start_and_wait(mock, *names, running=None):
    """Start a request, and give it once all of its jobs run."""
    command = mock.start("assets", "materialize", *names, **mock.variables)
    for name in running or names:
        command.until(f"{name}: job ")

    def all_run():
        return sum(row["state"] == "RUNNING" for row in jobs(mock)) == len(running or names)

    wait_until(all_run, 300)  # other tests have jobs in the queue of a real Slurm
    return command


def test_ctrl_c_cancels_all_jobs_and_nothing_is_tried_again(cluster):
    """A handler of one's own gave FAILURE, and another attempt (dagster#23406, B47)."""
    command = start_and_wait(cluster, "below", running=["a0", "a1", "a2"])
    interrupted = time.monotonic()
    command.send(signal.SIGINT)
    done = command.finish(code=130)
    assert time.monotonic() - interrupted < 20 * slowness()
    assert [row["state"] for row in jobs(cluster)] == ["CANCELLED"] * 3
    for name in ("a0", "a1", "a2"):
        assert "is gone (CANCELLED)" in done.err
        [build] = cluster("assets", "history", name, "--json").json
        assert build["state"] == "cancelled"
    assert cluster.python(RUNS).out == "CANCELED\n"
    assert done.is_quiet
    assert cluster.states()["a0"] == "failed"
    assert cluster.states()["below"] == "stale_waiting_for_upstream"


def test_a_second_ctrl_c_waits_for_nobody(mock):
    command = start_and_wait(mock, "stubborn", "a0")
    command.send(signal.SIGINT)
    command.until("interrupted; 2 steps that waited: what they wait for is ended")
    interrupted = time.monotonic()
    command.send(signal.SIGINT)
    done = command.finish(code=130)
    assert time.monotonic() - interrupted < 8 * slowness()
    assert done.is_quiet
    assert mock.python(RUNS).out == "CANCELED\n"


def test_a_hundred_jobs_are_cancelled_within_seconds(mock):
    names = [f"m{n}" for n in range(100)]
    command = start_and_wait(mock, *names)
    interrupted = time.monotonic()
    command.send(signal.SIGINT)
    command.finish(code=130)
    assert time.monotonic() - interrupted < 20 * slowness()
    assert [row["state"] for row in jobs(mock)] == ["CANCELLED"] * 100
    assert mock.python(RUNS).out == "CANCELED\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_leaves_the_jobs_which_the_next_request_takes_over(cluster, number):
    names = ("a0", "a1", "a2")
    command = start_and_wait(cluster, *names, "here", running=names)
    before = {row["model"]: row["job_id"] for row in jobs(cluster)}
    command.send(number)
    done = command.finish(code=130)
    for job_id in before.values():
        assert f"is left running → exa hpc logs {job_id} --follow" in done.err
    assert len(in_queue(cluster)) == 3
    assert cluster.states()["a0"] != "failed"
    cluster.write("quick", "")
    again = cluster("assets", "materialize", *names, **cluster.variables)
    for job_id in before.values():
        assert f"taking over job {job_id}" in again.err
    assert {row["model"]: row["job_id"] for row in jobs(cluster)} == before
    assert [row["state"] for row in jobs(cluster)] == ["COMPLETED"] * 3
    assert {cluster.states()[name] for name in names} == {"fresh"}


def test_a_wait_that_is_killed_is_taken_over_job_by_job(cluster):
    names = ("a0", "a1", "a2")
    command = start_and_wait(cluster, *names)
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    cluster.write("quick", "")
    again = cluster("assets", "materialize", *names, **cluster.variables)
    assert again.err.count("taking over job") == 3
    assert [row["state"] for row in jobs(cluster)] == ["COMPLETED"] * 3


def test_terminate_of_the_run_cancels_all_jobs(mock):
    command = start_and_wait(mock, "a0", "a1", "a2")
    mock.python(TERMINATE)
    terminated = time.monotonic()
    command.finish(code=130)
    assert time.monotonic() - terminated < 20 * slowness()
    assert [row["state"] for row in jobs(mock)] == ["CANCELLED"] * 3
    assert mock.python(RUNS).out == "CANCELED\n"


def test_the_lines_of_many_jobs_say_whose_they_are(mock):
    mock.write("quick", "")
    mock("assets", "materialize", "a0", "a1", "a2", **mock.variables)
    logs = mock.folder.rglob("*.out")
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    assert {"[a0] a0", "[a1] a1", "[a2] a2"} <= set(lines)
