"""The code version of an asset: a fingerprint of its production function and of what that uses.

Names are followed from the source text of the user's own modules (`names`), so a version is the
same whatever else a process has loaded. What no text shows (closure cells, a notebook's names) is
taken from the live objects (`graph`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.errors import DefinitionError, Problem
from examlops_dagster.fingerprint.cache import Outlines
from examlops_dagster.fingerprint.graph import Graph
from examlops_dagster.fingerprint.modules import installed_package
from examlops_dagster.fingerprint.nodes import final_digest
from examlops_dagster.fingerprint.outline import digest_of
from examlops_dagster.fingerprint.outliner import normal_digest


def code_version(declaration: Declaration, *, cache: Path | None = None) -> str:
    """Identify the code that produces an asset.

    Parameters
    ----------
    declaration
        Of a loaded module; its ``code_version`` is returned unchanged, if it has one.
    cache
        Folder that keeps the outlines of source files between processes.

    Returns
    -------
    str
        16 hexadecimal digits, the same on every machine and in every supported Python.

    Raises
    ------
    DefinitionError
        ``code_deps`` names a path that does not exist.
    """
    return _shared(cache).code_version(declaration)


def loaded_code_is_older(declaration: Declaration, *, cache: Path | None = None) -> bool:
    """Whether the file of the production function was edited after this process first read it.

    A server goes on with what it has loaded until it loads its modules anew; this lets it say so.
    """
    return _shared(cache).loaded_code_is_older(declaration)


@functools.cache
def _shared(cache: Path | None) -> Fingerprints:
    return Fingerprints(cache)


class Fingerprints:
    """Code versions of one process; every file is read once, every definition hashed once.

    Parameters
    ----------
    cache_folder
        Keeps the outlines of source files between processes; None keeps none.
    """

    def __init__(self, cache_folder: Path | None = None) -> None:
        self._outlines = Outlines(cache_folder)
        self._graphs: dict[str, Graph] = {}
        self._lock = threading.RLock()
        self._contents: dict[tuple[str, int, int], bytes] = {}

    def code_version(self, declaration: Declaration) -> str:
        """Identify the code of a declaration; see the function of this name."""
        if declaration.code_version is not None:
            return declaration.code_version
        with self._lock:
            try:
                return self._code_version(declaration)
            except DefinitionError:
                raise
            except BaseException:
                self._graphs.clear()  # a walk that was interrupted leaves nodes half done
                raise

    def _code_version(self, declaration: Declaration) -> str:
        graph = self._graph(declaration.function)
        folder = os.path.dirname(_file(declaration))  # noqa: PTH120 - a thousand times a status
        parts: list[bytes] = []
        if declaration.command:
            parts.append(self._command(declaration.command, folder))
        elif declaration.function is not None:
            parts.append(final_digest(graph.node_of(declaration.function)))
        if declaration.code_deps:
            parts.extend(sorted(self._code_deps(declaration, graph, folder)))
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def loaded_code_is_older(self, declaration: Declaration) -> bool:
        """Whether the file of the production function was edited after it was first read."""
        file = _file(declaration)
        return bool(file) and not declaration.command and self._outlines.is_older(file)

    def _graph(self, function: Any) -> Graph:
        """Give the memo that fits a function: installed packages count where they declare."""
        module_globals = getattr(function, "__globals__", {})
        adopted = installed_package(module_globals)
        graph = self._graphs.get(adopted)
        if graph is None:
            graph = self._graphs[adopted] = Graph(self._outlines, adopted)
        if module_globals:
            module = graph.modules.of_globals(module_globals)
            if module.is_reloaded():
                self._outlines.forget(module.file)
                self._graphs.clear()
                return self._graph(function)
            if module.own and module.outline is None:  # a notebook, whose names change
                return Graph(self._outlines, adopted)
        return graph

    def _command(self, argv: Sequence[str], folder: str) -> bytes:
        parts: list[bytes] = []
        for word in argv:
            parts.append(digest_of(word if word != sys.executable else "python"))
            path = _existing(word, folder)
            if path is not None and os.path.isfile(path) and not _is_program(word):  # noqa: PTH113
                parts.append(self._content(path))
        return digest_of(b"".join(parts))

    def _code_deps(self, declaration: Declaration, graph: Graph, folder: str) -> list[bytes]:
        found: list[bytes] = []
        problems: list[Problem] = []
        for thing in declaration.code_deps:
            if isinstance(thing, (str, PurePath)):
                path = _existing(os.fspath(thing), folder)
                if path is None:
                    problems.append(
                        Problem(
                            declaration.where,
                            f"code_deps of {declaration.name!r} names the path "
                            f"{os.fspath(thing)!r}, which exists neither in {folder or '.'} nor "
                            f"in {os.getcwd()}",  # noqa: PTH109
                            "correct the path, or take it out of code_deps",
                        )
                    )
                else:
                    found.append(self._tree(path))
            elif isinstance(thing, ModuleType):
                found.append(self._module(thing))
            else:
                found.append(graph.explicit(thing))
        if problems:
            raise DefinitionError(problems)
        return found

    def _module(self, module: ModuleType) -> bytes:
        file = getattr(module, "__file__", None)
        folders = list(getattr(module, "__path__", ()))
        if not folders and not file:
            return digest_of(module.__name__)
        parts = [self._tree(folder, ".py") for folder in folders]
        return digest_of(b"".join(parts)) if folders else self._content(str(file), normal=True)

    def _tree(self, path: str, suffix: str = "") -> bytes:
        """Hash a file, or all files of a folder by their names relative to it."""
        if os.path.isfile(path):  # noqa: PTH113
            return self._content(path)
        parts: list[tuple[str, bytes]] = []
        for folder, below, names in os.walk(path):
            below[:] = [name for name in below if name not in ("__pycache__", ".git")]
            for name in names:
                if name.endswith(suffix):
                    file = os.path.join(folder, name)  # noqa: PTH118
                    relative = os.path.relpath(file, path).replace(os.sep, "/")
                    parts.append((relative, self._content(file, normal=suffix == ".py")))
        return digest_of(b"".join(digest_of(name) + content for name, content in sorted(parts)))

    def _content(self, path: str, *, normal: bool = False) -> bytes:
        try:
            stat = os.stat(path)  # noqa: PTH116
            key = (f"{normal}{path}", stat.st_mtime_ns, stat.st_size)
            if key not in self._contents:
                data = Path(path).read_bytes()
                is_python = normal and path.endswith(".py")
                self._contents[key] = normal_digest(data) if is_python else digest_of(data)
            return self._contents[key]
        except OSError:
            return digest_of("unreadable")


def _file(declaration: Declaration) -> str:
    """Give the file of the production function; empty for a notebook and the like."""
    file = declaration.where.rpartition(":")[0]
    return file if file.endswith(".py") or os.path.isfile(file) else ""  # noqa: PTH113


def _existing(path: str, folder: str) -> str | None:
    for start in (folder, ""):
        candidate = os.path.join(start, path)  # noqa: PTH118
        try:
            if path and os.path.exists(candidate):  # noqa: PTH110
                return candidate
        except ValueError:  # a null byte
            return None
    return None


def _is_program(word: str) -> bool:
    """Whether a word is a machine's own binary, such as ``/usr/bin/python3``."""
    if not os.path.isabs(word):  # noqa: PTH117
        return False
    try:
        with open(word, "rb") as file:  # noqa: PTH123
            return file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
    except OSError:
        return False
