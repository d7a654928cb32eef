"""The user's own modules, loaded or not: found by name and by namespace."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from examlops_dagster.fingerprint.cache import Outlines
from examlops_dagster.fingerprint.nodes import Target
from examlops_dagster.fingerprint.outline import PACKAGE, Outline, Reference

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120
_DEMO = f"{_HERE}demo{os.sep}"
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


@functools.cache
def _is_own_file(file: str) -> bool:
    if file.startswith(_HERE):
        return file.startswith(_DEMO)
    return not file.startswith(_STANDARD) and _INSTALLED.search(file) is None


def installed_package(module_globals: dict[str, Any]) -> str:
    """Name the package of a function that was installed with ``pip install .``; else nothing.

    What an installed package declares is its own code, and so is the rest of that package.
    """
    file = module_globals.get("__file__") or ""
    top = str(module_globals.get("__name__", "")).partition(".")[0]
    if not file or top == PACKAGE or _is_own_file(file) or _INSTALLED.search(file) is None:
        return ""
    return top


class Module:
    """A module of which names are looked up, loaded or not."""

    __slots__ = ("file", "found", "name", "namespace", "outline", "own", "package", "path", "spec")

    def __init__(
        self,
        name: str,
        file: str,
        path: Sequence[str] | None,
        namespace: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.file = file
        self.path = path
        self.namespace = namespace
        self.package = name if path is not None else name.rpartition(".")[0]
        self.own = False
        self.outline: Outline | None = None
        self.found: dict[Reference, tuple[Target, ...]] = {}
        self.spec = namespace.get("__spec__") if namespace is not None else None

    def is_reloaded(self) -> bool:
        """Whether the module was executed anew since it was met."""
        return self.namespace is not None and self.namespace.get("__spec__") is not self.spec

    def absolute(self, level: int, name: str) -> str:
        """Give the absolute name that a relative import in this module means."""
        if level == 0:
            return name
        start = ".".join(self.package.split(".")[: len(self.package.split(".")) - level + 1])
        return f"{start}.{name}" if start and name else start or name


class Modules:
    """The user's own modules, by name and by namespace."""

    def __init__(self, outlines: Outlines, adopted: str) -> None:
        self._outlines = outlines
        self._adopted = adopted
        self._by_globals: dict[int, Module] = {}
        self._by_name: dict[str, Module | None] = {}

    def of_globals(self, namespace: dict[str, Any]) -> Module:
        """Give the module that has these globals."""
        known = self._by_globals.get(id(namespace))
        if known is None:
            path = namespace.get("__path__")
            known = Module(
                str(namespace.get("__name__", "")),
                str(namespace.get("__file__") or ""),
                list(path) if path is not None else None,
                namespace,
            )
            known.package = namespace.get("__package__") or known.package
            # Without a file and with a spec: built in; with neither: a notebook or exec.
            spec = known.spec if known.spec is not None else namespace.get("__loader__")
            known.own = self._is_own(known, default=spec is None or known.name == "__main__")
            self._outline(known)
            self._by_globals[id(namespace)] = known
        return known

    def find(self, name: str) -> Module | None:
        """Give a module of the user's; None for any other, and for one that does not exist."""
        if name not in self._by_name:
            self._by_name[name] = None  # also ends a search that leads back here
            loaded = sys.modules.get(name)
            if isinstance(loaded, ModuleType):
                module: Module | None = self.of_globals(vars(loaded))
            else:
                module = self._unloaded(name) if name and name not in sys.modules else None
            self._by_name[name] = module if module is not None and module.own else None
        return self._by_name[name]

    def _unloaded(self, name: str) -> Module | None:
        """Find a module that a function imports when it runs, without importing it now."""
        parent = self.find(name.rpartition(".")[0]) if "." in name else None
        if "." in name and (parent is None or parent.path is None):
            return None
        for finder in sys.meta_path:
            try:
                spec = finder.find_spec(name, parent.path if parent is not None else None)
            except Exception:  # noqa: BLE001, S112 - a finder of somebody else's
                continue
            if spec is not None:
                path = spec.submodule_search_locations
                file = spec.origin if spec.has_location else None
                module = Module(name, file or "", list(path) if path is not None else None)
                module.own = self._is_own(module, default=False)
                self._outline(module)
                return module
        return None

    def _is_own(self, module: Module, *, default: bool) -> bool:
        if self._adopted and module.name.partition(".")[0] == self._adopted:
            return True
        if module.file:
            return _is_own_file(module.file)
        if module.path:
            return any(_is_own_file(folder + os.sep) for folder in module.path)
        return default

    def _outline(self, module: Module) -> None:
        compiled = (".so", ".pyd", ".pyc", ".dll")
        if module.own and module.file and not module.file.endswith(compiled):
            module.outline = self._outlines.of_file(module.file)
            if module.outline is None and module.namespace is not None:
                module.outline = self._outlines.of_text(module.file, module.namespace)
