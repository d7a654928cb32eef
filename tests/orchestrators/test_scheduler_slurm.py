"""The situation table of the first seed on a real Slurm (tests/cluster/with-slurm)."""

import os
import signal
import subprocess
import threading

import job_functions as functions
import pytest
from job_requests import MemoryJobs, job_request
from needs import library
from slurms import need_slurm
from waiting import wait_until

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.errors import AssetBuildError, BuildCancelledError, BuildTimeoutError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


@pytest.fixture
def slurm(awkward_path):
    need_slurm()
    environment = {
        **os.environ,
        "EXAMLOPS_ASSET_JOB_DIR": str(awkward_path / "jobs"),
        "XDG_CACHE_HOME": str(awkward_path / "cache"),
        "XDG_RUNTIME_DIR": "",
        "EXAMLOPS_HPC_SCHEDULER": "slurm",
    }
    return SchedulerOrchestrator(MemoryJobs(), environment=environment)


def test_values_cross_both_ways(slurm):
    pandas = library("pandas")
    request = job_request(functions.frame, {"table": pandas.DataFrame({"x": [1, 2]})})
    upstreams = (Upstream("table", parameter="table"),)
    object.__setattr__(request.declaration, "upstreams", upstreams)
    result = slurm.run(request)
    assert decode(result.value)["twice"].tolist() == [2, 4]
    assert result.provenance["scheduler"] == "slurm"
    assert result.provenance["hpc_job_id"].isdigit()


def test_a_failure_has_its_traceback_and_both_logs(slurm):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        slurm.run(job_request(functions.fails))
    assert "on stdout before" in caught.value.details
    assert 'raise ValueError("this is why")' in caught.value.details


def test_a_limit_is_kept_to_the_second(slurm, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 600}
    with pytest.raises(BuildTimeoutError, match="ended TIMEOUT"):
        slurm.run(job_request(functions.sleeps, arguments, timeout_seconds=2.0))


def test_a_refusal_is_told_and_nothing_runs_here(slurm):
    with pytest.raises(AssetBuildError, match=r"slurm refused the job .*nosuch"):
        slurm.run(job_request(functions.versions, resources={"partition": "nosuch"}))


@pytest.mark.parametrize("by_us", [True, False])
def test_a_cancelled_job_is_gone(slurm, tmp_path, by_us):
    def cancel():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        if by_us:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            subprocess.run(["scancel", slurm.jobs.only.job_id], check=True, timeout=60)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(KeyboardInterrupt if by_us else BuildCancelledError):
        slurm.run(job_request(functions.sleeps, {"folder": str(tmp_path), "seconds": 600}))
    thread.join()
    job_id = slurm.jobs.only.job_id
    argv = ["squeue", "-h", "-t", "PD,R,CG", "-o", "%i"]
    found = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert job_id not in found.stdout.split()
    assert slurm.jobs.only.state == "CANCELLED"


def test_a_job_that_takes_more_memory_than_it_asked_for_is_a_failure_that_says_so(slurm):
    request = job_request(functions.takes_memory, {"mebibytes": 400}, resources={"mem": "100M"})
    with pytest.raises(AssetBuildError, match=r"ended (FAILED|OUT_OF_MEMORY)") as caught:
        slurm.run(request)
    assert "memory" in caught.value.details.lower()
    assert slurm.jobs.only.state in ("FAILED", "OUT_OF_MEMORY")


def test_a_job_that_can_never_start_is_refused_and_gone(slurm):
    request = job_request(functions.versions, resources={"time": "2:00:00", "partition": "short"})
    with pytest.raises(AssetBuildError, match=r"ended REFUSED .*PartitionTimeLimit|refused"):
        slurm.run(request)
    job_id = slurm.jobs.only.job_id
    assert not job_id or job_id not in queue()


@pytest.mark.alone
def test_a_job_on_a_node_that_fails_is_tried_again_on_another(slurm, tmp_path):
    failed = []

    def fail():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        command = ["squeue", "-h", "-j", slurm.jobs.only.job_id, "-o", "%N"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        failed.append(answer.stdout.strip())
        set_node(failed[0], "down")
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
        (tmp_path / "go on").touch()

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        result = slurm.run(job_request(functions.talks, {"folder": str(tmp_path)}))
    finally:
        thread.join()
        set_node(failed[0], "resume")
    assert decode(result.value) == "talked"
    assert result.provenance["node"] not in failed
    assert [row.state for row in slurm.jobs.rows.values()] == ["NODE_FAIL", "COMPLETED"]


def set_node(node, state):
    command = ["scontrol", "update", f"nodename={node}", f"state={state}", "reason=test"]
    subprocess.run(command, check=state == "down", capture_output=True, timeout=60)


def queue():
    command = ["squeue", "-h", "-t", "PD,R,CG", "-o", "%i"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return answer.stdout.split()
