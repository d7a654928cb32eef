import json
import os
import subprocess
import sys

import pytest

MODULE = """
import sys
from examlops_dagster import asset

not_callable = 1

@asset("model", deps=["PM100"])
def model(**upstream):
    assert "dagster" not in sys.modules
    return upstream

def fails(**upstream):
    raise RuntimeError("broken")

def closes(**upstream):
    sys.stdout.close()
    return 1

def forks(**upstream):
    import os
    pid = os.fork()
    if pid == 0:
        return "the child"
    os.waitpid(pid, 0)
    return "the parent"

def aborts_at_exit(**upstream):
    import atexit, ctypes
    atexit.register(print, "after it")
    libc = ctypes.CDLL(None)
    assert libc.on_exit(libc.abort, None) == 0
    return 1
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "user_module.py").write_text(MODULE)
    (tmp_path / "raises_at_import.py").write_text("raise ValueError('at import')")

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "examlops_dagster.schedulers.job", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_it_calls_the_function_with_the_versions(job):
    done = job("--asset", "m", "--entrypoint", "user_module:model", "--upstream", '{"PM100": 3}')
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == ["[asset-job] m: calling user_module:model", "[asset-job] m: built"]


def test_a_function_that_raises_is_1_with_its_traceback_on_stderr(job):
    done = job("--asset", "m", "--entrypoint", "user_module:fails")
    assert done.returncode == 1
    assert "[asset-job] m: RuntimeError: broken" in done.stderr
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--asset", "m"],
        ["--entrypoint", "user_module:model"],
        ["--asset", "m", "--entrypoint", "user_module:model; touch owned"],
        ["--asset", "m", "--entrypoint", "os.path"],
        ["--asset", "m", "--entrypoint", "user_module:model", "--upstream", "[1]"],
        ["--asset", "m", "--entrypoint", "user_module:model", "--upstream", '{"a": true}'],
        ["--asset", "m", "--entrypoint", "user_module:model", "--upstream", '{"a": "1"}'],
        ["--asset", "m", "--entrypoint", "user_module:model", "--upstream", "no json"],
        ["--asset", "m", "--entrypoint", "user_module:model", "--folder", "/no/such"],
        ["--asset", "m", "--entrypoint", "user_module:model", "--what"],
    ],
)
def test_bad_arguments_are_2(job, arguments):
    done = job(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("[asset-job] ")


@pytest.mark.parametrize(
    "entrypoint",
    ["user_module:missing", "no_such_module:f", "user_module:not_callable", "raises_at_import:f"],
)
def test_what_does_not_resolve_is_3(job, entrypoint):
    done = job("--asset", "m", "--entrypoint", entrypoint)
    assert done.returncode == 3
    assert f"[asset-job] {entrypoint} does not resolve" in done.stderr


def make_folder(tmp_path, **call):
    folder = tmp_path / "folder"
    (folder / "in").mkdir(parents=True)
    given = {"roots": [str(tmp_path)], "arguments": {}, "values": {}, **call}
    (folder / "in" / "call.json").write_text(json.dumps(given))
    return folder


def test_the_result_is_left_in_the_folder(job, tmp_path):
    folder = make_folder(tmp_path)
    done = job("--asset", "model", "--entrypoint", "user_module:model",
               "--upstream", '{"PM100": {"a": 1}}', "--folder", str(folder))  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["files"] == {"value": {"file": "value.json", "format": "json"}}
    assert json.loads((folder / "out" / "value.json").read_text()) == {"PM100": {"a": 1}}
    assert len(result["code_version"]) == 16


def test_the_error_says_that_it_was_the_import_that_failed(job, tmp_path):
    folder = make_folder(tmp_path)
    job("--asset", "m", "--entrypoint", "no_such_module:f", "--folder", str(folder))
    error = json.loads((folder / "out" / "error.json").read_text())
    assert error["reason"].startswith("no_such_module:f does not resolve: ModuleNotFoundError")


def test_a_function_may_close_its_stdout(job, tmp_path):
    folder = make_folder(tmp_path)
    done = job("--asset", "m", "--entrypoint", "user_module:closes", "--folder", str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "value.json").read_text() == "1"


def test_a_library_that_aborts_at_exit_makes_no_failure_of_what_was_built(job):
    done = job("--asset", "m", "--entrypoint", "user_module:aborts_at_exit")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["[asset-job] m: built", "after it"]


def test_a_module_of_a_file_is_loaded_from_there(job, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "json.py"  # a name that the standard library has too
    file.write_text("def f(**upstream):\n    return 'mine'\n")
    folder = make_folder(tmp_path, file=str(file))
    done = job("--asset", "m", "--entrypoint", "only_here:f", "--folder", str(folder))
    assert done.returncode == 0, done.stderr


def test_a_child_that_the_function_forks_leaves_nothing(job, tmp_path):
    folder = make_folder(tmp_path)
    done = job("--asset", "m", "--entrypoint", "user_module:forks", "--folder", str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "value.json").read_text() == '"the parent"'


def test_without_dagster_pipes_it_still_builds(job, tmp_path):
    (tmp_path / "dagster_pipes.py").write_text("raise ImportError('not on this node')")
    done = job("--asset", "m", "--entrypoint", "user_module:model", DAGSTER_PIPES_CONTEXT="x",
               DAGSTER_PIPES_MESSAGES="x")  # fmt: skip
    assert done.returncode == 0
    assert "[asset-job] without Dagster Pipes" in done.stderr


def test_importing_the_job_loads_neither_dagster_nor_a_database():
    code = (
        "import sys, examlops_dagster.schedulers.job\n"
        "print([n for n in ('dagster', 'sqlalchemy', 'sqlite3', 'psycopg', 'typer') "
        "if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"
