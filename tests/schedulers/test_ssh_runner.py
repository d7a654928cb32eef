"""Commands on another host: a real sshd on loopback, reached by the system's ssh."""

import os
import signal
import subprocess
import threading
import time

import pytest
from sshd import NOISE, SshServer
from waiting import is_alive, wait_until

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.commands import OF_QUERIES
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_settings import Transport, ssh_settings, transport_of

AWKWARD = ["it's", '"quoted"', "$HOME `id` $(id)", "two\nlines", "ünï", "*", "~", "", "-n", "a\\b"]


@pytest.fixture
def server(tmp_path, monkeypatch):
    found = SshServer(tmp_path)
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    yield found
    found.stop()


@pytest.fixture
def runner(server):
    found = SshRunner(ssh_settings(os.environ))
    yield found
    found.close()


def runner_with(**variables):
    return SshRunner(ssh_settings({**os.environ, **variables}))


def printed(runner, *argv, **how):
    answer = runner(argv, **how)
    assert (answer.code, answer.stderr) == (0, "")
    return answer.stdout


def master_of(runner):
    argv = ["ssh", "-o", f"ControlPath={runner._socket()}", "-O", "check", "127.0.0.1"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stderr
    return int(said.partition("pid=")[2].partition(")")[0])


def test_every_word_arrives_as_it_is(runner):
    assert printed(runner, "printf", r"%s\0", *AWKWARD) == "\0".join([*AWKWARD, ""])


def test_the_answer_is_what_the_command_said_and_nothing_of_the_profile(runner):
    answer = runner(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.code, answer.stdout, answer.stderr) == (3, "out\n", "err\n")
    assert NOISE not in answer.trouble
    assert runner(["sh", "-c", "printf no-newline; exit 255"]).code == 255
    assert runner(["sh", "-c", "kill -9 $$"]).code == -signal.SIGKILL
    assert runner(["printf", r"\377"]).stdout == "\ufffd"


def test_many_commands_take_one_connection(server, runner):
    threads = [threading.Thread(target=printed, args=(runner, "true")) for _ in range(12)]
    printed(runner, "true")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = SshRunner(runner.settings)  # as in another process
    printed(other, "true")
    assert (server.logins, server.sessions) == (1, 14)


def test_a_command_has_the_login_environment_there_and_what_is_forwarded(runner, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SUBMITTER", "s3cret")
    monkeypatch.setenv("WANDB_KEY", "wandb's\nkey")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("EXAMLOPS_HPC_FORWARD_ENV", "WANDB_*, OTHER")
    forwarding = runner_with(EXAMLOPS_HPC_FORWARD_ENV="WANDB_*, OTHER")
    given = {"WANDB_KEY": "of the job"}
    for found, key in (
        (printed(forwarding, "env", "-0", extra=OF_QUERIES), "wandb's\nkey"),
        (printed(forwarding, "env", "-0", environment=given, extra={"A": "1"}), "of the job"),
        (printed(runner, "env", "-0"), None),
    ):
        there = dict(line.split("=", 1) for line in found.split("\0") if line)
        assert there.get("WANDB_KEY") == key
        assert there["OF_THE_PROFILE"] == "yes"
        assert "s3cret" not in found
        assert not {n for n in there if n.startswith(("EXAMLOPS_", "SQUEUE_"))}
    assert printed(forwarding, "sh", "-c", "echo $TZ", extra=OF_QUERIES) == "UTC\n"


def test_habits_of_the_login_there_do_not_change_the_commands(server, runner):
    server.profile(PATH=os.environ["PATH"], SQUEUE_FORMAT="%i", SBATCH_TIMELIMIT="1",
                   SLURM_CONF="/etc/slurm.conf", SBATCH_ACCOUNT="lab")  # fmt: skip
    there = printed(runner, "env").splitlines()
    assert {line for line in there if line.startswith(("SQUEUE", "SBATCH", "SLURM"))} == {
        "SLURM_CONF=/etc/slurm.conf",
        "SBATCH_ACCOUNT=lab",
    }


def test_values_are_in_no_list_of_processes(runner):
    forwarding = runner_with(EXAMLOPS_HPC_FORWARD_ENV="KEY")
    listed = printed(forwarding, "ps", "axww", "-o", "args", environment={"KEY": "s3cret-value"})
    assert "s3cret-value" not in listed
    assert "ps axww" in listed


def test_a_program_that_is_not_there_is_told(runner):
    with pytest.raises(LaunchError, match=r"nosuch is not on PATH of 127\.0\.0\.1") as caught:
        runner(["nosuch"])
    assert caught.value.transient


def test_a_command_without_an_answer_is_ended_at_the_limit(runner, monkeypatch):
    printed(runner, "true")
    monkeypatch.setenv("EXAMLOPS_SLURM_CMD_TIMEOUT", "0.2")
    monkeypatch.setattr("examlops_dagster.schedulers.ssh.CONNECT_SECONDS", 1)
    started = time.monotonic()
    with pytest.raises(LaunchError, match=r"gave no answer within 1\.2 s") as caught:
        runner(["sleep", "600"])
    assert caught.value.transient
    assert time.monotonic() - started < 300


def test_a_connection_that_ends_is_made_again(server, runner):
    printed(runner, "true")
    os.kill(master_of(runner), signal.SIGKILL)
    assert printed(runner, "echo", "back") == "back\n"
    assert server.logins == 2


@pytest.mark.parametrize(("extra", "runs"), [(OF_QUERIES, 2), ({}, 1)])
def test_only_a_question_is_asked_again_where_the_connection_is_lost(runner, tmp_path, extra, runs):
    printed(runner, "true")
    program = tmp_path / "program"
    program.write_text(
        f"#!/bin/sh\necho run >> {tmp_path}/runs\n"
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done\necho said\n"
    )
    program.chmod(0o700)

    def cut():
        wait_until((tmp_path / "runs").exists)
        os.kill(master, signal.SIGKILL)
        wait_until(lambda: not is_alive(master))
        (tmp_path / "go").touch()

    master = master_of(runner)
    thread = threading.Thread(target=cut)
    thread.start()
    if runs == 1:
        with pytest.raises(LaunchError, match=r"the connection to 127\.0\.0\.1 failed") as caught:
            runner([str(program)], extra=extra)
        assert caught.value.transient
    else:
        assert runner([str(program)], extra=extra).stdout == "said\n"
    thread.join()
    assert (tmp_path / "runs").read_text().splitlines() == ["run"] * runs


def test_a_key_that_is_refused_is_told_with_the_remedy(server):
    with pytest.raises(LaunchError, match="it refused the login → EXAMLOPS_HPC_SSH_USER") as caught:
        runner_with(EXAMLOPS_HPC_SSH_KEY=str(server.folder / "stranger")).connect()
    assert not caught.value.transient
    assert f"ssh -p {server.port} -i {server.folder}/stranger 127.0.0.1 true" in str(caught.value)


def test_a_host_key_that_is_not_known_is_told_and_added_only_on_request(server):
    server.knows(None)
    with pytest.raises(LaunchError, match="its host key is not known here") as caught:
        runner_with().connect()
    assert not caught.value.transient
    trusting = runner_with(EXAMLOPS_SSH_AUTO_ADD_HOST_KEYS="yes")
    trusting.connect()
    trusting.close()
    runner = runner_with()  # it is known from now on
    runner.connect()
    runner.close()


def test_a_host_key_that_changed_is_never_trusted(server):
    server.knows(server.folder / "stranger.pub")
    with pytest.raises(LaunchError, match="another one than before") as caught:
        runner_with(EXAMLOPS_SSH_AUTO_ADD_HOST_KEYS="1").connect()
    assert not caught.value.transient


def test_a_host_that_does_not_exist_is_told(server):
    with pytest.raises(LaunchError, match="there is no such host → correct EXAMLOPS_HPC_SSH_HOST"):
        runner_with(EXAMLOPS_HPC_SSH_HOST="nosuch.invalid").connect()


def test_a_host_that_does_not_answer_may_answer_later(server):
    server.stop()
    with pytest.raises(LaunchError, match="Connection refused") as caught:
        runner_with().connect()
    assert caught.value.transient
    server.start()


def test_the_socket_is_in_a_folder_of_this_user_alone(runner):
    folder = runner._socket().parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(str(runner._socket())) < 80


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"EXAMLOPS_HPC_TRANSPORT": "shh"}, "EXAMLOPS_HPC_TRANSPORT=shh is unknown"),
        ({"EXAMLOPS_HPC_TRANSPORT": "ssh"}, "EXAMLOPS_HPC_SSH_HOST names no host"),
        ({"EXAMLOPS_HPC_SSH_HOST": "-oProxyCommand=x"}, "cannot be used"),
        ({"EXAMLOPS_HPC_SSH_HOST": "h", "EXAMLOPS_HPC_SSH_PORT": "x"}, "is no port"),
        ({"EXAMLOPS_HPC_SSH_HOST": "h", "EXAMLOPS_HPC_REMOTE_WORKDIR": "jobs"}, "absolute path"),
    ],
)
def test_a_variable_that_cannot_be_used_is_told(variables, told):
    with pytest.raises(UsageError, match=told):
        ssh_settings(variables)


def test_ssh_is_taken_where_a_host_is_named():
    assert transport_of({}) is Transport.LOCAL
    assert transport_of({"EXAMLOPS_HPC_SSH_HOST": "h"}) is Transport.SSH
    assert ssh_settings({"EXAMLOPS_HPC_SSH_HOST": "h", "EXAMLOPS_HPC_TRANSPORT": "local"}) is None
    found = ssh_settings({"EXAMLOPS_HPC_SSH_HOST": "h", "EXAMLOPS_HPC_SSH_USER": "me"})
    assert found.destination == "me@h"
