"""Makes the outline of a source text."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from examlops_dagster.fingerprint.normal import NormalForm, Opened
from examlops_dagster.fingerprint.outline import (
    Imported,
    Outline,
    Piece,
    digest_of,
    sorted_references,
)
from examlops_dagster.fingerprint.scopes import chain_of, imported_by

_MUTATORS = frozenset((
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "reverse", "setdefault", "sort", "update",
))  # fmt: skip
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def outline_of(source: str | bytes) -> Outline | None:
    """Outline a source text; None if it cannot be parsed."""
    tree = _parsed(source)
    try:
        return None if tree is None else _Outliner().outline(tree)
    except RecursionError:
        return None


def normal_digest(source: bytes) -> bytes:
    """Give the hash of a whole file without comments and formatting; of the bytes if need be."""
    tree = _parsed(source)
    if tree is None:
        return digest_of(source)
    out: list[str] = []
    form = NormalForm({})
    try:
        form.dump(tree.body, form.new_scope("module", None), out)
    except RecursionError:
        return digest_of(source)
    return digest_of("\n".join(out))


def _parsed(source: str | bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():  # "\d" in the user's text is not ours to report
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Outliner:
    def __init__(self) -> None:
        self.pieces: dict[str, list[tuple[Piece, tuple[Piece, ...]]]] = {}
        self.functions: dict[str, Piece] = {}
        self.classes: dict[str, Piece] = {}
        self.imports: dict[str, list[Imported]] = {}
        self.stars: list[tuple[int, str]] = []

    def outline(self, tree: ast.Module) -> Outline:
        waiting: list[tuple[Any, tuple[Piece, ...]]] = [(s, ()) for s in reversed(tree.body)]
        while waiting:
            statement, guards = waiting.pop()
            below = list(self._statement(statement, guards))
            waiting.extend(reversed(below))
        # A tuple that stands in two tables is written once by marshal, and read once.
        plain = {id(piece): tuple(piece) for piece in self.functions.values()}
        merged = {name: _merged(found) for name, found in self.pieces.items()}
        return Outline(
            (
                {name: plain.get(id(piece)) or tuple(piece) for name, piece in merged.items()},
                {key: plain[id(piece)] for key, piece in self.functions.items()},
                {key: tuple(piece) for key, piece in self.classes.items()},
                {name: tuple(found) for name, found in self.imports.items()},
                tuple(self.stars),
            )
        )

    def _statement(
        self, statement: Any, guards: tuple[Piece, ...]
    ) -> Iterator[tuple[Any, tuple[Piece, ...]]]:
        """Take one statement in; give the statements of its blocks, with what guards them."""
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name, imported in imported_by(statement):
                self.imports.setdefault(name, []).append(imported)
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                self.stars.append((statement.level, statement.module or ""))
            return
        blocks: list[Any] = []
        for block in ("body", "handlers", "cases", "orelse", "finalbody"):
            blocks.extend(getattr(statement, block, ()))
        if not blocks or isinstance(statement, _DEFINITIONS):
            self._piece([statement], guards, _mutated(statement))
            return
        if isinstance(statement, ast.If) and _type_checking(statement.test):
            blocks = list(statement.orelse)
        heads = [
            getattr(statement, head)
            for head in ("test", "target", "iter", "subject", "pattern", "guard", "type")
            if getattr(statement, head, None) is not None
        ]
        if heads:
            guards = (*guards, self._piece(heads, guards))
        for item in getattr(statement, "items", ()):  # of a with statement
            self._piece([item], guards)
        for inner in blocks:
            yield inner, guards

    def _piece(
        self, nodes: Sequence[Any], guards: tuple[Piece, ...], also: Iterable[str] = ()
    ) -> Piece:
        form = NormalForm(self.imports)
        out: list[str] = []
        scope = form.new_scope("module", None)
        form.dump(nodes, scope, out)
        top: Piece | None = None
        for opened in form.closed:
            piece = _piece_of(opened, form)
            if opened.scope is not None and opened.scope.kind == "class":
                self.classes[opened.key] = piece
            elif opened.key in self.functions:  # two lambdas of one line: either may be meant
                self.functions[opened.key] = _united([self.functions[opened.key], piece])
            else:
                self.functions[opened.key] = piece
            top = piece
        if top is None or not isinstance(nodes[0], _DEFINITIONS):
            found, _ = form.references((0, len(form.scopes)), None)
            top = Piece(digest_of("\n".join(out)), found)
        for name in dict.fromkeys((*sorted(scope.bound), *also)):
            self.pieces.setdefault(name, []).append((top, guards))
        return top


def _piece_of(opened: Opened, form: NormalForm) -> Piece:
    first, last = opened.defaults
    defaults, _ = form.references(opened.defaults, opened.scope)
    before, free_before = form.references((opened.scopes, first), opened.scope)
    after, free_after = form.references((last, opened.last_scope), opened.scope)
    return Piece(
        digest_of("\n".join(opened.out[opened.start : opened.stop])),
        sorted_references({*before, *after}),
        defaults,
        tuple(sorted({*free_before, *free_after})),
        tuple(
            (name, digest, form.references(run, opened.scope)[0])
            for name, digest, run in opened.decorators
        ),
    )


def _mutated(statement: Any) -> list[str]:
    """Name what a statement changes without binding it: ``X["a"] = 1``, ``X.update(a=1)``."""
    targets = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
    call = getattr(statement, "value", None)
    if (
        isinstance(statement, ast.Expr)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _MUTATORS
    ):
        targets.append(call.func)
    found = []
    for target in targets:
        root = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if root is not target and isinstance(root, ast.Name):
            found.append(root.id)
    return found


def _type_checking(test: ast.expr) -> bool:
    return chain_of(test).rpartition(".")[2] == "TYPE_CHECKING"


def _united(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        digest_of(b"".join(p.digest for p in pieces)),
        sorted_references({r for p in pieces for r in p.references}),
        sorted_references({r for p in pieces for r in p.defaults}),
        tuple(sorted({f for p in pieces for f in p.free})),
        tuple(d for p in pieces for d in p.decorators),
    )


def _merged(found: Sequence[tuple[Piece, tuple[Piece, ...]]]) -> Piece:
    pieces = [part for piece, guards in found for part in (piece, *guards)]
    return pieces[0] if len(pieces) == 1 else _united(pieces)
