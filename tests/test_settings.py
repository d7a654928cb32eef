"""The names of environment variables have one home, and README's table lists what people set."""

import ast
import re
from pathlib import Path

from examlops_dagster import settings
from examlops_dagster.settings import OF_EXAMLOPS, SETTINGS, TOLD_TO_PROGRAMS

CHECKOUT = Path(__file__).parents[1]
PACKAGE = CHECKOUT / "examlops_dagster"
BY_THEMSELVES = {"schedulers/mock_supervisor.py"}
"""Scripts that import nothing of the package."""

NAME = re.compile(r"(?<!_)EXAMLOPS_[A-Z0-9_]*[A-Z0-9]")


def texts_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]  # fmt: skip


def test_each_name_is_in_one_set():
    names = {n: v for n, v in vars(settings).items() if n.isupper() and isinstance(v, str)}
    assert names == {value.removeprefix("EXAMLOPS_"): value for value in names.values()}
    assert set(names.values()) == SETTINGS | TOLD_TO_PROGRAMS
    assert not SETTINGS & TOLD_TO_PROGRAMS
    assert not OF_EXAMLOPS & (SETTINGS | TOLD_TO_PROGRAMS)


def test_no_other_file_has_a_name_of_its_own():
    found = {
        f"{file}: {text}"
        for path in PACKAGE.rglob("*.py")
        if (file := path.relative_to(PACKAGE).as_posix()) not in {"settings.py", *BY_THEMSELVES}
        for text in texts_of(path)
        if NAME.fullmatch(text)
    }
    assert found == set()


def test_messages_and_docs_name_settings_that_exist():
    known = SETTINGS | TOLD_TO_PROGRAMS
    found = {
        f"{path.name}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "settings.py"
        for text in texts_of(path)
        for name in NAME.findall(text)
        if name not in known
    }
    assert found == set()


def test_the_table_of_readme_lists_what_people_set_and_nothing_else():
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| setting \|.*\n\|---.*\n((?:\|.*\n)+)", readme, re.MULTILINE)
    listed = set()
    for row in table.splitlines():
        for name in re.findall(r"`([A-Z0-9_]+)`", row.split("|")[1]):
            short = name.startswith("_")  # `EXAMLOPS_HPC_SSH_HOST`, `_SSH_USER`
            [whole] = [each for each in SETTINGS if each.endswith(name)] if short else [name]
            listed.add(whole)
    assert {name for name in listed if name.startswith("EXAMLOPS_")} == SETTINGS
