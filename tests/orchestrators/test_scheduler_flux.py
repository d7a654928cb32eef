"""The situation table of the first seed, and arrays, over a Flux that answers like 0.88.0."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import job_functions as functions
import pytest
from array_requests import by_key, key_requests
from build_requests import wait_until
from job_requests import IMPATIENT, MemoryJobs, job_request

from examlops_dagster.core.seams import LEFT_RUNNING
from examlops_dagster.errors import AssetBuildError, BuildCancelledError, BuildTimeoutError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.flux import FluxScheduler

FAKES = Path(__file__).resolve().parents[1] / "fakes"


class Asked(FluxScheduler):
    """May be asked at each look: what is tested is not how seldom."""

    is_free_to_ask = True


class Instance:
    def __init__(self, folder):
        self.environment = {
            **os.environ,
            "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": "",
            "EXAMLOPS_HPC_SCHEDULER": "flux",
        }
        self.jobs = MemoryJobs()
        self.told = []

    def orchestrator(self):
        return SchedulerOrchestrator(
            self.jobs, Asked(), self.environment, patience=IMPATIENT, progress=self.told.append
        )

    def run(self, function, arguments=None, **how):
        return self.orchestrator().run(job_request(function, arguments, **how))

    def run_many(self, requests):
        return self.orchestrator().run_many(requests)

    def cancel(self, *ids):
        subprocess.run(["flux", "cancel", *ids], check=True, timeout=60, capture_output=True)


@pytest.fixture
def flux(awkward_path, tmp_path, monkeypatch):
    if shutil.which("flux") is None:
        folder = tmp_path / "flux"
        folder.mkdir()
        monkeypatch.setenv("FAKE_FLUX", str(folder))
        monkeypatch.setenv("PATH", f"{FAKES}{os.pathsep}{os.environ['PATH']}")
    yield Instance(awkward_path)
    subprocess.run(["flux", "cancel", "--all"], check=False, timeout=60, capture_output=True)


def states(flux):
    return sorted(row.state for row in flux.jobs.rows.values())


# the situation table


def test_a_completed_job_gives_its_result_and_its_id(flux):
    result = flux.run(functions.versions)
    assert decode(result.value)["upstream"] == {"PM100": 3}
    assert result.provenance["scheduler"] == "flux"
    assert result.provenance["hpc_job_id"].isdigit()
    assert (flux.jobs.only.model, flux.jobs.only.state) == ("asset:numbers", "COMPLETED")


def test_a_failed_job_has_its_traceback_and_both_logs_in_the_error(flux):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        flux.run(functions.fails)
    for text in ("scheduler: flux", "on stdout before", 'raise ValueError("this is why")'):
        assert text in caught.value.details
    assert "last lines of stderr.log" in caught.value.details


def test_a_job_beyond_its_limit_timed_out(flux, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 60}
    with pytest.raises(BuildTimeoutError, match="ended TIMEOUT"):
        flux.run(functions.sleeps, arguments, timeout_seconds=1.0)
    assert states(flux) == ["TIMEOUT"]


def test_a_job_that_somebody_cancels_is_a_cancelled_build(flux, tmp_path):
    def cancel():
        wait_until(lambda: list(tmp_path.glob("started-*")), 60)
        flux.cancel(flux.jobs.only.job_id)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(BuildCancelledError, match="ended CANCELLED"):
        flux.run(functions.sleeps, {"folder": str(tmp_path), "seconds": 60})
    thread.join()
    assert states(flux) == ["CANCELLED"]


def test_a_child_that_is_killed_for_memory_is_a_failure_that_says_so(flux):
    with pytest.raises(AssetBuildError, match=r"SIGKILL"):
        flux.run(functions.killed)
    assert states(flux) == ["FAILED"]


@pytest.mark.parametrize(
    ("resources", "why"),
    [({"partition": "nosuch"}, "queue"), ({"cpus_per_task": 4000}, "unsatisfiable request")],
)
def test_a_refusal_is_told_and_nothing_runs_here(flux, tmp_path, resources, why):
    arguments = {"folder": str(tmp_path), "seconds": 0}
    with pytest.raises(AssetBuildError, match=why):
        flux.run(functions.sleeps, arguments, resources=resources)
    assert states(flux) == ["REFUSED"]
    assert not list(tmp_path.glob("started-*"))


def test_a_job_that_the_instance_forgot_is_lost(flux, tmp_path):
    folder = os.environ.get("FAKE_FLUX")
    if folder is None:
        pytest.skip("takes the history away from the fake, and a real Flux is here")

    def forget():
        wait_until(lambda: list(tmp_path.glob("started-*")), 60)
        for path in Path(folder).rglob("*.json"):
            path.unlink()

    thread = threading.Thread(target=forget)
    thread.start()
    with pytest.raises(AssetBuildError, match=r"ended LOST"):
        flux.run(functions.sleeps, {"folder": str(tmp_path), "seconds": 5})
    thread.join()
    assert len(flux.jobs.rows) == 1


def test_without_an_instance_it_is_built_here_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    orchestrator = SchedulerOrchestrator(environment={"PATH": str(tmp_path)})
    result = orchestrator.run(job_request(functions.versions, timeout_seconds=None))
    assert result.provenance["fallback"].startswith("local (neither sbatch nor flux")


def test_a_lambda_is_built_here_and_says_why(flux):
    result = flux.run(functions.anonymous, timeout_seconds=None)
    assert "is not importable by a job" in result.provenance["fallback"]
    assert flux.jobs.rows == {}


# arrays


def test_many_keys_are_one_submission_with_an_id_each(flux):
    keys = [*(f"k{n}" for n in range(5)), "bad"]
    found = by_key(flux.run_many(key_requests(functions.of_key, keys)))
    error = found.pop("bad")
    assert "ValueError: bad is no good" in error.reason
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in keys[:-1]}
    rows = list(flux.jobs.rows.values())
    assert len({row.token for row in rows}) == 1
    assert len({row.job_id for row in rows}) == 6
    assert all(row.job_id.isdigit() for row in rows)


def test_keys_of_more_than_one_task_are_a_batch_each(flux):
    resources = {"ntasks": 2}
    found = by_key(flux.run_many(key_requests(functions.of_key, "abc", resources=resources)))
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in "abc"}
    assert len({row.token for row in flux.jobs.rows.values()}) == 1


def test_an_array_whose_waiter_died_is_taken_over(flux, tmp_path):
    def requests():
        return key_requests(
            functions.of_key_slowly,
            "abc",
            lambda k: {"key": k, "folder": str(tmp_path), "seconds": 0 if k == "a" else 3},
        )

    first = flux.run_many(requests())
    next(first)
    first.close()
    found = by_key(flux.run_many(requests()))
    assert {k: decode(found[k].value) for k in "bc"} == {"b": "b", "c": "c"}
    assert any("taking over 2 jobs on flux" in text for text in flux.told)


def test_ctrl_c_cancels_the_whole_array(flux, tmp_path):
    def interrupt():
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 3, 60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    requests = key_requests(
        functions.of_key_slowly, "abc", lambda k: {"key": k, "folder": str(tmp_path), "seconds": 60}
    )
    with pytest.raises(KeyboardInterrupt) as caught:
        list(flux.run_many(requests))
    thread.join()
    assert getattr(caught.value, LEFT_RUNNING) is False
    assert states(flux) == ["CANCELLED"] * 3
