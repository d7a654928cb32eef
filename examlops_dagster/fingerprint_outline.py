"""The outline of a source file: for every definition a hash and the names that it refers to.

The hash is taken of the syntax tree in a normal form of our own: without positions, comments,
docstrings, ``pass``, the annotations of functions and variables, and the decorators of this
package. ``ast.dump`` would not do: its text differs between Python versions.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import marshal
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
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
    outliner = _Outliner()
    try:
        outliner.dump(tree.body, outliner.new_scope("module", None), out)
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


class _Scope:
    __slots__ = ("bound", "globals", "imports", "kind", "loads", "parent", "prefix")

    def __init__(self, kind: str, parent: _Scope | None, prefix: str) -> None:
        self.kind = kind  # module, function, class, comprehension, or inner: binds nothing
        self.parent = parent
        self.prefix = prefix
        self.bound: set[str] = set()
        self.loads: set[str] = set()
        self.imports: dict[str, Imported] = {}
        self.globals: set[str] = set()


class _Opened:
    """A definition that is being read: a run of tokens and a run of scopes."""

    __slots__ = (
        "decorators", "defaults", "key", "last_scope", "out", "scope", "scopes", "start", "stop",
    )  # fmt: skip

    def __init__(self, key: str, out: list[str], scopes: int) -> None:
        self.key = key
        self.out = out
        self.start = len(out)
        self.scopes = scopes
        self.defaults = (scopes, scopes)
        self.stop = self.last_scope = 0
        self.scope: _Scope | None = None
        self.decorators: list[tuple[Reference, bytes, tuple[int, int]]] = []


class _Waiting(NamedTuple):
    """A part of the tree on the stack, with the scope that its names belong to."""

    node: Any
    scope: _Scope


_Stack: TypeAlias = list[Any]
_UNCOUNTED = frozenset(("ctx", "type_comment", "kind", "type_ignores"))
_FIELDS: dict[type, tuple[str, ...]] = {}
_LETTERS = {str: "s", bytes: "y", bool: "b", float: "f", complex: "c"}
_MUTATORS = frozenset((
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "reverse", "setdefault", "sort", "update",
))  # fmt: skip


class _Outliner:
    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self.closed: list[_Opened] = []
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
            for name, imported in _imported(statement):
                self.imports.setdefault(name, []).append(imported)
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                self.stars.append((statement.level, statement.module or ""))
            return
        blocks: list[Any] = []
        for block in ("body", "handlers", "cases", "orelse", "finalbody"):
            blocks.extend(getattr(statement, block, ()))
        if not blocks or isinstance(statement, _DEFINES):
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
        self.scopes, self.closed = [], []
        out: list[str] = []
        scope = self.new_scope("module", None)
        self.dump(nodes, scope, out)
        top: Piece | None = None
        for opened in self.closed:
            piece = self._closed(opened)
            if opened.scope is not None and opened.scope.kind == "class":
                self.classes[opened.key] = piece
            elif opened.key in self.functions:  # two lambdas of one line: either may be meant
                self.functions[opened.key] = _united([self.functions[opened.key], piece])
            else:
                self.functions[opened.key] = piece
            top = piece
        if top is None or not isinstance(nodes[0], _DEFINES):
            found, _ = self._references((0, len(self.scopes)), None)
            top = Piece(digest_of("\n".join(out)), found)
        for name in dict.fromkeys((*sorted(scope.bound), *also)):
            self.pieces.setdefault(name, []).append((top, guards))
        return top

    def _closed(self, opened: _Opened) -> Piece:
        first, last = opened.defaults
        defaults, _ = self._references(opened.defaults, opened.scope)
        before, free_before = self._references((opened.scopes, first), opened.scope)
        after, free_after = self._references((last, opened.last_scope), opened.scope)
        return Piece(
            digest_of("\n".join(opened.out[opened.start : opened.stop])),
            _sorted({*before, *after}),
            defaults,
            tuple(sorted({*free_before, *free_after})),
            tuple(
                (name, digest, self._references(run, opened.scope)[0])
                for name, digest, run in opened.decorators
            ),
        )

    def _references(
        self, run: tuple[int, int], within: _Scope | None
    ) -> tuple[tuple[Reference, ...], set[str]]:
        """Sort the names that a run of scopes loads: outside ones, and those of closure cells."""
        around: set[int] = set()
        outer = within.parent if within is not None else None
        while outer is not None:
            around.add(id(outer))
            outer = outer.parent
        found: set[Reference] = set()
        free: set[str] = set()
        for scope in self.scopes[run[0] : run[1]]:
            for chain in scope.loads:
                root, _, rest = chain.partition(".")
                binder = _binder(scope, root)
                if binder is None:
                    found.add(chain)
                elif root in binder.imports:
                    found.add((*binder.imports[root], rest))
                elif id(binder) in around:
                    free.add(chain)
        return _sorted(found), free

    def new_scope(self, kind: str, parent: _Scope | None, prefix: str = "") -> _Scope:
        scope = _Scope(kind, parent, prefix or (parent.prefix if parent is not None else ""))
        self.scopes.append(scope)
        return scope

    def dump(self, nodes: Sequence[Any], scope: _Scope, out: list[str]) -> None:
        """Write nodes in the normal form; with a stack, as trees may be deep."""
        stack: _Stack = [_Waiting(node, scope) for node in reversed(nodes)]
        while stack:
            item = stack.pop()
            if type(item) is str:
                out.append(item)
            elif type(item) is _Opened:
                item.stop, item.last_scope = len(out), len(self.scopes)
                self.closed.append(item)
            else:
                node, inside = item
                handler = _HANDLERS.get(type(node))
                if handler is not None:
                    handler(self, node, inside, out, stack)
                else:
                    _generic(node, inside, out, stack)

    def decorators(
        self, node: Any, scope: _Scope, out: list[str]
    ) -> list[tuple[Reference, bytes, tuple[int, int]]]:
        found: list[tuple[Reference, bytes, tuple[int, int]]] = []
        for decorator in node.decorator_list:
            called = decorator
            while isinstance(called, ast.Call):
                called = called.func
            chain = _chain(called)
            name: Reference = chain
            root, _, rest = chain.partition(".")
            imports = self.imports.get(root, [])
            binder = _binder(scope, root)
            if binder is not None:
                local = binder.imports.get(root)
                imports = [local] if local is not None else []
                name = (*local, rest) if local is not None else ""
            if any(is_ours(".".join(filter(None, (m, a, rest)))) for level, m, a in imports):
                continue
            first = len(self.scopes)
            tokens: list[str] = []
            self.dump([decorator], self.new_scope("inner", scope), tokens)
            found.append((name, digest_of("\n".join(tokens)), (first, len(self.scopes))))
            if scope.kind != "module":  # a definition at the top keeps its decorators apart
                out.append("@")
                out.extend(tokens)
        return found

    def function(self, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
        is_lambda = isinstance(node, ast.Lambda)
        name = "<lambda>" if is_lambda else node.name
        decorators = [] if is_lambda else self.decorators(node, scope, out)
        line = node.lineno
        if not is_lambda:
            scope.bound.add(name)
            line = min((d.lineno for d in node.decorator_list), default=line)
        opened = _Opened(f"{name}:{line}", out, len(self.scopes))
        opened.decorators = decorators
        out.append(f"{type(node).__name__} {name}(")
        arguments = node.args
        positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        keyword = [a.arg for a in arguments.kwonlyargs]
        rest = [a.arg if a is not None else "" for a in (arguments.vararg, arguments.kwarg)]
        out.append(f"{len(arguments.posonlyargs)} {positional} {keyword} {rest}")
        first = len(self.scopes)
        around = self.new_scope("inner", scope)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            out.append("=")
            if default is not None:
                self.dump([default], around, out)
        opened.defaults = (first, len(self.scopes))
        inner = self.new_scope("function", scope, f"{scope.prefix}{name}.<locals>.")
        inner.bound.update(positional, keyword, filter(None, rest))
        opened.scope = inner
        stack.extend((opened, ")"))
        body = [node.body] if is_lambda else node.body
        stack.extend(_Waiting(statement, inner) for statement in reversed(body))
        stack.extend(_Waiting(parameter, inner) for parameter in _type_parameters(node, inner))

    def class_(self, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
        decorators = self.decorators(node, scope, out)
        scope.bound.add(node.name)
        opened = _Opened(f"{scope.prefix}{node.name}", out, len(self.scopes))
        opened.decorators = decorators
        out.append(f"class {node.name}(")
        inner = self.new_scope("class", scope, f"{scope.prefix}{node.name}.")
        opened.scope = inner
        self.dump([*node.bases, *node.keywords], self.new_scope("inner", scope), out)
        out.append(":")
        stack.extend((opened, ")"))
        stack.extend(_Waiting(statement, inner) for statement in reversed(node.body))
        stack.extend(_Waiting(parameter, inner) for parameter in _type_parameters(node, inner))

    def comprehension(self, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
        # The first iterable is evaluated outside: in [x for x in x], the last x is another one.
        inner = self.new_scope("comprehension", scope)
        out.append(f"{type(node).__name__}(")
        stack.append(")")
        for generator in reversed(node.generators):
            stack.extend(_Waiting(test, inner) for test in reversed(generator.ifs))
            stack.append("if")
            outside = scope if generator is node.generators[0] else inner
            stack.append(_Waiting(generator.iter, outside))
            stack.append(_Waiting(generator.target, inner))
            stack.append(f"for {generator.is_async}")
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        stack.extend(_Waiting(result, inner) for result in reversed(results))


_Handler: TypeAlias = Callable[[_Outliner, Any, _Scope, list[str], _Stack], None]


def _generic(node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    cls = type(node)
    names = _FIELDS.get(cls)
    if names is None:
        names = _FIELDS[cls] = tuple(f for f in cls._fields if f not in _UNCOUNTED)
    if not names:
        out.append(cls.__name__)
        return
    out.append(f"{cls.__name__}(")
    stack.append(")")
    for name in reversed(names):
        value = getattr(node, name, None)
        if isinstance(value, list):
            if value:
                stack.append("]")
                stack.extend(
                    _Waiting(v, scope) if isinstance(v, ast.AST) else ascii(v)
                    for v in reversed(value)
                )
                stack.append(f"{name}[")
        elif isinstance(value, ast.AST):
            stack.append(_Waiting(value, scope))
            stack.append(f"{name}:")
        elif value is not None:
            stack.append(f"{name}={value!a}")


def _name(_: _Outliner, node: Any, scope: _Scope, out: list[str], __: _Stack) -> None:
    out.append(f"N {node.id}")
    (scope.loads if isinstance(node.ctx, ast.Load) else scope.bound).add(node.id)


def _attribute(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    chain = _chain(node)
    if chain:
        scope.loads.add(chain)
        out.append(f"A {chain}")
    else:
        out.append(f".{node.attr}")
        stack.append(_Waiting(node.value, scope))


def _constant(_: _Outliner, node: Any, __: _Scope, out: list[str], ___: _Stack) -> None:
    value = node.value
    cls = type(value)
    # ascii, as what repr escapes depends on Python's Unicode tables; hex, as decimals have a limit
    out.append(hex(value) if cls is int else f"{_LETTERS.get(cls, '')}{value!a}")


def _expression(_: _Outliner, node: Any, scope: _Scope, __: list[str], stack: _Stack) -> None:
    if not isinstance(node.value, ast.Constant):  # else a docstring, or text that does nothing
        stack.append(_Waiting(node.value, scope))
        stack.append("do")


def _nothing(_: _Outliner, __: Any, ___: _Scope, ____: list[str], _____: _Stack) -> None:
    pass


def _annotated(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    if scope.kind == "class":  # the fields of dataclasses and models are their annotations
        _generic(node, scope, out, stack)
    elif node.value is not None:
        _generic(ast.Assign(targets=[node.target], value=node.value), scope, out, stack)
    elif isinstance(node.target, ast.Name) and scope.kind != "module":
        scope.bound.add(node.target.id)


def _walrus(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    holder = scope
    while holder.kind in ("comprehension", "inner") and holder.parent is not None:
        holder = holder.parent
    out.append(f":= {node.target.id}")
    holder.bound.add(node.target.id)
    stack.append(_Waiting(node.value, scope))


def _import(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    for name, imported in _imported(node):
        scope.bound.add(name)
        scope.imports[name] = imported
    _generic(node, scope, out, stack)


def _declared_outside(
    _: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack
) -> None:
    if isinstance(node, ast.Global):
        scope.globals.update(node.names)
    _generic(node, scope, out, stack)


def _binding(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    name = getattr(node, "rest", None) or getattr(node, "name", None)
    if isinstance(name, str):
        scope.bound.add(name)
    _generic(node, scope, out, stack)


def _joined(_: _Outliner, node: Any, scope: _Scope, out: list[str], stack: _Stack) -> None:
    # Python 3.12 leaves empty constants in f-strings where others leave none, and splits some.
    values: list[Any] = []
    for value in node.values:
        is_text = type(value) is ast.Constant
        if is_text and values and type(values[-1]) is ast.Constant:
            values[-1] = ast.Constant(values[-1].value + value.value)
        elif not is_text or value.value:
            values.append(value)
    out.append("JoinedStr(")
    stack.append(")")
    stack.extend(_Waiting(value, scope) for value in reversed(values))


_HANDLERS: dict[type, _Handler] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Constant: _constant,
    ast.Expr: _expression,
    ast.Pass: _nothing,
    ast.AnnAssign: _annotated,
    ast.NamedExpr: _walrus,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Global: _declared_outside,
    ast.Nonlocal: _declared_outside,
    ast.ExceptHandler: _binding,
    ast.MatchAs: _binding,
    ast.MatchStar: _binding,
    ast.MatchMapping: _binding,
    ast.JoinedStr: _joined,
    ast.FunctionDef: _Outliner.function,
    ast.AsyncFunctionDef: _Outliner.function,
    ast.Lambda: _Outliner.function,
    ast.ClassDef: _Outliner.class_,
    ast.ListComp: _Outliner.comprehension,
    ast.SetComp: _Outliner.comprehension,
    ast.DictComp: _Outliner.comprehension,
    ast.GeneratorExp: _Outliner.comprehension,
}
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _binder(scope: _Scope, name: str) -> _Scope | None:
    """Find the scope inside the module that binds a name; None if it is a global one.

    A class hides nothing, not even in its own body: ``clean = staticmethod(clean)`` is common.
    """
    inner: _Scope | None = scope
    while inner is not None and inner.kind != "module":
        if name in inner.globals:
            return None
        hides = inner.kind != "class" or name in inner.imports
        if hides and name in inner.bound:
            return inner
        inner = inner.parent
    return None


def _type_parameters(node: Any, scope: _Scope) -> list[Any]:
    parameters = list(getattr(node, "type_params", ()))
    scope.bound.update(parameter.name for parameter in parameters)
    return parameters


def _chain(node: Any) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if alias.name != "*":
                yield alias.asname or alias.name, (node.level, node.module or "", alias.name)
        elif alias.asname:
            yield alias.asname, (0, alias.name, "")
        else:
            top = alias.name.partition(".")[0]
            yield top, (0, top, "")


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
    return _chain(test).rpartition(".")[2] == "TYPE_CHECKING"


def _sorted(references: Iterable[Reference]) -> tuple[Reference, ...]:
    return tuple(sorted(references, key=lambda r: r if isinstance(r, str) else ascii(r)))


def _united(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        digest_of(b"".join(p.digest for p in pieces)),
        _sorted({r for p in pieces for r in p.references}),
        _sorted({r for p in pieces for r in p.defaults}),
        tuple(sorted({f for p in pieces for f in p.free})),
        tuple(d for p in pieces for d in p.decorators),
    )


def _merged(found: Sequence[tuple[Piece, tuple[Piece, ...]]]) -> Piece:
    pieces = [part for piece, guards in found for part in (piece, *guards)]
    return pieces[0] if len(pieces) == 1 else _united(pieces)


_SETTLED_NS = 2_000_000_000
"""A file younger than this may yet change within one tick of its clock: it is not cached."""


class Outlines:
    """The outlines of files, each read once in the life of this object.

    Parameters
    ----------
    folder
        Where outlines are kept between processes; None keeps none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = os.fspath(folder) if folder is not None else None
        self._files: dict[str, tuple[tuple[int, int], Outline | None] | None] = {}
        self._texts: dict[tuple[str, str], Outline | None] = {}

    def of_file(self, path: str) -> Outline | None:
        """Give the outline of a file as it was when it was first asked for."""
        if path not in self._files:
            self._files[path] = self._read(path)
        known = self._files[path]
        return known[1] if known is not None else None

    def of_text(self, name: str, module_globals: dict[str, Any]) -> Outline | None:
        """Give the outline of what ``linecache`` holds: a notebook's cell, a file in a zip."""
        text = "".join(linecache.getlines(name, module_globals))
        if not text:
            return None
        if (name, text) not in self._texts:
            self._texts[name, text] = outline_of(text)
        return self._texts[name, text]

    def is_older(self, path: str) -> bool:
        """Whether a file has changed since its outline was first asked for."""
        self.of_file(path)
        known = self._files[path]
        return known is not None and known[0] != _stamp(path)

    def forget(self, path: str) -> None:
        """Read a file anew when it is next asked for."""
        self._files.pop(path, None)

    def _read(self, path: str) -> tuple[tuple[int, int], Outline | None] | None:
        stamp = _stamp(path)
        if stamp is None:
            return None
        key = (FORMAT, sys.version_info[:2], stamp)
        kept = self._kept(path)
        cached = _cached(kept, key)
        if cached is not None:
            return stamp, cached
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a Path costs more than the outline
                source = file.read()
        except OSError:
            return None
        outline = outline_of(source)
        if outline is not None and time.time_ns() - stamp[0] > _SETTLED_NS:
            _keep(kept, key, outline)
        return stamp, outline

    def _kept(self, path: str) -> str | None:
        if self._folder is None:
            return None
        name = hashlib.sha256(os.path.abspath(path).encode("utf-8", "surrogateescape"))  # noqa: PTH100
        tag = f"{sys.version_info[0]}{sys.version_info[1]}"
        return f"{self._folder}{os.sep}{name.hexdigest()[:32]}.{tag}.outline"


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs more than the call
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size


def _cached(path: str | None, key: tuple[Any, ...]) -> Outline | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a Path costs more than the outline
            checksum, data = file.read(16), file.read()
    except OSError:
        return None
    if (
        digest_of(data) != checksum
    ):  # marshal trusts what it reads, so a torn file must not reach it
        return None
    found, parts = marshal.loads(data)  # noqa: S302 - written by us, as the checksum says
    return Outline(parts) if found == key else None


def _keep(path: str | None, key: tuple[Any, ...], outline: Outline) -> None:
    if path is None:
        return
    data = marshal.dumps((tuple(key), outline.parts))
    ours = f"{path}.{os.getpid()}.{time.time_ns()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(ours, "wb") as file:  # noqa: PTH123
            file.write(digest_of(data) + data)
        os.replace(ours, path)  # noqa: PTH105
    except OSError:
        return  # the outline is made anew next time
