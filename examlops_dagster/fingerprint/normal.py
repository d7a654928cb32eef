"""The normal form of a syntax tree, of which hashes are taken.

Without positions, comments, docstrings, ``pass``, the annotations of functions and variables, and
the decorators of this package. ``ast.dump`` would not do: its text differs between Python versions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from examlops_dagster.fingerprint.outline import (
    Imported,
    Reference,
    digest_of,
    is_ours,
    sorted_references,
)
from examlops_dagster.fingerprint.scopes import Scope, binder_of, chain_of, imported_by


class Opened:
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
        self.scope: Scope | None = None
        self.decorators: list[tuple[Reference, bytes, tuple[int, int]]] = []


class _Waiting(NamedTuple):
    """A part of the tree on the stack, with the scope that its names belong to."""

    node: Any
    scope: Scope


_Stack: TypeAlias = list[Any]
_UNCOUNTED = frozenset(("ctx", "type_comment", "kind", "type_ignores"))
_FIELDS: dict[type, tuple[str, ...]] = {}
_LETTERS = {str: "s", bytes: "y", bool: "b", float: "f", complex: "c"}


class NormalForm:
    """Writes parts of a tree, and keeps the scopes and the definitions met on the way.

    Parameters
    ----------
    imports
        What the module imports, by which the decorators of this package are known.

    Attributes
    ----------
    scopes
        In the order in which they were opened; the first is the module.
    closed
        Definitions, inner ones first.
    """

    def __init__(self, imports: Mapping[str, Sequence[Imported]]) -> None:
        self.scopes: list[Scope] = []
        self.closed: list[Opened] = []
        self._imports = imports

    def new_scope(self, kind: str, parent: Scope | None, prefix: str = "") -> Scope:
        """Open a scope inside another."""
        scope = Scope(kind, parent, prefix or (parent.prefix if parent is not None else ""))
        self.scopes.append(scope)
        return scope

    def dump(self, nodes: Sequence[Any], scope: Scope, out: list[str]) -> None:
        """Write nodes in the normal form; with a stack, as trees may be deep."""
        stack: _Stack = [_Waiting(node, scope) for node in reversed(nodes)]
        while stack:
            item = stack.pop()
            if type(item) is str:
                out.append(item)
            elif type(item) is Opened:
                item.stop, item.last_scope = len(out), len(self.scopes)
                self.closed.append(item)
            else:
                node, inside = item
                handler = _HANDLERS.get(type(node))
                if handler is not None:
                    handler(self, node, inside, out, stack)
                else:
                    _generic(node, inside, out, stack)

    def references(
        self, run: tuple[int, int], within: Scope | None
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
                binder = binder_of(scope, root)
                if binder is None:
                    found.add(chain)
                elif root in binder.imports:
                    found.add((*binder.imports[root], rest))
                elif id(binder) in around:
                    free.add(chain)
        return sorted_references(found), free

    def _decorators(
        self, node: Any, scope: Scope, out: list[str]
    ) -> list[tuple[Reference, bytes, tuple[int, int]]]:
        found: list[tuple[Reference, bytes, tuple[int, int]]] = []
        for decorator in node.decorator_list:
            called = decorator
            while isinstance(called, ast.Call):
                called = called.func
            chain = chain_of(called)
            name: Reference = chain
            root, _, rest = chain.partition(".")
            imports = list(self._imports.get(root, ()))
            binder = binder_of(scope, root)
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

    def function(self, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
        """Write the head of a function or lambda, and leave its body on the stack."""
        is_lambda = isinstance(node, ast.Lambda)
        name = "<lambda>" if is_lambda else node.name
        decorators = [] if is_lambda else self._decorators(node, scope, out)
        line = node.lineno
        if not is_lambda:
            scope.bound.add(name)
            line = min((d.lineno for d in node.decorator_list), default=line)
        opened = Opened(f"{name}:{line}", out, len(self.scopes))
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

    def class_(self, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
        """Write the head of a class, and leave its body on the stack."""
        decorators = self._decorators(node, scope, out)
        scope.bound.add(node.name)
        opened = Opened(f"{scope.prefix}{node.name}", out, len(self.scopes))
        opened.decorators = decorators
        out.append(f"class {node.name}(")
        inner = self.new_scope("class", scope, f"{scope.prefix}{node.name}.")
        opened.scope = inner
        self.dump([*node.bases, *node.keywords], self.new_scope("inner", scope), out)
        out.append(":")
        stack.extend((opened, ")"))
        stack.extend(_Waiting(statement, inner) for statement in reversed(node.body))
        stack.extend(_Waiting(parameter, inner) for parameter in _type_parameters(node, inner))

    def comprehension(self, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
        """Leave a comprehension on the stack, its names in a scope of their own."""
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


_Handler: TypeAlias = Callable[[NormalForm, Any, Scope, list[str], _Stack], None]


def _generic(node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
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


def _name(_: NormalForm, node: Any, scope: Scope, out: list[str], __: _Stack) -> None:
    out.append(f"N {node.id}")
    (scope.loads if isinstance(node.ctx, ast.Load) else scope.bound).add(node.id)


def _attribute(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
    chain = chain_of(node)
    if chain:
        scope.loads.add(chain)
        out.append(f"A {chain}")
    else:
        out.append(f".{node.attr}")
        stack.append(_Waiting(node.value, scope))


def _constant(_: NormalForm, node: Any, __: Scope, out: list[str], ___: _Stack) -> None:
    value = node.value
    cls = type(value)
    # ascii, as what repr escapes depends on Python's Unicode tables; hex, as decimals have a limit
    out.append(hex(value) if cls is int else f"{_LETTERS.get(cls, '')}{value!a}")


def _expression(_: NormalForm, node: Any, scope: Scope, __: list[str], stack: _Stack) -> None:
    if not isinstance(node.value, ast.Constant):  # else a docstring, or text that does nothing
        stack.append(_Waiting(node.value, scope))
        stack.append("do")


def _nothing(_: NormalForm, __: Any, ___: Scope, ____: list[str], _____: _Stack) -> None:
    pass


def _annotated(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
    if scope.kind == "class":  # the fields of dataclasses and models are their annotations
        _generic(node, scope, out, stack)
    elif node.value is not None:
        _generic(ast.Assign(targets=[node.target], value=node.value), scope, out, stack)
    elif isinstance(node.target, ast.Name) and scope.kind != "module":
        scope.bound.add(node.target.id)


def _walrus(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
    holder = scope
    while holder.kind in ("comprehension", "inner") and holder.parent is not None:
        holder = holder.parent
    out.append(f":= {node.target.id}")
    holder.bound.add(node.target.id)
    stack.append(_Waiting(node.value, scope))


def _import(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
    for name, imported in imported_by(node):
        scope.bound.add(name)
        scope.imports[name] = imported
    _generic(node, scope, out, stack)


def _declared_outside(
    _: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack
) -> None:
    if isinstance(node, ast.Global):
        scope.globals.update(node.names)
    _generic(node, scope, out, stack)


def _binding(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
    name = getattr(node, "rest", None) or getattr(node, "name", None)
    if isinstance(name, str):
        scope.bound.add(name)
    _generic(node, scope, out, stack)


def _joined(_: NormalForm, node: Any, scope: Scope, out: list[str], stack: _Stack) -> None:
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
    ast.FunctionDef: NormalForm.function,
    ast.AsyncFunctionDef: NormalForm.function,
    ast.Lambda: NormalForm.function,
    ast.ClassDef: NormalForm.class_,
    ast.ListComp: NormalForm.comprehension,
    ast.SetComp: NormalForm.comprehension,
    ast.DictComp: NormalForm.comprehension,
    ast.GeneratorExp: NormalForm.comprehension,
}


def _type_parameters(node: Any, scope: Scope) -> list[Any]:
    parameters = list(getattr(node, "type_params", ()))
    scope.bound.update(parameter.name for parameter in parameters)
    return parameters
