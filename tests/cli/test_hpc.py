"""Builds as jobs from the command line, on the mock scheduler, in real processes."""

import signal
from pathlib import Path

import pytest
from waiting import is_alive, until_prunable, wait_until

MOCK = {"EXAMLOPS_HPC_SCHEDULER": "mock"}

PIPELINE = """\
import os
import sys
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"])
def features(**upstream):
    print("features from", upstream)
    return {"read": upstream["PM100"], "dagster": "dagster" in sys.modules}


@asset(inputs={"table": features}, deps=["features"], resources={"gpus": 4, "time": "2:00:00"})
def model(table, **upstream):
    print("model on stdout")
    print("model on stderr", file=sys.stderr)
    (HERE / "building").write_text(str(os.getpid()))
    deadline = time.monotonic() + 600
    while (HERE / "slow").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if (HERE / "bad").exists():
        raise ValueError("no good")
    with (HERE / "calls").open("a") as file:
        file.write("call\\n")
    return {"from": table, "cwd": str(Path.cwd())}
"""


@pytest.fixture
def mock(exa, tmp_path):
    """A project with a mock cluster of its own, whose jobs are numbered from 1."""
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    exa("assets", "declare", "PM100")
    return exa


def materialize(mock, *words, **how):
    return mock(
        "assets", "materialize", "model", "--orchestrator", "scheduler", *words, **MOCK, **how
    )


def start(mock):
    return mock.start("assets", "materialize", "model", "--orchestrator", "scheduler", **MOCK)


def jobs(mock, *words):
    return mock("hpc", "jobs", "--json", *words).json


def folders(mock):
    return [Path(row["folder"]) for row in jobs(mock)]


def test_without_jobs_it_says_so(exa):
    assert exa("hpc", "jobs").out == "No HPC jobs tracked yet.\n"
    assert exa("hpc", "jobs", "--json").json == []
    assert "there is no job 'model'" in exa("hpc", "logs", "model", code=2).err


def test_a_slice_is_built_as_jobs_that_are_listed_with_their_logs(mock):
    mock.write("slow", "")
    command = start(mock)
    command.until("model: job 2 on mock → RUNNING")
    (mock.folder / "slow").unlink()
    done = command.finish()
    assert "Materialized model: rebuilt PM100, features, model\n" in done.out
    assert "model: submitted job 2 on mock" in done.err
    second, first = jobs(mock)
    assert (first["model"], first["state"], first["job_id"]) == ("asset:features", "COMPLETED", "1")
    assert (second["model"], second["state"], second["gpus"]) == ("asset:model", "COMPLETED", 4)
    value = mock("get", "model", "--json").json["value"]
    assert value == {"from": {"read": 1, "dagster": False}, "cwd": str(mock.folder)}
    table = mock("hpc", "jobs", "--asset", "model").out.splitlines()
    assert table[0].split() == ["Job", "Scheduler", "Model", "State", "GPUs", "Submitted", "Reason"]
    assert table[1].split()[:5] == ["2", "mock", "asset:model", "COMPLETED", "4"]
    assert len(table) == 2
    for name in ("model", "2"):
        logs = mock("hpc", "logs", name)
        assert "model on stdout" in logs.out
        assert "model on stderr" in logs.err
    told = mock("hpc", "logs", "model", "--json").json
    assert ("model on stdout" in told["stdout"], told["stderr"]) == (True, "model on stderr")
    assert mock("hpc", "logs", "model", "--json", "-f", code=2).is_quiet
    assert "features from {'PM100': 1}" in mock("hpc", "logs", "features", "--follow").out
    [build] = mock("assets", "history", "model", "--json").json
    assert build["orchestrator"] == "scheduler"
    assert "already fresh" in materialize(mock).out
    assert len(jobs(mock)) == 2


def test_a_failed_job_is_exit_1_with_its_last_line_and_no_version(mock):
    mock.write("bad", "")
    done = materialize(mock, code=1)
    assert "Failed model: job 2 on mock ended FAILED (exit code 1): ValueError: no good" in done.err
    log = Path(done.err.rpartition("log: ")[2].splitlines()[0])
    assert 'raise ValueError("no good")' in log.read_text()
    assert "model on stdout" in log.read_text()
    assert mock.versions()["model"] == 0
    assert jobs(mock)[0]["exit_code"] == 1


def test_a_wait_that_is_killed_is_taken_up_again(mock):
    mock.write("slow", "")
    command = start(mock)
    command.until_file("building")
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    again = start(mock)
    again.until("taking over job 2 on mock")
    (mock.folder / "slow").unlink()
    assert "rebuilt model" in again.finish().out
    assert mock.lines("calls") == ["call"]
    assert [row["job_id"] for row in jobs(mock)] == ["2", "1"]


def test_a_job_that_ended_unseen_is_adopted(mock):
    mock.write("slow", "")
    command = start(mock)
    command.until_file("building")
    command.send(signal.SIGKILL)
    command.finish(code=-signal.SIGKILL)
    (mock.folder / "slow").unlink()
    wait_until((folders(mock)[0] / "exit.json").exists)
    assert "rebuilt model" in materialize(mock).out
    assert mock.lines("calls") == ["call"]
    assert mock.versions()["model"] == 1
    assert [row["state"] for row in jobs(mock)] == ["COMPLETED", "COMPLETED"]


def test_ctrl_c_cancels_the_job_and_a_sigterm_leaves_it(mock):
    mock.write("slow", "")
    command = start(mock)
    pid = int(command.until_file("building"))
    wait_until(lambda: jobs(mock)[0]["state"] == "RUNNING")
    command.send(signal.SIGTERM)
    command.finish(code=None)
    assert "job 2 on mock is left running → exa hpc logs 2 --follow" in command.finish(None).err
    assert is_alive(pid)
    assert mock.states()["model"] != "failed"  # a detach is not an attempt
    assert jobs(mock)[0]["state"] == "RUNNING"
    again = start(mock)
    again.until("taking over job 2")
    again.send(signal.SIGINT)
    done = again.finish(code=130)
    assert "model: job 2 on mock is gone (CANCELLED)" in done.err
    wait_until(lambda: not is_alive(pid))
    assert jobs(mock)[0]["state"] == "CANCELLED"
    assert mock.lines("calls") == []


def test_a_job_is_cancelled_by_its_name_or_id(mock):
    mock.write("slow", "")
    command = start(mock)
    command.until_file("building")
    mock.write(
        "policy.yaml", "policies: [{action: cancel, when: actor == 'guest', effect: deny}]\n"
    )
    refused = mock("hpc", "cancel", "model", code=1, EXAMLOPS_ACTOR="guest")
    assert "Blocked by policy: model: matched policy rule 'rule 1' → deny" in refused.err
    assert mock("hpc", "cancel", "model").out == "Cancelled job 2 of model\n"
    [row] = mock("audit", "list", "--action", "cancel", "--json").json
    assert (row["assets"], row["details"]["jobs"]) == (["model"], ["2"])
    done = command.finish(code=1)
    assert "Failed model: job 2 on mock ended CANCELLED\n" in done.err
    assert "had ended: CANCELLED" in mock("hpc", "cancel", "2").out
    assert mock("hpc", "cancel", "nosuch", code=2).is_quiet


def test_old_folders_are_pruned_and_rows_stay(mock):
    materialize(mock)
    made = folders(mock)
    assert mock("hpc", "prune").out == "Removed 0 job folders\n"
    assert mock("hpc", "prune", "--older-than", "soon", code=2).is_quiet
    until_prunable()
    assert mock("hpc", "prune", "--older-than", "1s").out == "Removed 2 job folders\n"
    assert not any(folder.exists() for folder in made)
    assert len(jobs(mock)) == 2
    assert "the folder of job 2 is gone" in mock("hpc", "logs", "2", code=2).err


def test_a_fallback_is_told_and_recorded(mock):
    done = mock("assets", "materialize", "features", "--orchestrator", "scheduler",
                PATH="/nowhere")  # fmt: skip
    assert "fallback: features local (neither sbatch nor flux is on PATH" in done.out
    assert "features fell back to local (neither sbatch nor flux" in done.err
    refused = mock("assets", "materialize", "model", "--orchestrator", "scheduler", code=1,
                   PATH="/nowhere", EXAMLOPS_ASSET_FALLBACK="refuse")  # fmt: skip
    assert "EXAMLOPS_ASSET_FALLBACK=refuse" in refused.err
    wrong = mock("assets", "materialize", "model", "--orchestrator", "scheduler", code=1,
                 EXAMLOPS_HPC_SCHEDULER="slrum")  # fmt: skip
    assert "Did you mean slurm?" in wrong.err
