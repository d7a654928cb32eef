"""The outline of a source file: for every definition a hash and the names that it refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

FORMAT = 1
"""Raised whenever the normal form or the layout changes, so that old caches are ignored."""

PACKAGE = __name__.partition(".")[0]
OURS = frozenset(("asset", "sensor", "task", "sink"))

Imported: TypeAlias = tuple[int, str, str]
"""Level, module and attribute of an import; the attribute is empty for ``import module``."""

Reference: TypeAlias = str | tuple[int, str, str, str]
"""A chain of attributes on a global name, or on what an import inside a function binds."""


def digest_of(text: str | bytes) -> bytes:
    """Give the 16 bytes by which a text is known."""
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    return hashlib.sha256(data).digest()[:16]


def is_ours(dotted: str) -> bool:
    """Whether a dotted name is one of the decorators that declare."""
    return dotted.startswith(f"{PACKAGE}.") and dotted.rpartition(".")[2] in OURS


class Piece(NamedTuple):
    """One definition.

    Attributes
    ----------
    digest
        Of the normal form, without decorators.
    references
        What it refers to outside itself.
    defaults
        What the defaults of its parameters refer to.
    free
        Attribute chains on names of an enclosing function.
    decorators
        Name (empty for a computed one), digest and references of those not known to be ours.
    """

    digest: bytes
    references: tuple[Reference, ...] = ()
    defaults: tuple[Reference, ...] = ()
    free: tuple[str, ...] = ()
    decorators: tuple[tuple[Reference, bytes, tuple[Reference, ...]], ...] = ()


class Outline:
    """What a source file defines and imports.

    Attributes
    ----------
    definitions
        Names of the module, each with all statements that bind it.
    functions
        Every function and lambda at any depth, by ``name:line`` of its code object.
    classes
        Classes that are not at the top, by qualified name.
    imports
        Names that the module imports.
    stars
        Level and module of every ``from module import *``.
    """

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self.definitions: dict[str, tuple[Any, ...]] = parts[0]
        self.functions: dict[str, tuple[Any, ...]] = parts[1]
        self.classes: dict[str, tuple[Any, ...]] = parts[2]
        self.imports: dict[str, tuple[Imported, ...]] = parts[3]
        self.stars: tuple[tuple[int, str], ...] = parts[4]

    def function(self, name: str, line: int) -> Piece | None:
        """Find a function by its line, or by its name alone where only one has it."""
        found = self.functions.get(f"{name}:{line}")
        if found is None:
            named = [p for k, p in self.functions.items() if k.rpartition(":")[0] == name]
            found = named[0] if len(named) == 1 else None
        return None if found is None else Piece._make(found)


def sorted_references(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """Put references into the order in which outlines keep them."""
    return tuple(sorted(references, key=lambda r: r if isinstance(r, str) else ascii(r)))
