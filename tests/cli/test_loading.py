"""Which modules a command loads, and what it says of those that cannot be loaded."""

import pytest

MODULE = "from examlops_dagster import asset\n\n@asset\ndef {name}(): ...\n"


@pytest.fixture(scope="module")
def modules(shared):
    for name in ("one", "two", "three"):
        shared.write(f"{name}.py", MODULE.format(name=f"of_{name}"))
    (shared.folder / "package").mkdir()
    shared.write("package/__init__.py", "")
    shared.write("package/inner.py", MODULE.format(name="of_inner"))
    (shared.folder / "scripts").mkdir()
    shared.write("scripts/helper_of_four.py", "NAME = 'of_four'\n")
    shared.write(
        "scripts/four.py",
        "from helper_of_four import NAME\n"
        + MODULE.format(name="made").replace("@asset\n", "@asset(NAME)\n"),
    )
    return shared


def loaded(exa, *words, cwd=None, **environment):
    return set(exa(*words, "--json", cwd=cwd, **environment).json)


def test_modules_and_files_are_named_before_and_after_the_command(modules):
    graph = ("assets", "graph")
    assert loaded(modules, *graph) == set()
    assert loaded(modules, "-m", "one", *graph) == {"of_one"}
    assert loaded(modules, *graph, "-m", "one") == {"of_one"}
    assert loaded(modules, "-m", "one", "--module", "two", *graph) == {"of_one", "of_two"}
    assert loaded(modules, "-m", "one", *graph, "-m", "two") == {"of_two"}
    assert loaded(modules, *graph, "-m", "package.inner") == {"of_inner"}
    assert loaded(modules, "-f", "scripts/four.py", *graph) == {"of_four"}
    assert loaded(modules, *graph, "--file", str(modules.folder / "one.py")) == {"of_one"}
    assert loaded(modules, *graph, "-f", "one.py", "-m", "two") == {"of_one", "of_two"}
    for words in (("--json", *graph), (*graph, "--json"), ("--json", *graph, "--json")):
        assert modules("-m", "one", *words).json == {"of_one": []}


def test_without_m_and_f_the_configured_modules_are_loaded(modules, exa):
    graph = ("assets", "graph")
    assert loaded(modules, *graph, EXAMLOPS_MODULES="one, two") == {"of_one", "of_two"}
    assert loaded(modules, "-m", "three", *graph, EXAMLOPS_MODULES="one") == {"of_three"}
    for name in ("one", "two"):
        exa.write(f"{name}.py", MODULE.format(name=f"of_{name}"))
    exa.write("pyproject.toml", '[tool.examlops]\nmodules = ["one"]\n')
    exa("init")
    assert loaded(exa, *graph) == {"of_one"}
    assert loaded(exa, *graph, EXAMLOPS_MODULES="two") == {"of_two"}
    below = exa.folder / "below"
    below.mkdir()
    assert loaded(exa, *graph, cwd=below) == {"of_one"}
    exa.write("pyproject.toml", '[tool.examlops]\nmodules = "two"\n')
    assert loaded(exa, *graph) == {"of_two"}
    exa.write("pyproject.toml", "[tool.examlops]\nmodules = 3\n")
    assert "modules" in exa(*graph, code=2).err
    exa.write("pyproject.toml", "[tool.examlops]\nmodules = [\n")
    broken = exa(*graph, code=2)
    assert "pyproject.toml: cannot be read" in broken.err
    assert broken.is_quiet


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-m", "nosuch"), "no module named 'nosuch' → -m takes a module importable from here"),
        (("-m", "package.nosuch"), "no module named 'package.nosuch'"),
        (("-m", "one.py"), "no module named 'one.py'"),
        (("-m", "./one.py"), "no module named './one.py'"),
        (("-f", "nosuch.py"), "-f nosuch.py: no such file"),
        (("-f", "scripts"), "-f scripts: no such file"),
        (("-m", ""), "no module named ''"),
    ],
)
def test_a_module_that_does_not_exist_is_told(modules, words, told):
    done = modules(*words, "assets", "status", code=2)
    assert told in done.err
    assert done.out == ""
    assert done.is_quiet


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("x = 1\ndef broken(:\n", 2, "cannot import bad: invalid syntax"),
        ("x = 1\n\n1 / 0\n", 3, "cannot import bad: ZeroDivisionError: division by zero"),
        ("import json\n\njson.loads('{')\n", 3, "cannot import bad: JSONDecodeError"),
        ("import nosuch.thing\n", 1, "cannot import bad: ModuleNotFoundError: No module named"),
        ("raise SystemExit('no licence')\n", 1, "cannot import bad: SystemExit: no licence"),
        ("from examlops_dagster import nosuch\n", 1, "cannot import bad: ImportError"),
        (
            "from examlops_dagster import asset\n\n\n@asset(dep=['x'])\ndef a(): ...\n",
            4,
            "cannot import bad: TypeError: @asset takes no dep; did you mean deps?",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_file_and_line(modules, text, line, told):
    path = modules.write("bad.py", text)
    done = modules("assets", "status", "--json", "-m", "bad", code=2)
    assert f"{path}:{line}: {told}" in done.err
    assert done.json["exit_code"] == 2
    assert told in done.json["error"]
    assert done.is_quiet


def test_a_file_that_cannot_be_imported_is_told_too(modules):
    path = modules.write("worse.py", "1 / 0\n")
    done = modules("-f", "worse.py", "assets", "materialize", "x", code=2)
    assert f"{path}:1: cannot import worse: ZeroDivisionError" in done.err
    assert done.out == ""
    assert done.is_quiet


def test_a_module_of_which_no_line_runs_is_told_with_its_file(modules):
    path = modules.write("binary.py", "\0")
    done = modules("-m", "binary", "assets", "status", code=2)
    assert str(path) in done.err
    assert "cannot import binary: " in done.err
    assert done.is_quiet


def test_problems_are_told_in_the_order_of_their_lines(modules):
    text = "from examlops_dagster import asset\n"
    text += "".join(f"@asset(deps=['no{n}'])\ndef a{n}(): ...\n" for n in range(6))
    modules.write("many.py", text)
    done = modules("-m", "many", "assets", "status", code=2)
    told = [line for line in done.err.splitlines() if "unknown upstream" in line]
    assert [line.split("unknown upstream ")[1][:5] for line in told] == [
        f"'no{n}'" for n in range(6)
    ]
