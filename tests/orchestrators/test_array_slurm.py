"""Many keys as one submission on a real Slurm (tests/cluster/with-slurm)."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import job_functions as functions
import pytest
from array_requests import by_key, key_requests
from job_requests import MemoryJobs
from slurms import need_slurm
from waiting import wait_until

from examlops_dagster.core.seams import LEFT_RUNNING
from examlops_dagster.errors import AssetBuildError, BuildCancelledError, LaunchError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.slurm import SlurmScheduler

KEYS = [f"k{n}" for n in range(30)]


class Counting(SlurmScheduler):
    """Counts its submits, and may lose a reply."""

    def __init__(self, max_array_size=None, loses=0):
        super().__init__()
        self._max_array_size = max_array_size
        self.loses = loses
        self.sbatches = []

    def _sbatch(self, argv, environment):
        answer = super()._sbatch(argv, environment)
        self.sbatches.append(argv)
        if len(self.sbatches) == self.loses:
            raise LaunchError("Socket timed out on send/recv operation", transient=True)
        return answer


class Cluster:
    def __init__(self, folder):
        self.environment = {
            **os.environ,
            "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": "",
        }
        self.jobs = MemoryJobs()
        self.told = []

    def run(self, requests, scheduler=None):
        scheduler = scheduler or Counting()
        orchestrator = SchedulerOrchestrator(
            self.jobs, scheduler, self.environment, progress=self.told.append
        )
        return orchestrator.run_many(requests)

    @property
    def ids(self):
        return {row.job_id.partition("_")[0] for row in self.jobs.rows.values()}


@pytest.fixture
def cluster(tmp_path):
    need_slurm()
    folder = tmp_path / "a folder with spaces, 'quotes' and %a"
    folder.mkdir()
    found = Cluster(folder)
    yield found
    if left := sorted(found.ids - {""}):
        subprocess.run(["scancel", *left], check=False, timeout=60)


def queue():
    found = subprocess.run(
        ["squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%F"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(found.stdout.split())


def waiting(folder, keys, waits=lambda _: True):
    return key_requests(
        functions.of_key_waiting,
        keys,
        lambda key: {"key": key, "folder": str(folder), "waits": waits(key)},
    )


def test_thirty_keys_are_one_submission_and_a_bad_one_fails_alone(cluster):
    scheduler = Counting()
    keys = [*KEYS[:29], "bad"]
    found = by_key(cluster.run(key_requests(functions.of_key, keys), scheduler))
    assert len(scheduler.sbatches) == 1, cluster.told
    error = found.pop("bad")
    assert "ValueError: bad is no good" in error.reason
    assert "building bad" in error.details
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in keys[:29]}
    [number] = cluster.ids
    assert found["k7"].provenance["hpc_job_id"] == f"{number}_7"
    assert found["k7"].provenance["node"].startswith("node")


def test_an_array_beyond_max_array_size_is_split(cluster):
    scheduler = Counting(max_array_size=10)
    found = by_key(cluster.run(key_requests(functions.of_key, KEYS[:25]), scheduler))
    assert len(scheduler.sbatches) == 3, cluster.told
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in KEYS[:25]}
    assert len(cluster.ids) == 3
    rows = {row.node.partition: row for row in cluster.jobs.rows.values()}
    assert rows["k24"].job_id.endswith("_4")
    assert rows["k24"].array_index == 24


@pytest.mark.parametrize("loses", [1, 2])
def test_a_lost_reply_submits_only_what_is_missing(cluster, loses):
    scheduler = Counting(max_array_size=10, loses=loses)
    found = by_key(cluster.run(key_requests(functions.of_key, KEYS[:15]), scheduler))
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in KEYS[:15]}
    assert len(scheduler.sbatches) == 2, cluster.told
    assert len(cluster.ids) == 2


@pytest.mark.parametrize("by_us", [True, False])
def test_a_cancelled_array_is_gone(cluster, tmp_path, by_us):
    def cancel():
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) >= 4)
        if by_us:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            subprocess.run(["scancel", *cluster.ids], check=True, timeout=60)

    thread = threading.Thread(target=cancel)
    thread.start()
    results = cluster.run(waiting(tmp_path, KEYS[:6]))
    if by_us:
        with pytest.raises(KeyboardInterrupt) as caught:
            list(results)
        assert getattr(caught.value, LEFT_RUNNING) is False
    else:
        assert {type(error) for error in by_key(results).values()} == {BuildCancelledError}
    thread.join()
    assert not cluster.ids & queue()
    assert {row.state for row in cluster.jobs.rows.values()} == {"CANCELLED"}


@pytest.mark.alone
def test_a_task_on_a_node_that_fails_is_tried_again_alone_on_another(cluster, tmp_path):
    failed, starts = [], tmp_path / "started-a"

    def row_of_a():
        return next(r for r in cluster.jobs.rows.values() if r.node.partition == "a")

    def fail():
        wait_until(lambda: starts.exists() and row_of_a().job_id)
        # the others may be on the same node, and would fail with it
        wait_until(lambda: [r.state for r in cluster.jobs.rows.values()].count("COMPLETED") == 2)
        row = row_of_a()
        node = subprocess.run(
            ["squeue", "-h", "-j", row.job_id, "-o", "%N"],
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout.strip()  # fmt: skip
        failed.append(node)
        command = ["scontrol", "update", f"nodename={node}", "state=down", "reason=test"]
        subprocess.run(command, check=True, timeout=60)
        wait_until(lambda: len(starts.read_text().splitlines()) == 2)
        (tmp_path / "go on").touch()

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        found = by_key(cluster.run(waiting(tmp_path, "abc", lambda key: key == "a")))
    finally:
        thread.join()
        for node in failed:
            command = ["scontrol", "update", f"nodename={node}", "state=resume"]
            subprocess.run(command, check=False, timeout=60)
    assert decode(found["a"].value) == "a"
    assert found["a"].provenance["node"] not in failed
    assert len(cluster.ids) == 2
    states = sorted(row.state for row in cluster.jobs.rows.values())
    assert states == ["COMPLETED"] * 3 + ["NODE_FAIL"]


def test_a_refused_array_fails_each_key_and_runs_nowhere(cluster):
    requests = key_requests(functions.of_key, "abc", resources={"partition": "nosuch"})
    for error in by_key(cluster.run(requests)).values():
        assert isinstance(error, AssetBuildError)
        assert "slurm refused the job" in error.reason


PIPELINE = """\
import os
import time
from pathlib import Path

from examlops_dagster import asset, partitions

HERE = Path(__file__).parent


@asset(partitions={"k": partitions([f"k{n}" for n in range(30)])}, orchestrator="scheduler")
def parts(k):
    (HERE / f"building {k}").write_text("")
    deadline = time.monotonic() + 600
    while k == "k3" and not (HERE / "go on").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if k == "k5":
        raise ValueError("no good")
    with (HERE / "calls").open("a") as file:
        file.write(f"{k}\\n")
    return k
"""


def test_a_waiter_that_is_killed_is_followed_by_one_that_submits_nothing(cluster, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "pipeline.py").write_text(PIPELINE)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    environment = {
        **cluster.environment,
        "DAGSTER_HOME": str(home),
        "EXAMLOPS_MODULES": "pipeline",
        "EXAMLOPS_HPC_SCHEDULER": "slurm",
    }
    exa = str(Path(sys.executable).with_name("exa"))
    command = [exa, "assets", "materialize", "parts"]
    first = subprocess.Popen(command, cwd=home, env=environment, start_new_session=True)
    try:
        wait_until((home / "building k3").exists)
    finally:
        first.kill()
        first.wait(60)
        (home / "go on").touch()
    done = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "taking over" in done.stderr
    assert "submitted" not in done.stderr
    assert "Failed parts[k5]" in done.stderr
    calls = sorted((home / "calls").read_text().split())
    assert calls == sorted(f"k{n}" for n in range(30) if n != 5)
    folders = list((Path(environment["EXAMLOPS_ASSET_JOB_DIR"])).iterdir())
    assert len(folders) == 1
