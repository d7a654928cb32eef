"""How a build ends whose job ends, in each of the situations of the first seed's table."""

import os
import threading
import time

import job_functions as functions
import pytest
from job_requests import Scripted, job_request, run_scripted, status
from waiting import wait_until

from examlops_dagster.core.seams import AssetOrchestrator
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
    UsageError,
)
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


def test_a_completed_job_gives_its_result_and_its_id(mock):
    result = mock.run(functions.versions)
    value = decode(result.value)
    assert value["upstream"] == {"PM100": 3}
    assert value["pid"] != os.getpid()
    assert result.provenance == {
        "orchestrator": "scheduler",
        "scheduler": "mock",
        "hpc_job_id": "1",
        "node": "localhost",
    }
    row = mock.jobs.only
    assert (row.state, row.model, row.job_id) == ("COMPLETED", "asset:numbers", "1")
    assert row.exit_code == 0
    assert row.started_at <= row.ended_at
    assert isinstance(mock.orchestrator, AssetOrchestrator)


def test_a_failed_job_is_an_error_with_its_traceback_and_both_logs(mock):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        mock.run(functions.fails)
    error = caught.value
    assert error.reason == "job 1 on mock ended FAILED (exit code 1): ValueError: this is why"
    for text in ("scheduler: mock", "job: 1", "state: FAILED", "on stdout before", "Traceback"):
        assert text in error.details
    assert 'raise ValueError("this is why")' in error.details
    assert "schedulers/job.py" not in error.details  # from the user's first frame on
    assert mock.jobs.only.state == "FAILED"


@pytest.mark.parametrize("timeout", [1.0, 1])
def test_a_job_is_ended_at_its_limit_to_the_second(mock, tmp_path, timeout):
    started = time.monotonic()
    with pytest.raises(BuildTimeoutError, match=r"ended TIMEOUT \(reached its time limit\)"):
        mock.run(
            functions.sleeps, {"folder": str(tmp_path), "seconds": 600}, timeout_seconds=timeout
        )
    assert time.monotonic() - started < 300
    assert mock.jobs.only.state == "TIMEOUT"


def test_a_cancelled_job_is_a_cancelled_build(mock, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 600}
    caught = []

    def run():
        try:
            mock.run(functions.sleeps, arguments)
        except BuildCancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: list(tmp_path.glob("started-*")))
    [ref] = mock.scheduler.find(mock.jobs.only.token, mock.jobs.only.submitted_at)
    mock.scheduler.cancel([ref])
    thread.join(300)
    assert isinstance(caught[0], BuildCancelledError)
    assert mock.jobs.only.state == "CANCELLED"


def test_a_lost_job_is_an_error(mock):
    unknown = status("UNKNOWN", reason="no such job")
    with pytest.raises(AssetBuildError, match=r"ended LOST \(nothing is known of it"):
        run_scripted(mock, Scripted(status("RUNNING"), unknown))
    assert mock.jobs.only.state == "LOST"


def test_a_refused_job_is_an_error_and_runs_nowhere(mock, tmp_path):
    scripted = Scripted(status("UNKNOWN"), submit=[LaunchError("Invalid account")])
    with pytest.raises(AssetBuildError, match="slurm refused the job of numbers: Invalid account"):
        run_scripted(
            mock, scripted, functions.sleeps, arguments={"folder": str(tmp_path), "seconds": 0}
        )
    assert not list(tmp_path.glob("started-*"))
    assert mock.jobs.only.state == "REFUSED"


def test_without_a_scheduler_it_is_built_locally_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    orchestrator = SchedulerOrchestrator(environment={"PATH": str(tmp_path)})
    result = orchestrator.run(job_request(functions.versions, timeout_seconds=None))
    assert decode(result.value)["pid"] == os.getpid()
    assert result.provenance["orchestrator"] == "local"
    assert result.provenance["fallback"].startswith("local (neither sbatch nor flux is on PATH")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (functions.inner, "is not importable by a job"),
        (functions.anonymous, "is not importable by a job"),
        (functions.wrapper, "resolves to a different object"),
    ],
)
def test_what_a_job_cannot_import_is_built_locally_and_says_why(mock, function, why):
    result = mock.run(function, timeout_seconds=None)
    assert why in result.provenance["fallback"]
    assert mock.folders == []
    mock.environment["EXAMLOPS_ASSET_FALLBACK"] = "refuse"
    with pytest.raises(AssetBuildError, match=why):
        mock.run(function, timeout_seconds=None)


def test_a_name_that_is_gone_does_not_resolve(mock, monkeypatch):
    function = functions.versions
    monkeypatch.delattr(functions, "versions")
    assert "does not resolve" in mock.run(function, timeout_seconds=None).provenance["fallback"]


def test_a_misspelt_scheduler_is_an_error(tmp_path):
    orchestrator = SchedulerOrchestrator(environment={"EXAMLOPS_HPC_SCHEDULER": "slrum"})
    with pytest.raises(UsageError, match=r"no scheduler 'slrum'.*Did you mean slurm"):
        orchestrator.run(job_request(functions.versions))


def test_without_a_function_there_is_nothing_to_run(mock):
    with pytest.raises(LaunchError, match="no production function"):
        mock.run(None)
