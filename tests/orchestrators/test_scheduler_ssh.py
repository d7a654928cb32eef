"""Builds as jobs that are submitted over SSH: a real sshd, and behind it the fake Flux."""

import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import job_functions as functions
import pytest
from array_requests import by_key, key_requests
from job_requests import IMPATIENT, MemoryJobs, job_request
from needs import library
from slurms import need_slurm
from sshd import FAKES, SshServer
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.errors import AssetBuildError, LaunchError, UsageError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators import submitting
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.choose import choose_scheduler, make_scheduler
from examlops_dagster.schedulers.folders import folders_of
from examlops_dagster.schedulers.script import quote
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_settings import ssh_settings

PATIENCE = replace(IMPATIENT, files=10.0, lost=60.0)


class Cluster:
    """What a submitter sees of a cluster that it reaches over SSH."""

    def __init__(self, server, here, there):
        self.server = server
        self.here = here
        self.there = there
        self.environment = {
            **os.environ,
            "EXAMLOPS_ASSET_JOB_DIR": str(here),
            "XDG_CACHE_HOME": str(server.folder / "cache"),
            "XDG_RUNTIME_DIR": "",
            "EXAMLOPS_HPC_SCHEDULER": "flux",
        }
        if there is not None:
            self.environment["EXAMLOPS_HPC_REMOTE_WORKDIR"] = str(there)
        self.jobs = MemoryJobs()
        self.told = []

    @property
    def runner(self):
        return SshRunner(ssh_settings(self.environment), self.environment)

    def orchestrator(self, **variables):
        environment = {**self.environment, **variables}
        return SchedulerOrchestrator(
            self.jobs, environment=environment, patience=PATIENCE, progress=self.told.append
        )

    def run(self, function, arguments=None, **how):
        return self.orchestrator().run(job_request(function, arguments, **how))

    def cut(self):
        """Kill the one connection."""
        socket = self.runner._socket()
        argv = ["ssh", "-o", f"ControlPath={socket}", "-O", "check", "127.0.0.1"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        os.kill(int(done.stderr.partition("pid=")[2].partition(")")[0]), signal.SIGKILL)


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    found = SshServer(tmp_path / "server")
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    yield found
    subprocess.run(
        ["flux", "cancel", "--all"], check=False, timeout=60, capture_output=True,
        env={**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}",
             "FAKE_FLUX": str(found.folder / "flux")},
    )  # fmt: skip
    found.stop()


@pytest.fixture(params=["shared", "staged"])
def cluster(request, server, awkward_path):
    there = awkward_path / "work there" if request.param == "staged" else None
    found = Cluster(server, awkward_path / "jobs here", there)
    yield found
    found.runner.close()


@pytest.fixture
def staged(server, awkward_path):
    found = Cluster(server, awkward_path / "jobs here", awkward_path / "work there")
    yield found
    found.runner.close()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr(submitting, "SUBMIT_DELAY_SECONDS", 0.01)


def test_values_cross_both_ways_over_one_connection(cluster):
    pandas = library("pandas")
    request = job_request(functions.frame, {"table": pandas.DataFrame({"x": [1, 2]})})
    upstreams = (Upstream("table", parameter="table"),)
    object.__setattr__(request.declaration, "upstreams", upstreams)
    result = cluster.orchestrator().run(request)
    assert decode(result.value)["twice"].tolist() == [2, 4]
    assert result.provenance["scheduler"] == "flux"
    assert cluster.server.logins == 1
    row = cluster.jobs.only
    assert row.state == "COMPLETED"
    assert Path(row.folder).parent == cluster.here
    folder = folders_of(make_scheduler("flux", cluster.environment), {}).at(Path(row.folder))
    seen = cluster.there or cluster.here
    assert folder.there == seen / row.token
    for path in (seen, folder.there):
        assert path.stat().st_mode & 0o777 == (0o700 if path != cluster.here else 0o755)
    assert f"\nfolder={quote(str(folder.there))}\n" in (folder.there / "run.sh").read_text()


def test_a_failure_has_its_traceback_and_both_logs(cluster):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        cluster.run(functions.fails)
    for text in ("on stdout before", 'raise ValueError("this is why")', "scheduler: flux"):
        assert text in caught.value.details


def test_messages_of_pipes_and_hostile_names_come_across(cluster):
    heard = []
    result = cluster.run(
        functions.logs_to_pipes,
        name="it's;$(touch owned)/é",
        partition='a"b\nc',
        heard=lambda method, params: heard.append((method, params)),
    )
    assert decode(result.value) == {"partition": 'a"b\nc'}
    assert result.metadata["loss"] is not None
    assert "log" in [method for method, _ in heard]
    assert not list(cluster.server.folder.rglob("owned"))


def test_logs_come_while_the_job_runs(staged, tmp_path, capfd):
    request = job_request(functions.talks, {"folder": str(tmp_path)})
    caught = []
    thread = threading.Thread(target=lambda: caught.append(staged.orchestrator().run(request)))
    thread.start()
    shown = ""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "first line" not in shown:
        shown += capfd.readouterr().out
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (tmp_path / "go on").touch()
    thread.join(PATIENCE_SECONDS)
    assert "last line" in shown + capfd.readouterr().out
    assert decode(caught[0].value) == "talked"


def test_a_connection_that_is_lost_while_a_job_runs_says_nothing_of_it(cluster, tmp_path):
    request = job_request(functions.talks, {"folder": str(tmp_path)})
    caught = []
    thread = threading.Thread(target=lambda: caught.append(cluster.orchestrator().run(request)))
    thread.start()
    wait_until(lambda: list(tmp_path.glob("started-*")))
    cluster.server.stop()
    cluster.cut()
    (tmp_path / "go on").touch()
    seen = (cluster.there or cluster.here) / cluster.jobs.only.token
    wait_until((seen / "exit.json").exists)  # the job ends, and nobody can say so
    if cluster.there is not None:
        assert thread.is_alive()
        assert cluster.jobs.only.state in ("PENDING", "RUNNING", "COMPLETING")
    cluster.server.start()
    thread.join(PATIENCE_SECONDS)
    assert decode(caught[0].value) == "talked"
    assert len(cluster.jobs.rows) == 1


def test_a_job_that_ended_unseen_is_adopted(cluster, tmp_path):
    first = cluster.orchestrator()
    (tmp_path / "go on").touch()
    arguments = {"folder": str(tmp_path)}

    class GoneError(BaseException):
        pass

    def gone(seconds):
        raise GoneError

    request = job_request(functions.talks, arguments, fingerprint="f")
    with pytest.raises(GoneError):
        first.run(replace(request, pause=gone, ends_job=lambda number: False))
    row = cluster.jobs.only
    seen = (cluster.there or cluster.here) / row.token
    wait_until((seen / "exit.json").exists)
    result = cluster.orchestrator().run(request)
    assert decode(result.value) == "talked"
    assert [r.state for r in cluster.jobs.rows.values()] == ["COMPLETED"]
    assert len(list(tmp_path.glob("started-*"))) == 1


def test_a_job_of_another_cluster_is_not_taken_over(staged, tmp_path):
    now = HpcJob(
        "0" * 32, "flux", datetime.now(timezone.utc), Node("numbers"),
        str(tmp_path / "elsewhere"), job_id="5", fingerprint="f", state="RUNNING",
        model="asset:numbers",
    )  # fmt: skip
    staged.jobs.record(now)
    result = staged.run(functions.versions, fingerprint="f")
    assert result.provenance["hpc_job_id"] != "5"
    assert len(staged.jobs.rows) == 2


def test_no_variable_of_the_submitter_reaches_the_job_but_those_that_are_named(
    cluster, monkeypatch
):
    cluster.environment |= {
        "SECRET_OF_THE_SUBMITTER": "s3cret",
        "WANDB_KEY": "wandb's",
        "EXAMLOPS_HPC_FORWARD_ENV": "WANDB_KEY",
    }
    monkeypatch.setenv("SECRET_OF_THE_SUBMITTER", "s3cret")
    request = replace(job_request(functions.environment), environment={"GIVEN": "for this job"})
    found = decode(cluster.orchestrator().run(request).value)
    assert found["GIVEN"] == "for this job"
    assert found["WANDB_KEY"] == "wandb's"
    assert found["OF_THE_PROFILE"] == "yes"
    assert "s3cret" not in str(found)
    assert not {n for n in found if n.startswith(("EXAMLOPS_HPC", "EXAMLOPS_SSH", "PYTEST"))}


def test_a_folder_that_the_other_host_does_not_see_is_told(server, tmp_path, monkeypatch):
    cluster = Cluster(server, tmp_path / "jobs here", None)
    scheduler = make_scheduler("flux", cluster.environment)
    monkeypatch.setattr(scheduler._runner, "run", _as_if_not_there(scheduler._runner.run))
    orchestrator = SchedulerOrchestrator(
        cluster.jobs, scheduler, cluster.environment, patience=PATIENCE
    )
    with pytest.raises(AssetBuildError, match=r"is not on 127\.0\.0\.1 → set EXAMLOPS_ASSET_JOB_"):
        orchestrator.run(job_request(functions.versions))
    cluster.runner.close()


def _as_if_not_there(run):
    return lambda script, *rest, **how: run(script.replace("jobs here", "nowhere"), *rest, **how)


def test_a_folder_that_cannot_be_copied_is_told(staged):
    staged.there.parent.mkdir(exist_ok=True)
    staged.there.write_text("a file is in the way")
    with pytest.raises(AssetBuildError, match="the job's folder cannot be copied to"):
        staged.run(functions.versions)


def test_a_mistake_is_told_once_and_nothing_is_built_here(staged):
    staged.environment["EXAMLOPS_HPC_SSH_KEY"] = str(staged.server.folder / "stranger")
    for named in ({}, {"EXAMLOPS_HPC_SCHEDULER": "flux"}):
        with pytest.raises(LaunchError, match="it refused the login") as caught:
            staged.orchestrator(**named).run(job_request(functions.versions))
        assert not caught.value.transient
    assert staged.jobs.rows == {}


def test_the_scheduler_is_the_one_that_the_other_host_has(server):
    tools = server.folder / "tools"
    tools.mkdir()
    for name in ("sh", "env", "python3", "base64"):
        (tools / name).symlink_to(shutil.which(name))
    server.profile(PATH=f"{FAKES}:{tools}", FAKE_FLUX=str(server.folder / "flux"))
    found = choose_scheduler()
    assert (found.name, found.reason) == ("flux", "a Flux instance of 2 brokers answers")
    server.profile(PATH=str(tools))
    assert choose_scheduler().reason == (
        "neither sbatch nor flux is on PATH of 127.0.0.1, in a login shell there, "
        "and EXAMLOPS_HPC_SCHEDULER is unset"
    )
    (tools / "sbatch").write_text("#!/bin/sh\n")
    (tools / "sbatch").chmod(0o700)
    found = choose_scheduler()
    assert (found.name, found.reason) == ("slurm", "sbatch is on PATH of 127.0.0.1")
    with pytest.raises(UsageError, match="the scheduler mock runs on this host only"):
        make_scheduler("mock")
    SshRunner(ssh_settings(os.environ)).close()


def test_many_keys_are_one_submission_and_each_has_its_own_files(cluster):
    arguments = {"arguments": lambda key: {"PM100": len(key)}}
    requests = key_requests(functions.versions, ["a", "bb", "ccc"], **arguments)
    found = by_key(cluster.orchestrator().run_many(requests))
    assert {key: decode(r.value)["upstream"]["PM100"] for key, r in found.items()} == {
        "a": 1,
        "bb": 2,
        "ccc": 3,
    }
    assert len({row.token for row in cluster.jobs.rows.values()}) == 1
    assert cluster.server.logins == 1


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_real_slurm_is_reached_too(server, awkward_path, is_staged):
    need_slurm()
    server.profile(PATH=os.environ["PATH"], SLURM_CONF=os.environ["SLURM_CONF"])
    cluster = Cluster(server, awkward_path / "here", awkward_path / "there" if is_staged else None)
    cluster.environment["EXAMLOPS_HPC_SCHEDULER"] = ""
    result = cluster.run(functions.versions)
    assert decode(result.value)["upstream"] == {"PM100": 3}
    assert result.provenance["scheduler"] == "slurm"
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        cluster.run(functions.fails)
    assert "on stdout before" in caught.value.details
    assert server.logins == 1
    cluster.runner.close()
