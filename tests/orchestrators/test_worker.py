import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import worker_functions as functions
from build_requests import alive, pids_in, request
from waiting import wait_until

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.records import Node
from examlops_dagster.core.versions import content_version
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.calling import name_of, produce, resolve
from examlops_dagster.orchestrators.local import LocalOrchestrator

PATHS = os.pathsep.join(map(str, Path(__file__).parents[1:3]))


@pytest.fixture
def local():
    with LocalOrchestrator(grace_seconds=0.3) as orchestrator:
        yield orchestrator


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of the user, and import it anew."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text, name="users_module"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return write


def value_of(orchestrator, function, arguments=None, **more):
    return decode(orchestrator.run(request(function, arguments, **more)).value)


def test_the_worker_imports_no_dagster(local):
    assert value_of(local, functions.has_dagster) == []


def test_it_has_the_environment_and_the_folder_of_the_build(local, monkeypatch, tmp_path):
    monkeypatch.setenv("EXAMLOPS_TEST", "first")
    assert value_of(local, functions.surroundings, {"name": "EXAMLOPS_TEST"})[0] == "first"
    monkeypatch.setenv("EXAMLOPS_TEST", "second")
    monkeypatch.chdir(tmp_path)
    assert value_of(local, functions.surroundings, {"name": "EXAMLOPS_TEST"}) == [
        "second",
        str(tmp_path),
    ]
    monkeypatch.delenv("EXAMLOPS_TEST")
    assert value_of(local, functions.surroundings, {"name": "EXAMLOPS_TEST"})[0] is None


def test_the_hash_seed_is_not_seen_by_functions(local, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert value_of(local, functions.surroundings, {"name": "PYTHONHASHSEED"})[0] is None


def test_a_set_of_text_has_the_same_content_in_every_worker():
    hashes = set()
    for _ in range(2):
        with LocalOrchestrator() as orchestrator:
            hashes.add(content_version(orchestrator.run(request(functions.makes_a_set)).value))
    assert len(hashes) == 1


def test_an_edited_module_is_imported_anew(local, module):
    first = module("def build(): return 'old'")
    assert value_of(local, first.build) == "old"
    second = module("def build(): return 'edited'")
    assert value_of(local, second.build) == "edited"


def test_an_edited_helper_is_imported_anew(local, module):
    module("answer = 1", "users_helper")
    build = module("import users_helper\ndef build(): return users_helper.answer").build
    assert value_of(local, build) == 1
    module("answer = 1 + 1", "users_helper")
    assert value_of(local, build) == 2


def test_an_unedited_module_keeps_the_worker(local, module):
    build = module("import os\ndef build(): return os.getpid()").build
    assert value_of(local, build) == value_of(local, build)


def test_a_module_that_only_this_process_can_import_is_told(local, module):
    build = module(f"import os\nassert os.getpid() == {os.getpid()}\ndef build(): ...").build
    with pytest.raises(AssetBuildError, match="AssertionError") as caught:
        local.run(request(build))
    assert "users_module.py" in caught.value.details
    assert "importlib" not in caught.value.details


def test_a_module_loaded_from_a_file_outside_the_path_is_found(local, tmp_path):
    file = tmp_path / "loaded_by_path.py"
    file.write_text("def build(): return __file__")
    try:
        build = resolve("loaded_by_path:build", str(file))
        assert name_of(build) == "loaded_by_path:build"
        assert value_of(local, build) == str(file)
    finally:
        del sys.modules["loaded_by_path"]


def test_a_function_of_the_main_script_crosses_by_value(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            sys.path.insert(0, sys.argv[1])
            from build_requests import request
            from examlops_dagster.formats import decode
            from examlops_dagster.orchestrators.local import LocalOrchestrator
            print("main ran")

            class Row:
                def __init__(self, n):
                    self.n = n

            def build(row):
                return Row(row.n + 1)

            with LocalOrchestrator() as local:
                value = decode(local.run(request(build, {"row": Row(1)})).value)
                print(type(value) is Row, value.n)
            """
        )
    )
    assert run_script(script).stdout == "main ran\nTrue 2\n"


def test_a_script_that_does_not_close_leaves_nothing_and_warns_of_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            import worker_functions
            from build_requests import request
            from examlops_dagster.orchestrators.local import LocalOrchestrator
            local = LocalOrchestrator()
            print(local.run(request(worker_functions.pid)).value.payload.decode())
            """
        )
    )
    done = run_script(script)
    assert done.stderr == ""
    assert alive([int(done.stdout)]) == []


def run_script(script):
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("function", "count"), [("sleeps_with_children", 4), ("keeps_the_lock", 1)]
)
def test_killing_the_parent_ends_the_function_and_its_children(tmp_path, function, count):
    script = tmp_path / "script.py"
    folder = tmp_path / "pids"
    folder.mkdir()
    script.write_text(
        textwrap.dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            import worker_functions
            from build_requests import request
            from examlops_dagster.orchestrators.local import LocalOrchestrator
            build = request(getattr(worker_functions, sys.argv[3]), {"folder": sys.argv[2]})
            LocalOrchestrator().run(build)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(Path(__file__).parent), str(folder), function],
        env={**os.environ, "PYTHONPATH": PATHS},
        stderr=subprocess.PIPE,
    ) as parent:
        wait_until(lambda: len(pids_in(folder)) == count)
        assert len(alive(pids_in(folder))) == count
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: alive(pids_in(folder)) == [])


def test_a_name_stands_only_for_the_very_same_object():
    def inner(): ...

    assert name_of(functions.pid) == "worker_functions:pid"
    assert resolve("worker_functions:pid") is functions.pid
    assert name_of(inner) is None
    assert name_of(functions.BrokenError(None).__str__) is None
    inner.__module__, inner.__qualname__ = "worker_functions", "pid"
    assert name_of(inner) is None


def test_what_a_generator_yields_is_collected_in_order():
    outcome = produce(functions.yields, {}, node=Node("numbers"))
    assert outcome.events == (
        Metadata("s3://one", {"rows": 1}),
        Metadata("s3://two", alias="out"),
    )


def test_a_name_that_is_no_function_is_told():
    with pytest.raises(TypeError, match="worker_functions:os is a module"):
        resolve("worker_functions:os")
