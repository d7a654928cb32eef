"""The scopes of a syntax tree: which names each binds, loads and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from examlops_dagster.fingerprint.outline import Imported


class Scope:
    """The names of a module, function, class or comprehension, and what of them is loaded."""

    __slots__ = ("bound", "globals", "imports", "kind", "loads", "parent", "prefix")

    def __init__(self, kind: str, parent: Scope | None, prefix: str) -> None:
        self.kind = kind  # module, function, class, comprehension, or inner: binds nothing
        self.parent = parent
        self.prefix = prefix
        self.bound: set[str] = set()
        self.loads: set[str] = set()
        self.imports: dict[str, Imported] = {}
        self.globals: set[str] = set()


def binder_of(scope: Scope, name: str) -> Scope | None:
    """Find the scope inside the module that binds a name; None if it is a global one.

    A class hides nothing, not even in its own body: ``clean = staticmethod(clean)`` is common.
    """
    inner: Scope | None = scope
    while inner is not None and inner.kind != "module":
        if name in inner.globals:
            return None
        hides = inner.kind != "class" or name in inner.imports
        if hides and name in inner.bound:
            return inner
        inner = inner.parent
    return None


def chain_of(node: Any) -> str:
    """Give the dotted name that an expression is; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def imported_by(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """Give the names that an import binds, each with what it is bound to."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if alias.name != "*":
                yield alias.asname or alias.name, (node.level, node.module or "", alias.name)
        elif alias.asname:
            yield alias.asname, (0, alias.name, "")
        else:
            top = alias.name.partition(".")[0]
            yield top, (0, top, "")
