"""The runner of external commands."""

import os
import signal
import sys

import pytest
from limits import once_begun
from waiting import is_alive, wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.commands import (
    Answer,
    clean_environment,
    command_timeout,
    require_answer,
    run_command,
)


def python(code):
    return [sys.executable, "-S", "-c", code]


def pid_in(folder):
    """Give the process that is noted there; None where nothing is yet."""
    path = folder / "pid"
    return int(path.read_text() or 0) if path.exists() else None


def test_the_answer_has_code_and_both_streams():
    answer = run_command(
        python("import sys; print('out'); sys.stderr.write('a\\n\\n b\\n'); sys.exit(3)")
    )
    assert (answer.code, answer.stdout, answer.words) == (3, "out\n", "a / b")
    assert answer.trouble == f"{sys.executable} ended with exit code 3: a / b"


def test_a_signal_and_silence_are_told():
    answer = run_command(["sh", "-c", "kill -9 $$"])
    assert answer.trouble == "sh ended with signal 9: (it said nothing)"


def test_bytes_that_are_no_text_are_replaced():
    assert run_command(["printf", r"a\377b"]).stdout == "a\ufffdb"


def test_the_arguments_reach_the_program_as_they_are():
    awkward = 'it\'s "a"; $HOME\n* \\'
    assert run_command(["printf", "%s", awkward]).stdout == awkward


def test_a_program_that_is_not_there_never_ran():
    with pytest.raises(LaunchError, match="nosuchprogram is not on PATH here") as caught:
        run_command(["nosuchprogram"])
    assert caught.value.transient is False


def test_a_program_that_cannot_be_started_is_told(tmp_path):
    program = tmp_path / "x"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(LaunchError, match="cannot be run") as caught:
        run_command([str(program)])
    assert caught.value.transient is False


def test_an_environment_that_is_too_long_is_told():
    with pytest.raises(LaunchError, match="too long"):
        run_command(["true"], environment={"PATH": "/bin", "X": "x" * 200_000})


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    def attempt(seconds):
        monkeypatch.setenv("EXAMLOPS_SLURM_CMD_TIMEOUT", str(seconds))
        with pytest.raises(LaunchError, match=rf"no answer within {seconds:g} s") as caught:
            run_command(["sh", "-c", f"sleep 600 & echo $! > '{tmp_path}/pid'; wait"])
        assert caught.value.transient is True
        return pid_in(tmp_path)

    child = once_begun(attempt)
    wait_until(lambda: not is_alive(child))


def test_a_child_that_left_the_group_does_not_hold_us(tmp_path, monkeypatch):
    leaves = "setsid sh -c 'echo $$ > pid; exec sleep 600'"

    def attempt(seconds):
        monkeypatch.setenv("EXAMLOPS_SLURM_CMD_TIMEOUT", str(seconds))
        with pytest.raises(LaunchError):
            run_command(["sh", "-c", f"cd '{tmp_path}'; {leaves}"])
        return pid_in(tmp_path)

    child = once_begun(attempt)
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)


def test_a_command_has_no_stdin_and_its_own_session():
    answer = run_command(
        python("import os, sys; print(sys.stdin.read() == '', os.getsid(0) == os.getpid())")
    )
    assert answer.stdout == "True True\n"


@pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_told_and_not_used(value, caplog):
    assert command_timeout({"EXAMLOPS_SLURM_CMD_TIMEOUT": value}) == 30
    assert value in caplog.text
    assert command_timeout({"EXAMLOPS_SLURM_CMD_TIMEOUT": "5"}) == 5
    assert command_timeout({}) == 30


def test_the_environment_loses_what_would_change_the_commands():
    dropped = dict.fromkeys(
        ("SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "SLURM_TIME_FORMAT", "SLURMD_NODENAME", "SQUEUE_FORMAT",
         "SACCT_FORMAT", "SBATCH_TIMELIMIT", "SCANCEL_USER", "PYTHONHOME"), "x",
    )  # fmt: skip
    kept = dict.fromkeys(
        (
            "SLURM_CONF",
            "SLURM_JWT",
            "SBATCH_ACCOUNT",
            "SBATCH_PARTITION",
            "SBATCH_QOS",
            "FLUX_URI",
            "PATH",
        ),
        "y",
    )
    assert clean_environment({**dropped, **kept}) == kept


def test_only_an_exit_code_of_0_is_an_answer():
    assert require_answer(Answer(("x",), 0, "out", "warning")) == "out"
    with pytest.raises(LaunchError) as caught:
        require_answer(Answer(("x",), 1, "out", ""))
    assert caught.value.transient is True
