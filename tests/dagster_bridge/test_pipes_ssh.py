"""Our Pipes clients at the other end of SSH: a real sshd, and behind it the fake Flux."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pipes_programs as programs
import pytest
import ssh_plain
from dagster import (
    AssetCheckSpec,
    MetadataValue,
    StaticPartitionsDefinition,
    asset,
)
from slurms import need_slurm
from sshd import FAKES, SshServer
from started_runs import end, running, start
from waiting import wait_until

from examlops_dagster import PipesFluxClient, PipesSlurmClient
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_settings import ssh_settings


@pytest.fixture
def server(home, tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    found = SshServer(tmp_path / "server")
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    yield found
    SshRunner(ssh_settings(os.environ)).close()
    subprocess.run(
        ["flux", "cancel", "--all"], check=False, timeout=60, capture_output=True,
        env={**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}",
             "FAKE_FLUX": str(found.folder / "flux")},
    )  # fmt: skip
    found.stop()


@pytest.fixture(params=["shared", "staged"])
def cluster(request, server, awkward_path, monkeypatch):
    """Give where the folders of jobs are on the other host."""
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(awkward_path / "jobs here"))
    if request.param == "shared":
        return awkward_path / "jobs here"
    monkeypatch.setenv("EXAMLOPS_HPC_REMOTE_WORKDIR", str(awkward_path / "work there"))
    return awkward_path / "work there"


def run(home, *assets, client=None, partition=None):
    found = ssh_plain.definitions(assets, client or PipesFluxClient())
    job = found.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=home.instance, raise_on_error=False, partition_key=partition
    )


def squares_of(home):
    script = programs.script(home, programs.DAGSTER_SLURM_SCRIPT)

    @asset(check_specs=[AssetCheckSpec("not_empty", asset="squares")])
    def squares(context, pipes: PipesFluxClient):
        return pipes.run(context=context, script=script, extras={"number": 4}).get_results()

    return squares


def test_a_script_speaks_to_the_run_over_one_connection(home, server, cluster):
    event, row = programs.assert_squares(home, run(home, squares_of(home)), "flux")
    assert event.metadata["examlops/hpc_folder"] == MetadataValue.path(row.folder)
    assert (cluster / row.token / "run.sh").exists()
    assert server.logins == 1


def test_a_program_that_fails_has_its_exception_and_its_logs(home, server, cluster):
    script = programs.script(home, "print('on stdout')\n" + programs.RAISES)

    @asset
    def bad(context, pipes: PipesFluxClient):
        return pipes.run(context=context, script=script).get_results()

    result = run(home, bad)
    failure = programs.failure_of(result)
    assert "ValueError: this is why" in failure.description
    assert "on stdout" in failure.description
    assert failure.metadata["examlops/hpc_state"].value == "FAILED"
    assert home.events("bad") == []


def test_setup_environment_and_partition_reach_the_program_and_nothing_else(
    home, server, cluster, awkward_path, monkeypatch
):
    said = awkward_path / "said"
    line = 'printf "%s|" "$FROM_SETUP" "$FROM_ENV" "$EXAMLOPS_PARTITION" "$SECRET" > "$0"'
    monkeypatch.setenv("SECRET", "of the submitter")

    @asset(partitions_def=StaticPartitionsDefinition(["a", "it's;$b"]))
    def told(context, pipes: PipesFluxClient):
        return pipes.run(
            context=context,
            command=["sh", "-c", line, said],
            setup="export FROM_SETUP=1",
            env={"FROM_ENV": "hush-hush"},
            resources={"time": "10m"},
        ).get_results()

    assert run(home, told, partition="it's;$b").success
    assert said.read_text() == "1|hush-hush|it's;$b||"
    [row] = programs.jobs_of(home)
    for folder in (Path(row.folder), cluster / row.token):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"hush-hush" not in path.read_bytes(), path


def test_a_script_is_the_one_of_the_other_hosts_repository(
    home, server, cluster, awkward_path, monkeypatch
):
    here, there = home.folder / "here", awkward_path / "repository there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "program.py").write_text(f"open({str(awkward_path / 'said')!r}, 'w')"
                                           f".write({folder.name!r})\n")  # fmt: skip
    (here / ".git").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("EXAMLOPS_HPC_REMOTE_REPO", str(there))
    monkeypatch.setenv("EXAMLOPS_HPC_REMOTE_PYTHON", sys.executable)

    @asset
    def moved(context, pipes: PipesFluxClient):
        return pipes.run(context=context, script="program.py").get_results()

    assert run(home, moved).success
    assert (awkward_path / "said").read_text() == "repository there"


def test_a_host_that_refuses_the_login_fails_the_step_and_says_why(
    home, server, cluster, monkeypatch
):
    monkeypatch.setenv("EXAMLOPS_HPC_SSH_KEY", str(server.folder / "stranger"))
    assert "it refused the login" in programs.failure_of(run(home, squares_of(home))).description
    assert programs.jobs_of(home) == []


# Interrupts, in a process of its own


def test_terminate_cancels_the_jobs_there(home, server, cluster, slow):
    process, found = start(home, ssh_plain, slow, count=ssh_plain.COUNT)
    home.instance.report_run_canceling(found)
    end(process, signal.SIGINT)
    wait_until(lambda: running(slow) == 0)
    assert {row.state for row in programs.jobs_of(home)} == {"CANCELLED"}


def test_a_retry_takes_up_the_jobs_that_outlived_their_run(home, server, cluster, slow):
    process, found = start(home, ssh_plain, slow, count=ssh_plain.COUNT)
    end(process, signal.SIGTERM)
    assert running(slow) == ssh_plain.COUNT
    (slow / "go").touch()
    again = ssh_plain.execute(home.instance, parent=found.run_id)
    assert again.status.value == "SUCCESS"
    started = {int(path.name.partition("-")[2]) for path in slow.glob("started-*")}
    names = [f"slow{n}" for n in range(ssh_plain.COUNT)]
    assert {event.metadata["pid"].value for n in names for event in home.events(n)} == started
    assert [row.state for row in programs.jobs_of(home)] == ["COMPLETED"] * ssh_plain.COUNT


# The real one


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_real_slurm_is_reached_too(home, server, awkward_path, monkeypatch, is_staged):
    need_slurm()
    server.profile(PATH=os.environ["PATH"], SLURM_CONF=os.environ["SLURM_CONF"])
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(awkward_path / "here"))
    if is_staged:
        monkeypatch.setenv("EXAMLOPS_HPC_REMOTE_WORKDIR", str(awkward_path / "there"))
    assert run(home, squares_of(home), client=PipesSlurmClient()).success
    [event] = home.events("squares")
    assert event.metadata["total"].value == 14
    assert event.metadata["examlops/scheduler"].value == "slurm"
