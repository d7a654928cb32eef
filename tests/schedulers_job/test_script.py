import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import once_begun
from waiting import PATIENCE_SECONDS, is_alive, wait_until

from examlops_dagster.schedulers import script as module
from examlops_dagster.schedulers.folder import JobFolder
from examlops_dagster.schedulers.script import (
    ScriptPlan,
    job_python,
    python_roots,
    quote,
    render,
    rerooted,
    write_script,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)


def start(tmp_path, argv, *, name="job", environment=None, **plan):
    folder = JobFolder(tmp_path / name)
    folder.make()
    text = render(ScriptPlan("numbers", "token1", folder.path, argv, **plan))
    write_script(folder.script, text)
    return folder, subprocess.Popen(
        ["bash", str(folder.script)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder.path,
        start_new_session=True,
    )


def run(tmp_path, argv, **plan):
    folder, process = start(tmp_path, argv, **plan)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return folder, process.returncode, out.decode(errors="surrogateescape"), err.decode()


@settings(max_examples=15)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_every_value_survives_quoting_on_one_line(words):
    quoted = " ".join(map(quote, words))
    assert "\n" not in quoted
    assert "\r" not in quoted
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {quoted}"], capture_output=True, check=True, timeout=300
    )
    assert done.stdout.decode().split("\0")[:-1] == words


def test_plain_values_stay_readable():
    assert quote("a b") == shlex.quote("a b")
    assert quote("plain-1.2/x") == "plain-1.2/x"
    assert quote("") == "''"


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_end_is_recorded_with_the_token(tmp_path, code):
    folder, returned, *_ = run(tmp_path, ["sh", "-c", f"exit {code}"])
    assert returned == code
    found = folder.exit("token1")
    assert (found.code, found.signal, found.limit_reached) == (code, "", False)
    assert found.host
    assert abs(found.time.timestamp() - time.time()) < 600
    assert folder.exit("another") is None
    assert [p.name for p in folder.path.iterdir() if p.name.startswith(".")] == []


def test_a_program_that_is_not_there_is_recorded(tmp_path):
    folder, *_ = run(tmp_path, ["/no/such/program"])
    assert folder.exit("token1").code == 127


@pytest.mark.parametrize("limit", [None, 500])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_recorded(tmp_path, number, limit):
    # at once: timeout(1) passes a signal on twice, and the second one kills an interpreter that exits
    program = (
        "import os, signal, time\n"
        f"signal.signal({int(number)}, lambda *_: os._exit(9))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(600)\n"
    )
    folder, process = start(tmp_path, [sys.executable, "-c", program], limit_seconds=limit)
    wait_until((folder.path / "ready").exists)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)
    found = folder.exit("token1")
    assert (found.code, found.signal) == (9, number.name.removeprefix("SIG"))
    assert not found.is_clean


@pytest.mark.parametrize("limit", [None, 500])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM])
def test_the_end_that_a_scheduler_asks_for_reaches_the_children_too(tmp_path, number, limit):
    argv = ["sh", "-c", "sleep 601 & echo $! > new; mv new child; wait"]
    folder, process = start(tmp_path, argv, limit_seconds=limit)
    wait_until((folder.path / "child").exists)
    child = int((folder.path / "child").read_text())
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: not is_alive(child))
    found = folder.exit("token1")
    assert found.code in (124, 143)
    assert (found.signal, found.limit_reached) == (number.name.removeprefix("SIG"), False)


def test_a_program_that_reads_its_input_finds_the_end_of_it(tmp_path):
    read, write = os.pipe()
    folder = JobFolder(tmp_path / "job")
    folder.make()
    write_script(folder.script, render(ScriptPlan("a", "t", folder.path, ["cat"])))
    subprocess.run(["bash", str(folder.script)], stdin=read, timeout=300, check=True)
    os.close(read)
    os.close(write)


def test_a_signal_during_set_up_is_recorded(tmp_path):
    setup = ["touch ready", "while [ ! -e go ]; do sleep 0.1; done"]
    folder, process = start(tmp_path, ["true"], setup=setup)
    wait_until((folder.path / "ready").exists)
    process.send_signal(signal.SIGTERM)
    (folder.path / "go").touch()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert folder.exit("token1").code == 143


@pytest.mark.parametrize("limit", [2, 1.5])
def test_the_limit_ends_the_program_and_its_children(tmp_path, limit):
    argv = ["sh", "-c", "sleep 601 & echo $! > new; mv new child; wait"]

    def attempt(seconds):
        folder, *_ = run(tmp_path, argv, name=f"{seconds}", limit_seconds=seconds)
        found = folder.exit("token1")
        assert (found.code, found.limit_reached) == (124, True)
        path = folder.path / "child"
        return int(path.read_text()) if path.exists() else None

    child = once_begun(attempt, limit)
    wait_until(lambda: not is_alive(child))


def test_a_set_up_that_ends_the_job_is_no_success_of_its_program(tmp_path):
    folder, code, _, err = run(tmp_path, ["touch", "ran"], setup=["exit 0"])
    assert code == folder.exit("token1").code == 126
    assert "before its program was started" in err
    assert not (folder.path / "ran").exists()


def test_set_up_lines_run_before_with_their_own_variables(tmp_path):
    setup = ['echo "$NOT_SET"', "export LOADED=yes"]
    _, code, out, _ = run(tmp_path, ["sh", "-c", "echo $LOADED"], setup=setup)
    assert (code, out) == (0, "\nyes\n")
    folder, code, *_ = run(tmp_path, ["true"], name="bad", setup=["false"])
    assert folder.exit("token1").code == code == 1


def test_what_an_attempt_before_left_is_put_aside(tmp_path):
    folder, code, *_ = run(tmp_path, ["sh", "-c", "exit 3"])
    folder.messages.write_text("old\n")
    folder.outputs.mkdir()
    (folder.outputs / "result.json").write_text("{}")
    subprocess.run(["bash", str(folder.script)], check=False, cwd=folder.path, timeout=300)
    assert code == folder.exit("token1").code == 3
    assert not folder.messages.exists()
    assert not folder.outputs.exists()
    assert len(list(folder.path.glob("*.before.*"))) == 3


def test_tasks_of_an_array_know_their_index_and_write_files_of_their_own(tmp_path):
    folder = JobFolder(tmp_path / "job")
    folder.make()
    argv = ["sh", "-c", 'echo "$EXAMLOPS_PARTITION $2"', "sh"]
    plan = ScriptPlan("a", "t", folder.path, argv, scheduler="slurm", is_array=True)
    write_script(folder.script, render(plan))
    for index, key in ((1000, "jan"), (1002, "it's")):
        task = JobFolder(folder.path, index)
        task.inputs.mkdir()
        (task.inputs / "variables.sh").write_text(f"export EXAMLOPS_PARTITION={quote(key)}\n")
        environment = {
            **os.environ,
            "SLURM_ARRAY_TASK_ID": str(index - 1000),
            "EXAMLOPS_ARRAY_OFFSET": "1000",
        }
        done = subprocess.run(
            ["bash", str(folder.script)],
            env=environment,
            capture_output=True,
            check=True,
            text=True,
            timeout=300,
        )
        assert done.stdout == f"{key} {index}\n"
        assert task.exit("t").code == 0
    assert folder.exit("t") is None


def test_the_title_cannot_leave_its_comment(tmp_path):
    folder = JobFolder(tmp_path / "job")
    title = "x\n#SBATCH --wrap=oops\r$(touch owned)"
    text = render(ScriptPlan(title, "t", folder.path, ["true"]))
    assert text.splitlines()[1] == f"# asset {json.dumps(title)}"
    assert text.splitlines()[2] == "set -euo pipefail"


def test_the_interpreter_is_the_named_one_else_of_the_repository_else_this_one():
    assert job_python({}) == sys.executable
    repository = {"EXAMLOPS_HPC_REMOTE_REPO": "/far/repo"}
    assert job_python(repository) == "/far/repo/.venv/bin/python"
    named = {**repository, "EXAMLOPS_HPC_REMOTE_PYTHON": "/far/python"}
    assert job_python(named) == "/far/python"


def test_our_package_comes_first_and_site_packages_go_to_their_interpreter_alone(monkeypatch):
    ours = str(Path(module.__file__).resolve().parents[2])
    assert python_roots("/x/src", None, {}) == [ours, "/x/src"]
    assert python_roots(ours, None, {}) == [ours]
    installed = "/env/lib/python3.11/site-packages"
    assert python_roots(installed, None, {}) == [ours, installed]
    other = {"EXAMLOPS_HPC_REMOTE_PYTHON": "/other/python"}
    assert python_roots(installed, None, other) == [ours]
    monkeypatch.setattr(sys, "path", ["/here", *sys.path])
    assert python_roots("/x/src", "/here", {}) == [ours, "/x/src", "/here"]


def test_paths_of_the_repository_are_rerooted(tmp_path):
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/src").mkdir()
    environment = {"EXAMLOPS_HPC_REMOTE_REPO": "/far/repo"}
    assert rerooted(str(tmp_path / "repo/src"), environment) == "/far/repo/src"
    assert rerooted(str(tmp_path), environment) == str(tmp_path)
    assert rerooted(str(tmp_path / "repo/src"), {}) == str(tmp_path / "repo/src")


def test_an_inherited_path_comes_after_ours(tmp_path):
    code = "import os; print(os.environ['PYTHONPATH'])"
    folder, process = start(
        tmp_path,
        [sys.executable, "-c", code],
        roots=["/a b", "/c"],
        environment={"PYTHONPATH": "/inherited"},
    )
    out, _ = process.communicate(timeout=300)
    assert out.decode() == "/a b:/c:/inherited\n"
    assert "/inherited" not in folder.script.read_text()
