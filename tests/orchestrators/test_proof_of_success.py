"""What proves that a job succeeded."""

import job_functions as functions
import pytest
from job_requests import Scripted, leave_exit, run_scripted, status

from examlops_dagster.errors import AssetBuildError


@pytest.mark.parametrize("word", ["OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CANCELLED", "FAILED"])
def test_the_state_outranks_an_exit_code_of_0(mock, word):
    mock.environment["EXAMLOPS_HPC_INFRA_RETRIES"] = "0"
    scripted = Scripted(status(word))
    scripted.on_submit = leave_exit
    with pytest.raises(AssetBuildError, match=f"ended {word}"):
        run_scripted(mock, scripted)


@pytest.mark.parametrize("word", ["RUNNING", "UNKNOWN", "COMPLETING"])
def test_a_scheduler_that_has_forgotten_or_lags_does_not_contradict(mock, word):
    scripted = Scripted(status(word))
    scripted.on_submit = leave_exit
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "101"


def test_an_exit_of_another_attempt_proves_nothing(mock):
    scripted = Scripted(status("COMPLETED"))
    scripted.on_submit = lambda submission: leave_exit(submission, token="older")
    with pytest.raises(AssetBuildError, match="nothing proves its success"):
        run_scripted(mock, scripted)


def test_a_child_killed_for_memory_is_no_success(mock):
    scripted = Scripted(status("RUNNING"))
    scripted.on_submit = lambda submission: leave_exit(submission, oom_kills=2)
    with pytest.raises(AssetBuildError, match="ended OUT_OF_MEMORY"):
        run_scripted(mock, scripted)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["opened"], "never closed"),
        (["opened", "closed with error"], "it broke"),
    ],
)
def test_pipes_that_were_opened_must_be_closed_without_an_exception(mock, lines, why):
    scripted = Scripted(status("COMPLETED"))
    texts = {
        "opened": '{"__dagster_pipes_version": "0.1", "method": "opened", "params": {}}\n',
        "closed with error": '{"__dagster_pipes_version": "0.1", "method": "closed", '
        '"params": {"exception": {"message": "it broke"}}}\n',
    }

    def ends(submission):
        (submission.folder / "messages.jsonl").write_text("".join(texts[line] for line in lines))
        leave_exit(submission)

    scripted.on_submit = ends
    with pytest.raises(AssetBuildError, match=why):
        run_scripted(mock, scripted)


def test_a_process_killed_from_outside_is_a_failure(mock):
    with pytest.raises(
        AssetBuildError, match=r"ended by SIGKILL .out of memory.., exit code 137\)$"
    ):
        mock.run(functions.killed)


def test_an_exit_in_the_function_is_a_failure(mock):
    with pytest.raises(AssetBuildError, match="SystemExit: no more"):
        mock.run(functions.exits)
