"""Loads the user's modules: those named, else those that the settings name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from examlops_dagster.errors import DefinitionError, ExamlopsError, Problem, UsageError
from examlops_dagster.home import Home
from examlops_dagster.misspelt import TABLE, tell_misspelt_keys
from examlops_dagster.settings import MODULES

ModuleLike: TypeAlias = str | ModuleType
_PACKAGE = Path(__file__).parent
_LIKE_OUR_TABLE = re.compile(r"^\s*\[?\s*tool\s*\.\s*[\"']?exa", re.MULTILINE | re.IGNORECASE)
"""Only a file with such a line is parsed: most have nothing for us."""


def load_modules(modules: Iterable[ModuleLike], file: str | None = None) -> list[ModuleType]:
    """Import the user's modules, with the working directory as an import root.

    Raises
    ------
    UsageError
        If one does not exist; an error inside it passes as it is.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    found = [m if isinstance(m, ModuleType) else _import(m) for m in modules]
    if file is not None:
        path = Path(file).resolve()
        if not path.is_file():
            raise UsageError(f"-f {file}: no such file")
        if not path.stem.isidentifier():
            raise UsageError(f"-f {file}: {path.stem!r} is not a module name")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        module = _import(path.stem)
        if Path(getattr(module, "__file__", "") or "").resolve() != path:
            raise UsageError(
                f"-f {file}: the name {path.stem} belongs to {module.__file__} → rename the file"
            )
        found.append(module)
    return found


def configured_modules(home: Home) -> list[str]:
    """Give the modules that the environment or pyproject.toml names."""
    named = home.environment.get(MODULES)
    if named:
        return [name.strip() for name in named.split(",") if name.strip()]
    for folder in dict.fromkeys((Path.cwd(), home.folder)):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if not _LIKE_OUR_TABLE.search(text):
            continue
        tables = _toml(text, path).get("tool", {})
        tell_misspelt_keys(tables, path)
        if TABLE in tables:
            names = _modules_of(tables[TABLE], path)
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            return names
    return []


def _modules_of(table: Any, path: Path) -> list[str]:
    names = table.get("modules", []) if isinstance(table, dict) else None
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        text = f"[tool.examlops] modules is {names!r}, not a list of module names"
        raise DefinitionError([Problem(str(path), text)])
    return names


def _import(name: str) -> ModuleType:
    unknown = UsageError(
        f"no module named {name!r} → -m takes a module importable from here, -f a file"
    )
    if not name or name.startswith("."):  # a relative import, which has no meaning here
        raise unknown
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise unknown from error
        raise DefinitionError([_import_problem(name, error)]) from error
    except ExamlopsError:
        raise
    except (Exception, SystemExit) as error:
        raise DefinitionError([_import_problem(name, error)]) from error


def _import_problem(name: str, error: BaseException) -> Problem:
    """Say where in the user's code an import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return Problem(f"{error.filename}:{error.lineno}", f"cannot import {name}: {error.msg}")
    installed = [sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib")]
    others = ("<frozen", str(_PACKAGE), *installed)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(others)]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else _file_of(name)
    return Problem(where, f"cannot import {name}: {type(error).__name__}: {error}")


def _file_of(name: str) -> str:
    """Give the file of a module of which no line ran; its name where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return name
    return (spec.origin if spec is not None else None) or name


def _toml(text: str, path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - only where there is a table to read
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError([Problem(str(path), f"cannot be read: {error}")]) from error
