"""What is declared beside the function: overrides, ``code_deps`` and commands."""

import sys
import types
from pathlib import Path

import pytest
from source_reader import ASSET

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.errors import DefinitionError
from examlops_dagster.fingerprint import Fingerprints, code_version


def test_an_override_is_returned_unchanged():
    declaration = Declaration("x", code_version="v7", code_deps=("missing",))
    assert code_version(declaration) == "v7"


@pytest.fixture
def deps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def version(*code_deps: object, **more: object) -> str:
        declaration = Declaration("x", code_deps=code_deps, where="here.py:1", **more)
        return Fingerprints().code_version(declaration)

    return version


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_file_in_code_deps_counts(deps, tmp_path, as_path):
    (tmp_path / "query.sql").write_text("select 1")
    first = deps(as_path("query.sql"))
    (tmp_path / "query.sql").write_text("select 2")
    assert deps(as_path("query.sql")) != first


def test_a_folder_in_code_deps_counts_contents_and_names_but_not_its_place(deps, tmp_path):
    for folder, name, text in (("a", "q", "1"), ("b", "q", "1"), ("c", "r", "1"), ("d", "q", "2")):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / name).write_text(text)
    (tmp_path / "b" / "__pycache__").mkdir()
    (tmp_path / "b" / "__pycache__" / "x.pyc").write_text("")
    assert deps("a") == deps("b")
    assert len({deps(folder) for folder in "acd"}) == 3


def test_paths_in_code_deps_start_at_the_folder_of_the_function(read, tmp_path):
    source = f"{ASSET}@asset('x', code_deps='fp_query.sql')\ndef x(): return 1"
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "fp_query.sql").write_text("select 1")
    (declaration,) = read.declare(fp_assets=source)
    first = Fingerprints().code_version(declaration)
    (tmp_path / "0" / "fp_query.sql").write_text("select 2")
    assert Fingerprints().code_version(declaration) != first


def test_a_module_in_code_deps_counts_as_a_whole_without_comments(deps, tmp_path):
    def version(text: str) -> str:
        (tmp_path / "whole.py").write_text(text)
        module = types.ModuleType("whole")
        module.__file__ = str(tmp_path / "whole.py")
        return deps(module)

    first = version("A = 1\ndef f(): return 1\n")
    assert first == version("A = 1  # one\n\n\ndef f(): return 1\n")
    assert first != version("A = 1\ndef f(): return 2\n")


def test_a_package_in_code_deps_counts_all_its_python_files(deps, tmp_path):
    package = types.ModuleType("pkg")
    package.__path__ = [str(tmp_path / "pkg")]
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("A = 1\n")
    first = deps(package)
    (tmp_path / "pkg" / "data.txt").write_text("not counted")
    assert deps(package) == first
    (tmp_path / "pkg" / "b.py").write_text("B = 1\n")
    assert deps(package) != first


def test_functions_and_classes_in_code_deps_count(read):
    source = """
    import textwrap
    def helper(): return {}
    class Tool:
        rate = {}
    @asset("x", code_deps=[helper, Tool, textwrap.dedent])
    def x(): return 1
    """
    first = read.version(source.format(1, 1))
    assert first != read.version(source.format(2, 1))
    assert first != read.version(source.format(1, 2))


def test_missing_paths_in_code_deps_are_all_reported(deps):
    with pytest.raises(DefinitionError) as caught:
        deps("missing.sql", Path("gone"))
    assert [p.where for p in caught.value.problems] == ["here.py:1", "here.py:1"]
    assert "'missing.sql'" in str(caught.value)
    assert all(p.remedy for p in caught.value.problems)


def test_a_command_counts_its_words_and_the_files_it_names_and_not_the_function(deps, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    command = (sys.executable, "train.py", "--lr", "0.1")
    first = deps(command=command)
    assert first == deps(command=command, function=lambda: 5)
    assert first != deps(command=(*command[:3], "0.2"))
    script.write_text("print(2)")
    assert first != deps(command=command)


def test_the_interpreter_of_a_command_does_not_count(deps, monkeypatch):
    first = deps(command=(sys.executable, "-c", "pass"))
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert deps(command=(sys.executable, "-c", "pass")) == first
