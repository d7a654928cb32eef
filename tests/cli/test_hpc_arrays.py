"""Partitions as one submission, from the command line, on the mock scheduler, in real processes."""

import signal
from pathlib import Path

import pytest
from waiting import is_alive, until_prunable, wait_until

MOCK = {"EXAMLOPS_HPC_SCHEDULER": "mock"}

PIPELINE = """\
import os
import time
from pathlib import Path

from examlops_dagster import asset, daily, partitions

HERE = Path(__file__).parent
KEYS = [f"k{n}" for n in range(int((HERE / "size").read_text()))]


def is_slow(k):
    return (HERE / "slow").exists() and k in (HERE / "slow").read_text().split()


@asset(partitions={"k": partitions(KEYS)}, deps=["PM100"], orchestrator="scheduler")
def parts(k, **upstream):
    print("building", k, *map(os.environ.get, ("EXAMLOPS_PARTITION", "EXAMLOPS_UPSTREAM")))
    (HERE / f"building {k}").write_text(str(os.getpid()))
    deadline = time.monotonic() + 600
    while is_slow(k) and time.monotonic() < deadline:
        time.sleep(0.05)
    if (HERE / "bad").exists() and k in (HERE / "bad").read_text().split():
        raise ValueError(f"{k} is no good")
    with (HERE / "calls").open("a") as file:
        file.write(f"{k}\\n")
    return {"k": k, "read": upstream["PM100"]}


@asset(partitions={"k": partitions(KEYS)}, inputs={"part": parts}, orchestrator="scheduler")
def doubled(k, part):
    return [part["k"], k]


@asset(
    partitions={"day": daily("2024-01-01", "2024-01-03"), "region": partitions(["eu", "us"])},
    orchestrator="scheduler",
)
def grid(day, region):
    return f"{day} {region}"


@asset(
    partitions={"k": partitions(KEYS)},
    orchestrator="scheduler",
    command=["sh", "-c", "echo $# $EXAMLOPS_PARTITION > $EXAMLOPS_PARTITION.out"],
)
def program(k): ...
"""


@pytest.fixture
def mock(exa, tmp_path):
    """A project with a mock cluster of its own, whose jobs are numbered from 1."""
    exa.write("size", "6")
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    exa("assets", "declare", "PM100")
    return exa


def materialize(mock, *words, **how):
    return mock("assets", "materialize", *words, **MOCK, **how)


def start(mock, *words):
    return mock.start("assets", "materialize", *words, **MOCK)


def jobs(mock, *words):
    return mock("hpc", "jobs", "--json", "-n", "1000", *words).json


def tokens(mock):
    return {row["token"] for row in jobs(mock)}


def states(mock, name="parts"):
    found = mock("assets", "status", name, "--json").json
    rows = found if isinstance(found, list) else found["assets"]
    return {row["partition"]: (row["state"], row["version"]) for row in rows if row["partition"]}


def until_completed(mock, count):
    wait_until(lambda: sum(row["state"] == "COMPLETED" for row in jobs(mock)) >= count)


def test_a_range_is_one_submission_with_a_row_and_logs_for_each_key(mock):
    done = materialize(mock, "doubled")
    assert "parts: submitted 6 tasks as job 1 on mock" in done.err
    assert "doubled: submitted 6 tasks as job 2 on mock" in done.err
    assert len(tokens(mock)) == 2
    rows = {row["partition"]: row for row in jobs(mock, "--asset", "parts")}
    assert {(r["state"], r["exit_code"]) for r in rows.values()} == {("COMPLETED", 0)}
    assert rows["k3"]["job_id"] == "1_3"
    for name in ("1_3", "parts[k3]"):
        assert mock("hpc", "logs", name).out.splitlines()[1] == 'building k3 k3 {"PM100": 1}'
    value = mock("get", "doubled", "--partition", "k4", "--json").json["value"]
    assert value == ["k4", "k4"]
    assert set(states(mock).values()) == {("fresh", 1)}


def test_one_key_alone_is_a_plain_job(mock):
    materialize(mock, "parts", "--partition", "k1")
    [row] = jobs(mock)
    assert (row["job_id"], row["array_index"], row["partition"]) == ("1", None, "k1")
    assert "parts: submitted 5 tasks as job 2 on mock" in materialize(mock, "parts").err
    assert "already fresh" in materialize(mock, "parts").out
    mock.write("size", "7")
    assert "submitted job 3 on mock" in materialize(mock, "parts").err
    assert len(tokens(mock)) == 3


def test_a_bad_key_fails_alone(mock):
    mock.write("bad", "k2")
    done = materialize(mock, "parts", code=1)
    assert "Failed parts[k2]: job 1_2 on mock ended FAILED (exit code 1): ValueError: k2 is" in (
        done.err
    )
    log = Path(done.err.rpartition("log: ")[2].splitlines()[0]).read_text()
    assert 'raise ValueError(f"{k} is no good")' in log
    found = states(mock)
    assert found.pop("k2") == ("failed", 0)
    assert set(found.values()) == {("fresh", 1)}
    mock.write("bad", "")
    assert "submitted job 2 on mock" in materialize(mock, "parts").err
    assert set(states(mock).values()) == {("fresh", 1)}


def test_two_dimensions_are_one_submission(mock):
    assert "grid: submitted 4 tasks as job 1" in materialize(mock, "grid").err
    value = mock("get", "grid", "--partition", "2024-01-02|us", "--json").json["value"]
    assert value == "2024-01-02 us"


def test_the_program_of_each_task_knows_its_key_and_gets_no_more_arguments(mock):
    materialize(mock, "program")
    assert mock.lines("k5.out") == ["0 k5"]
    assert len(tokens(mock)) == 1


def test_a_wait_that_is_killed_is_taken_up_again_as_a_whole(mock):
    mock.write("slow", "k1 k4")
    command = start(mock, "parts")
    command.until_file("building k4")
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    mock.write("slow", "")
    done = materialize(mock, "parts")
    assert "taking over" in done.err
    assert "submitted" not in done.err
    assert sorted(mock.lines("calls")) == [f"k{n}" for n in range(6)]
    assert len(tokens(mock)) == 1
    # a key that had ended and was not recorded leaves its number unused
    assert {state for state, _ in states(mock).values()} == {"fresh"}
    assert {row["state"] for row in jobs(mock)} == {"COMPLETED"}


def test_ctrl_c_cancels_the_whole_array_and_keeps_what_was_built(mock):
    mock.write("slow", "k1 k4")
    command = start(mock, "parts")
    pids = [int(command.until_file(f"building {k}")) for k in ("k1", "k4")]
    until_completed(mock, 4)
    command.send(signal.SIGINT)
    done = command.finish(code=130)
    assert "jobs on mock are gone" in done.err
    wait_until(lambda: not any(map(is_alive, pids)))
    rows = {row["partition"]: row["state"] for row in jobs(mock)}
    assert rows["k1"] == rows["k4"] == "CANCELLED"
    mock.write("slow", "")
    assert "submitted" in materialize(mock, "parts").err
    assert set(states(mock).values()) == {("fresh", 1)}
    assert sorted(mock.lines("calls")) == [f"k{n}" for n in range(6)]


def test_a_sigterm_leaves_the_array_running_and_says_so(mock):
    mock.write("slow", "k1 k4")
    command = start(mock, "parts")
    command.until_file("building k4")
    command.send(signal.SIGTERM)
    done = command.finish(code=None)
    assert "are left running → exa hpc jobs --asset parts" in done.err
    mock.write("slow", "")
    assert "taking over" in materialize(mock, "parts").err
    assert sorted(mock.lines("calls")) == [f"k{n}" for n in range(6)]
    assert len(tokens(mock)) == 1


def test_one_task_or_the_whole_array_is_cancelled(mock):
    mock.write("slow", "k1 k4 k5")
    command = start(mock, "parts")
    for key in ("k1", "k4", "k5"):
        command.until_file(f"building {key}")
    until_completed(mock, 3)
    assert mock("hpc", "cancel", "1_1").out == "Cancelled job 1_1 of parts[k1]\n"
    assert mock("hpc", "cancel", "parts").out == "Cancelled 2 tasks\n"
    done = command.finish(code=1)
    assert "Failed parts[k1]: job 1_1 on mock ended CANCELLED\n" in done.err
    assert sorted(mock.lines("calls")) == ["k0", "k2", "k3"]


def test_a_folder_is_pruned_once_all_its_tasks_ended(mock):
    mock.write("slow", "k1")
    command = start(mock, "parts")
    until_completed(mock, 5)
    until_prunable()
    assert mock("hpc", "prune", "--older-than", "1s").out == "Removed 0 job folders\n"
    mock.write("slow", "")
    command.finish(code=0)
    until_prunable()
    assert mock("hpc", "prune", "--older-than", "1s").out == "Removed 1 job folder\n"


def test_keys_that_somebody_else_builds_are_waited_for(mock):
    mock.write("slow", "k1")
    first = start(mock, "parts", "--partition", "k1")
    first.until_file("building k1")
    second = start(mock, "parts")
    second.until("submitted 5 tasks")
    mock.write("slow", "")
    first.finish(code=0)
    second.finish(code=0)
    assert sorted(mock.lines("calls")) == [f"k{n}" for n in range(6)]
    assert set(states(mock).values()) == {("fresh", 1)}


def test_without_a_scheduler_each_key_is_built_locally(mock):
    done = mock("assets", "materialize", "parts", PATH="/nowhere")
    assert "fallback: parts[k0] local (neither sbatch nor flux is on PATH" in done.out
    assert set(states(mock).values()) == {("fresh", 1)}
