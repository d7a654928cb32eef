"""Jobs that are submitted over SSH from the command line, to the fake Flux behind a real sshd."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from sshd import FAKES, SshServer
from waiting import until_prunable, wait_until

from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_settings import ssh_settings

pytestmark = pytest.mark.slow

PIPELINE = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"], resources={"cpus_per_task": 2})
def features(**upstream):
    print("features from", upstream, flush=True)
    deadline = time.monotonic() + 600
    while (HERE / "slow").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"read": upstream["PM100"]}
"""


@pytest.fixture
def project(exa, tmp_path):
    """A project whose jobs are copied to another host."""
    (tmp_path / "server").mkdir()
    server = SshServer(tmp_path / "server")
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    exa("assets", "declare", "PM100")
    exa.server = server
    exa.there = tmp_path / "work there"
    exa.variables = server.variables(
        EXAMLOPS_HPC_REMOTE_WORKDIR=str(exa.there),
        EXAMLOPS_HPC_SCHEDULER="flux",
        EXAMLOPS_ASSET_ORCHESTRATOR="scheduler",
        XDG_RUNTIME_DIR="",
    )
    yield exa
    of_flux = {"PATH": f"{FAKES}:{os.environ['PATH']}", "FAKE_FLUX": str(server.folder / "flux")}
    subprocess.run(
        ["flux", "cancel", "--all"], env={**os.environ, **of_flux}, check=False, timeout=60,
        capture_output=True,
    )  # fmt: skip
    SshRunner(ssh_settings(exa.variables), exa.variables).close()
    server.stop()


def over_ssh(project, *words, **how):
    return project(*words, **{**project.variables, **how})


def the_job(project):
    [row] = project("hpc", "jobs", "--json").json
    return row


def test_a_slice_is_built_there_and_its_folder_can_be_pruned(project):
    done = over_ssh(project, "assets", "materialize", "features")
    assert done.out == "Materialized features: rebuilt PM100, features\n"
    assert json.loads(project("get", "features").out) == {"read": 1}
    row = the_job(project)
    assert (row["scheduler"], row["state"]) == ("flux", "COMPLETED")
    assert (project.there / row["token"] / "run.sh").exists()
    assert project.server.logins == 1
    assert "features from {'PM100': 1}" in project("hpc", "logs", "features").out  # all is here

    until_prunable()
    kept = project("hpc", "prune", "--older-than", "1s")
    assert kept.out == "Removed 0 job folders\n"
    assert "1 of their folders are on a host that was not reached" in kept.err
    assert over_ssh(project, "hpc", "prune", "--older-than", "1s").out == "Removed 1 job folder\n"
    assert list(project.there.iterdir()) == []
    assert not Path(row["folder"]).exists()


def test_a_running_job_shows_its_logs_and_can_be_cancelled_only_there(project):
    project.write("slow", "")
    command = project.start("assets", "materialize", "features", **project.variables)
    command.until("RUNNING")
    job_id = the_job(project)["job_id"]
    wait_until(lambda: "features from" in over_ssh(project, "hpc", "logs", job_id).out)
    elsewhere = project("hpc", "cancel", job_id, code=2)
    port = project.server.port
    assert (
        f"the job was submitted over SSH to 127.0.0.1:{port} → set "
        f"EXAMLOPS_HPC_SSH_HOST=127.0.0.1 EXAMLOPS_HPC_SSH_PORT={port}\n"
    ) in elsewhere.err
    for words in (("cancel",), ("logs",), ("logs", "--follow")):
        tunnel = over_ssh(project, "hpc", *words, job_id, code=2, EXAMLOPS_HPC_SSH_PORT="2299")
        assert f"127.0.0.1:{port} → set EXAMLOPS_HPC_SSH_PORT={port}\n" in tunnel.err
    assert "Cancelled job" in over_ssh(project, "hpc", "cancel", job_id).out
    assert "CANCELLED" in command.finish(code=1).err
    assert the_job(project)["state"] == "CANCELLED"


def test_a_mistake_is_told_once_with_its_remedy_and_nothing_is_submitted(project):
    wrong = {"EXAMLOPS_HPC_SSH_KEY": str(project.server.folder / "stranger")}
    done = over_ssh(project, "assets", "materialize", "features", code=1, **wrong)
    assert done.is_quiet
    told = [line for line in done.err.splitlines() if "Failed features" in line]
    assert len(told) == 1
    assert "no connection to 127.0.0.1: it refused the login → EXAMLOPS_HPC_SSH_USER" in told[0]
    assert project("hpc", "jobs", "--json").json == []

    unknown = over_ssh(
        project, "assets", "materialize", "features", code=1, EXAMLOPS_HPC_TRANSPORT="shh"
    )
    assert "EXAMLOPS_HPC_TRANSPORT=shh is unknown; known: local, ssh" in unknown.err
    assert unknown.is_quiet
