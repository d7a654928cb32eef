"""The graph of what a function uses: definitions by their text, the rest by the live objects."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from examlops_dagster.fingerprint.cache import Outlines
from examlops_dagster.fingerprint.modules import Module, Modules
from examlops_dagster.fingerprint.names import Names
from examlops_dagster.fingerprint.nodes import Node, Parts, Target, final_digest
from examlops_dagster.fingerprint.outline import Piece

_PLAIN = frozenset((bool, bytes, complex, float, str, type(None), type(Ellipsis)))
_REPRESENTED = frozenset(("datetime", "decimal", "fractions", "ipaddress", "uuid", "zoneinfo"))
"""Modules of the standard library whose objects have a repr that says all."""


def _simple_text(value: Any) -> str | None:
    """Describe a value that holds no others; None if its type says all that can be said."""
    cls = type(value)
    if isinstance(value, PurePath):
        return f"Path({value.as_posix()!a})"
    if isinstance(value, re.Pattern):
        return f"re({value.pattern!a},{value.flags})"
    if cls.__module__ in _REPRESENTED or cls in (range, slice, bytearray):
        return ascii(value)
    base: Any
    for base in (int, float, complex, str, bytes):
        if isinstance(value, base) and not isinstance(value, Enum):
            return f"{cls.__qualname__}({base(value)!a})"
    return None


class Graph:
    """Nodes of definitions and objects, made once each."""

    def __init__(self, outlines: Outlines, adopted: str) -> None:
        self.modules = Modules(outlines, adopted)
        self._outlines = outlines
        self._names = Names(self.modules, self._live)
        self._objects: dict[int, tuple[Any, Node]] = {}  # the object too, as ids are reused

    def node_of(self, thing: Any) -> Node:
        """Give the node of a function, a class or any other live object."""
        known = self._objects.get(id(thing))
        if known is None:
            known = (thing, Node(functools.partial(self._object, thing)))
            self._objects[id(thing)] = known
        return known[1]

    def explicit(self, thing: Any) -> bytes:
        """Hash a thing that the user named, also where it is not the user's own code."""

        def build(parts: Parts) -> None:
            parts.add("named", self._value(thing))
            inner = getattr(thing, "__wrapped__", thing)
            loaded = sys.modules.get(getattr(inner, "__module__", None) or "")
            module = self.modules.of_globals(vars(loaded)) if loaded is not None else None
            if module is not None and not module.own and module.file.endswith(".py"):
                outline = self._outlines.of_file(module.file)
                name = getattr(inner, "__name__", "")
                if outline is not None and name in outline.definitions:
                    parts.texts.append(outline.definitions[name][0].hex())

        return final_digest(Node(build))

    def _live(self, value: Any, rest: Sequence[str]) -> tuple[Target, ...]:
        if not isinstance(value, ModuleType):
            return self._value(value)
        module = self.modules.of_globals(vars(value))
        return self._names.member(module, rest, set()) if module.own else (module.name,)

    def _value(self, value: Any) -> tuple[Target, ...]:
        found: list[Target] = []
        text = self._text(value, found, set())
        return (text, *found)

    def _text(self, value: Any, found: list[Target], within: set[int]) -> str:
        """Describe a value by a text that is the same in every process.

        Functions, classes and modules in it are put into ``found``.
        """
        cls = type(value)
        if cls in _PLAIN:
            return ascii(value)
        if cls is int:
            return hex(value)  # decimals of more than 4,300 digits are refused
        if isinstance(value, (type, ModuleType)) or callable(value):
            found.extend(self._code(value))
            name = getattr(value, "__qualname__", None)
            return name if isinstance(name, str) else cls.__qualname__
        if id(value) in within:
            return "..."
        within.add(id(value))
        try:
            return self._compound_text(value, found, within)
        except RecursionError:
            return cls.__qualname__
        finally:
            within.discard(id(value))

    def _compound_text(self, value: Any, found: list[Target], within: set[int]) -> str:
        def text(part: Any) -> str:
            return self._text(part, found, within)

        cls = type(value)
        if isinstance(value, (tuple, list)):
            return f"{cls.__qualname__}[{','.join(map(text, value))}]"
        if isinstance(value, (set, frozenset)):
            return f"{cls.__qualname__}{{{','.join(sorted(map(text, value)))}}}"
        if isinstance(value, dict):
            items = sorted(f"{text(k)}:{text(v)}" for k, v in value.items())
            return f"{cls.__qualname__}{{{','.join(items)}}}"
        simple = _simple_text(value)
        if simple is not None:
            return simple
        found.extend(self._class(cls))
        detail = ""
        if isinstance(value, Enum):
            detail = f".{value.name}"
        elif is_dataclass(value):
            detail = text({f.name: getattr(value, f.name, None) for f in fields(value)})
        return f"{cls.__qualname__}{detail}"

    def _code(self, value: Any) -> tuple[Target, ...]:
        if isinstance(value, ModuleType):
            return self._live(value, ())
        return self._class(value) if isinstance(value, type) else (self.node_of(value),)

    def _class(self, cls: type) -> tuple[Target, ...]:
        loaded = sys.modules.get(cls.__module__)
        module = self.modules.of_globals(vars(loaded)) if isinstance(loaded, ModuleType) else None
        if module is None or not module.own:
            return (f"{cls.__module__}.{cls.__qualname__}",)
        if module.outline is not None and "<locals>" not in cls.__qualname__:
            top = cls.__qualname__.partition(".")[0]
            if top in module.outline.definitions:
                return (self._names.definition(module, top),)
        return (self.node_of(cls),)

    def _object(self, thing: Any, parts: Parts) -> None:
        """Take the parts of a live object; the types are those that stand for a function."""
        if isinstance(thing, FunctionType):
            self._function(thing, parts)
        elif isinstance(thing, type):
            self._live_class(thing, parts)
        elif isinstance(thing, MethodType):
            parts.add("function", (self.node_of(thing.__func__),))
            parts.add("self", self._code(thing.__self__))
        elif isinstance(thing, functools.partial):
            parts.add("function", self._value(thing.func))
            parts.add("arguments", self._value((thing.args, thing.keywords)))
        elif isinstance(thing, property):
            parts.add("property", self._value([thing.fget, thing.fset, thing.fdel]))
        elif isinstance(thing, (staticmethod, classmethod)):
            parts.add(type(thing).__name__, self._value(thing.__func__))
        else:
            self._instance(thing, parts)
        if "__wrapped__" in getattr(thing, "__dict__", ()) or hasattr(type(thing), "__wrapped__"):
            parts.add("wrapped", self._value(thing.__wrapped__))

    def _function(self, function: FunctionType, parts: Parts) -> None:
        code = function.__code__
        module = self.modules.of_globals(function.__globals__)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        chains = {name: [name] for name in cells}
        if not module.own:
            parts.texts.append(f"{module.name}.{code.co_name}")
        else:
            piece = self._source(module, function)
            if piece is None:
                self._bytecode(function, module, parts)
            else:
                self._names.add_piece(parts, module, piece)
                for chain in piece.free:
                    chains.setdefault(chain.partition(".")[0], []).append(chain)
                if piece.defaults:
                    self._defaults(function, piece, module, parts)
        for name in sorted(cells):
            try:
                value = cells[name].cell_contents
            except ValueError:  # not yet bound
                continue
            used = chains[name][1:] or chains[name]
            for chain in used if isinstance(value, ModuleType) else [name]:
                parts.add(chain, self._live(value, chain.split(".")[1:]))

    def _source(self, module: Module, function: FunctionType) -> Piece | None:
        code = function.__code__
        outline = module.outline
        if code.co_filename != module.file and os.path.abspath(code.co_filename) != module.file:  # noqa: PTH100
            outline = self._outlines.of_text(code.co_filename, function.__globals__)
        return outline.function(code.co_name, code.co_firstlineno) if outline is not None else None

    def _defaults(self, function: FunctionType, piece: Piece, module: Module, parts: Parts) -> None:
        """Take plain defaults by value: in ``for day in DAYS``, ``day=day`` is not all DAYS."""
        found: list[Target] = []
        held = (function.__defaults__, function.__kwdefaults__)
        text = self._text(held, found, set())
        if found:
            self._names.add_references(parts, module, piece.defaults)
        else:
            parts.texts.append(text)

    def _bytecode(self, function: FunctionType, module: Module, parts: Parts) -> None:
        waiting = [function.__code__]
        names: set[str] = set()
        while waiting:
            code = waiting.pop()
            names.update(code.co_names)
            inner = [c for c in code.co_consts if isinstance(c, CodeType)]
            constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
            if constants and constants[0] == function.__doc__:
                constants[0] = None
            parts.texts.append(f"{code.co_code.hex()} {code.co_names} {code.co_argcount}")
            parts.add("constants", self._value(constants))
            waiting.extend(inner)
        for name in sorted(names & function.__globals__.keys()):
            parts.add(name, self._names.resolve(module, name))
        parts.add("defaults", self._value([function.__defaults__, function.__kwdefaults__]))

    def _live_class(self, cls: type, parts: Parts) -> None:
        """Take a class that no outline has at its top: a function's own, or a notebook's."""
        module = self.modules.of_globals(vars(sys.modules[cls.__module__]))
        outline = module.outline
        found = outline.classes.get(cls.__qualname__) if outline is not None else None
        if found is not None:
            self._names.add_piece(parts, module, Piece._make(found))
        parts.texts.append(cls.__qualname__)
        for base in cls.__bases__:
            parts.add("base", self._class(base))
        for name, value in sorted(vars(cls).items()):
            inner = getattr(value, "__func__", value)
            if found is not None and not getattr(inner, "__closure__", None):
                continue
            held = isinstance(value, (FunctionType, classmethod, property, staticmethod))
            if held:
                parts.add(name, (self.node_of(value),))
            elif not name.startswith(("__", "_abc_")):
                parts.add(name, self._value(value))

    def _instance(self, thing: Any, parts: Parts) -> None:
        cls = type(thing)
        name = getattr(thing, "__qualname__", None)
        if isinstance(name, str) and not hasattr(thing, "__dict__"):  # a function of C
            parts.texts.append(f"{getattr(thing, '__module__', '')}.{name}")
            return
        kind = self._class(cls)
        parts.add("type", kind)
        held: dict[str, Any] = getattr(thing, "__dict__", {})
        if any(not isinstance(target, str) for target in kind):
            parts.add("held", self._value({k: v for k, v in held.items() if k[:2] != "__"}))
        else:  # an installed type may hold anything, and its state may vary
            for key, value in sorted(held.items()):
                if isinstance(value, (FunctionType, MethodType)):
                    parts.add(key, (self.node_of(value),))
