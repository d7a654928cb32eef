"""The arrows of the design: which room may import which, and what the package shows."""

import ast
import inspect
from pathlib import Path

import pytest

import examlops_dagster

PACKAGE = Path(examlops_dagster.__file__).parent

TIERS = (
    {"errors", "version", "settings"},
    {"core"},
    {"formats", "misspelt"},
    {"store", "fingerprint", "values", "home", "clock"},
    {
        "orchestrators",
        "schedulers",
        "sinks",
        "ledger",
        "catalog",
        "governance",
        "initialise",
        "loading",
    },
    {"delivery"},
    {"project"},
    {"shown"},
    {"dagster_bridge"},
    {"cli", "web", "demo"},
)
"""Rooms from the bottom to the top; a room imports what lies below it."""

WITHIN_A_TIER = {
    ("orchestrators", "schedulers"),
    ("governance", "ledger"),
    ("catalog", "ledger"),
    ("cli", "web"),  # `exa serve`
}

PROGRAMS = {("schedulers/job.py", "orchestrators")}
"""What runs by itself in a process of its own: a job calls a function as a worker does."""

MAY_IMPORT_DAGSTER = ("dagster_bridge/", "web/", "ledger/event_log/")

DAGSTER = ("dagster", "dagster_shared", "dagster_graphql", "dagster_webserver", "dagster_postgres")
"""Not dagster_pipes, which a job on a cluster has without the rest."""

FACE = "examlops_dagster"
LEVEL = {room: n for n, tier in enumerate(TIERS) for room in tier}
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def room_of(file):
    return file.split("/")[0].removesuffix(".py")


def imports_of(file):
    """Give every module that a file imports, also in functions and for the type checker."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            yield node.module, node.lineno
            if node.module == FACE:  # `from examlops_dagster import cli`: a room, or the face
                yield from ((f"{FACE}.{alias.name}", node.lineno) for alias in node.names)


def rooms_imported(file):
    for module, line in imports_of(file):
        parts = module.split(".")
        if parts[0] == FACE and len(parts) > 1 and parts[1] in LEVEL:
            yield parts[1], line


def test_every_file_is_in_a_room_that_has_its_place():
    rooms = {room_of(file) for file in FILES} - {"__init__"}
    assert rooms <= set(LEVEL)


@pytest.mark.parametrize("file", [file for file in FILES if file != "__init__.py"])
def test_arrows_run_one_way(file):
    own = room_of(file)
    wrong = [
        f"{file}:{line} imports {other}"
        for other, line in rooms_imported(file)
        if other != own
        and LEVEL[other] >= LEVEL[own]
        and (own, other) not in WITHIN_A_TIER
        and (file, other) not in PROGRAMS
    ]
    assert wrong == []


def test_the_face_loads_only_what_costs_nothing():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    at_import = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    rooms = {node.module.split(".")[1] for node in at_import if node.module.startswith(FACE)}
    assert rooms <= {"core", "errors", "version"}


def test_dagster_is_imported_in_its_rooms_alone():
    wrong = [
        f"{file}:{line} imports {module}"
        for file in FILES
        if not file.startswith(MAY_IMPORT_DAGSTER)
        for module, line in imports_of(file)
        if module.split(".")[0] in DAGSTER
    ]
    assert wrong == []


def sort_key(name):
    """Constants, classes, functions: the order of ruff's RUF022."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_the_public_names_are_a_sorted_list_of_what_is_there():
    named = examlops_dagster.__all__
    assert named == sorted(named, key=sort_key)
    assert len(named) == len(set(named))
    for name in named:
        assert getattr(examlops_dagster, name) is not None
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith(FACE)
        for alias in node.names
    }
    assert imported == set(named)  # the names for the type checker are those that load lazily
    assert dir(examlops_dagster) == sorted(named)
    with pytest.raises(AttributeError, match="nosuch"):
        examlops_dagster.nosuch  # noqa: B018


def test_every_public_name_explains_itself():
    for name in examlops_dagster.__all__:
        found = getattr(examlops_dagster, name)
        if not (inspect.isclass(found) or inspect.isfunction(found)):
            continue
        assert (found.__doc__ or "").strip(), f"{name} has no docstring"
        assert not found.__doc__.startswith(f"{name}("), f"{name} has a docstring of dataclass"


def test_every_module_says_what_it_is_for():
    for file in FILES:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{file} has no docstring"
