"""The code version of an asset: a fingerprint of its production function and of what that uses.

Names are followed from the source text of the user's own modules (`fingerprint_outline`), so a
version is the same whatever else a process has loaded. What no text shows (closure cells, a
notebook's names) is taken from the live objects.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.errors import DefinitionError, Problem
from examlops_dagster.fingerprint_outline import (
    PACKAGE,
    Imported,
    Outline,
    Outlines,
    Piece,
    Reference,
    digest_of,
    is_ours,
    normal_digest,
)


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
        self._graphs: dict[str, _Graph] = {}
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
            parts.append(_final(graph.node_of(declaration.function)))
        if declaration.code_deps:
            parts.extend(sorted(self._code_deps(declaration, graph, folder)))
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def loaded_code_is_older(self, declaration: Declaration) -> bool:
        """Whether the file of the production function was edited after it was first read."""
        file = _file(declaration)
        return bool(file) and not declaration.command and self._outlines.is_older(file)

    def _graph(self, function: Any) -> _Graph:
        """Give the memo that fits a function: installed packages count where they declare."""
        module_globals = getattr(function, "__globals__", {})
        adopted = _installed_package(module_globals)
        graph = self._graphs.get(adopted)
        if graph is None:
            graph = self._graphs[adopted] = _Graph(self._outlines, adopted)
        if module_globals:
            module = graph.modules.of_globals(module_globals)
            if module.is_reloaded():
                self._outlines.forget(module.file)
                self._graphs.clear()
                return self._graph(function)
            if module.own and module.outline is None:  # a notebook, whose names change
                return _Graph(self._outlines, adopted)
        return graph

    def _command(self, argv: Sequence[str], folder: str) -> bytes:
        parts: list[bytes] = []
        for word in argv:
            parts.append(digest_of(word if word != sys.executable else "python"))
            path = _existing(word, folder)
            if path is not None and os.path.isfile(path) and not _is_program(word):  # noqa: PTH113
                parts.append(self._content(path))
        return digest_of(b"".join(parts))

    def _code_deps(self, declaration: Declaration, graph: _Graph, folder: str) -> list[bytes]:
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


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120
_DEMO = f"{_HERE}demo{os.sep}"
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


@functools.cache
def _is_own_file(file: str) -> bool:
    if file.startswith(_HERE):
        return file.startswith(_DEMO)
    return not file.startswith(_STANDARD) and _INSTALLED.search(file) is None


def _installed_package(module_globals: dict[str, Any]) -> str:
    """Name the package of a function that was installed with ``pip install .``; else nothing.

    What an installed package declares is its own code, and so is the rest of that package.
    """
    file = module_globals.get("__file__") or ""
    top = str(module_globals.get("__name__", "")).partition(".")[0]
    if not file or top == PACKAGE or _is_own_file(file) or _INSTALLED.search(file) is None:
        return ""
    return top


class _Module:
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
        self.found: dict[Reference, tuple[_Target, ...]] = {}
        self.spec = namespace.get("__spec__") if namespace is not None else None

    def is_reloaded(self) -> bool:
        return self.namespace is not None and self.namespace.get("__spec__") is not self.spec

    def absolute(self, level: int, name: str) -> str:
        if level == 0:
            return name
        start = ".".join(self.package.split(".")[: len(self.package.split(".")) - level + 1])
        return f"{start}.{name}" if start and name else start or name


class _Modules:
    """The user's own modules, by name and by namespace."""

    def __init__(self, outlines: Outlines, adopted: str) -> None:
        self._outlines = outlines
        self._adopted = adopted
        self._by_globals: dict[int, _Module] = {}
        self._by_name: dict[str, _Module | None] = {}

    def of_globals(self, namespace: dict[str, Any]) -> _Module:
        known = self._by_globals.get(id(namespace))
        if known is None:
            path = namespace.get("__path__")
            known = _Module(
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

    def find(self, name: str) -> _Module | None:
        """Give a module of the user's; None for any other, and for one that does not exist."""
        if name not in self._by_name:
            self._by_name[name] = None  # also ends a search that leads back here
            loaded = sys.modules.get(name)
            if isinstance(loaded, ModuleType):
                module: _Module | None = self.of_globals(vars(loaded))
            else:
                module = self._unloaded(name) if name and name not in sys.modules else None
            self._by_name[name] = module if module is not None and module.own else None
        return self._by_name[name]

    def _unloaded(self, name: str) -> _Module | None:
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
                module = _Module(name, file or "", list(path) if path is not None else None)
                module.own = self._is_own(module, default=False)
                self._outline(module)
                return module
        return None

    def _is_own(self, module: _Module, *, default: bool) -> bool:
        if self._adopted and module.name.partition(".")[0] == self._adopted:
            return True
        if module.file:
            return _is_own_file(module.file)
        if module.path:
            return any(_is_own_file(folder + os.sep) for folder in module.path)
        return default

    def _outline(self, module: _Module) -> None:
        compiled = (".so", ".pyd", ".pyc", ".dll")
        if module.own and module.file and not module.file.endswith(compiled):
            module.outline = self._outlines.of_file(module.file)
            if module.outline is None and module.namespace is not None:
                module.outline = self._outlines.of_text(module.file, module.namespace)


class _Node:
    """A definition or an object, hashed with all that it leads to."""

    __slots__ = ("build", "edges", "final", "index", "local", "low", "next")

    def __init__(self, build: Callable[[_Parts], None]) -> None:
        self.build = build
        self.edges: list[tuple[str, _Node]] = []
        self.local = self.final = b""
        self.index = self.low = -1
        self.next = 0

    def open(self, index: int) -> None:
        parts = _Parts()
        try:
            self.build(parts)
        except Exception as error:  # noqa: BLE001 - a user's object may raise anything when read
            parts.texts.append(type(error).__qualname__)
        self.index = self.low = index
        self.edges = parts.edges
        self.local = digest_of("\n".join(parts.texts))
        if not self.edges:
            self.final = self.local


_Target: TypeAlias = str | _Node


class _Parts:
    """What a node is made of: texts, and edges to other nodes, each with a label."""

    __slots__ = ("edges", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.edges: list[tuple[str, _Node]] = []

    def add(self, label: str, targets: Iterable[_Target]) -> None:
        for target in targets:
            if isinstance(target, str):
                self.texts.append(f"{label}={target}")
            else:
                self.edges.append((label, target))


def _final(root: _Node) -> bytes:
    """Hash a node with all that can be reached from it, each strong component once (Tarjan)."""
    if root.final:
        return root.final
    count = 0
    root.open(count)
    path, component = [root], [root]
    while path:
        node = path[-1]
        if node.next < len(node.edges):
            child = node.edges[node.next][1]
            node.next += 1
            if child.index < 0:
                count += 1
                child.open(count)
                if not child.final:
                    path.append(child)
                    component.append(child)
            elif not child.final:
                node.low = min(node.low, child.index)
            continue
        path.pop()
        if path:
            path[-1].low = min(path[-1].low, node.low)
        if node.low == node.index and not node.final:
            at = len(component) - 1
            while component[at] is not node:
                at -= 1
            _close(component[at:])
            del component[at:]
    return root.final


def _close(members: list[_Node]) -> None:
    own: list[bytes] = []
    for member in members:
        # Sorted, as the functions in a set come in another order in every process.
        leads = sorted(label.encode() + (to.final or to.local) for label, to in member.edges)
        own.append(digest_of(member.local + b"\n".join(leads)))
    together = b"".join(sorted(own)) if len(members) > 1 else b""
    for member, digest in zip(members, own, strict=True):
        member.final = digest_of(digest + together) if together else digest


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


class _Graph:
    """Nodes of definitions and objects, made once each."""

    def __init__(self, outlines: Outlines, adopted: str) -> None:
        self.modules = _Modules(outlines, adopted)
        self._outlines = outlines
        self._definitions: dict[tuple[int, str], _Node] = {}
        self._objects: dict[int, tuple[Any, _Node]] = {}  # the object too, as ids are reused

    def node_of(self, thing: Any) -> _Node:
        """Give the node of a function, a class or any other live object."""
        known = self._objects.get(id(thing))
        if known is None:
            known = (thing, _Node(functools.partial(self._object, thing)))
            self._objects[id(thing)] = known
        return known[1]

    def explicit(self, thing: Any) -> bytes:
        """Hash a thing that the user named, also where it is not the user's own code."""

        def build(parts: _Parts) -> None:
            parts.add("named", self._value(thing))
            inner = getattr(thing, "__wrapped__", thing)
            loaded = sys.modules.get(getattr(inner, "__module__", None) or "")
            module = self.modules.of_globals(vars(loaded)) if loaded is not None else None
            if module is not None and not module.own and module.file.endswith(".py"):
                outline = self._outlines.of_file(module.file)
                name = getattr(inner, "__name__", "")
                if outline is not None and name in outline.definitions:
                    parts.texts.append(outline.definitions[name][0].hex())

        return _final(_Node(build))

    def resolve(self, module: _Module, reference: Reference) -> tuple[_Target, ...]:
        """Give what a reference means in a module; nothing for builtins and unknown names."""
        found = module.found.get(reference)
        if found is None:
            if isinstance(reference, str):
                found = self._look(module, reference.split("."), set())
            else:
                level, name, attribute, rest = reference
                parts = rest.split(".") if rest else []
                found = self._import(module, (level, name, attribute), parts, set())
            if module.outline is not None:
                module.found[reference] = found
        return found

    def _look(
        self, module: _Module, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[_Target, ...]:
        head, rest = parts[0], parts[1:]
        if (id(module), head) in seen:
            return ()
        seen.add((id(module), head))
        outline = module.outline
        if outline is not None:
            found: list[_Target] = []
            if head in outline.definitions:
                found.append(self._definition(module, head))
            imports = outline.imports.get(head, ())
            for imported in imports:
                if len(imports) + len(found) == 1 or self._is_bound(module, head, imported):
                    found.extend(self._import(module, imported, rest, seen))
            if found or imports:
                return tuple(found)
            for level, name in outline.stars:
                starred = self._starred(module.absolute(level, name), parts, seen)
                if starred:
                    return starred
        of_python = head.startswith("__") and head.endswith("__")  # __file__ is not code
        if module.namespace is not None and head in module.namespace and not of_python:
            return self._live(module.namespace[head], rest)
        return ()

    def _is_bound(self, module: _Module, name: str, imported: Imported) -> bool:
        """Whether one of several statements that bind a name is the one that did."""
        level, source, attribute = imported
        loaded = sys.modules.get(module.absolute(level, source))
        if module.namespace is None or self.modules.find(module.absolute(level, source)) is None:
            return True
        value = getattr(loaded, attribute, None) if attribute else loaded
        return value is not None and module.namespace.get(name) is value

    def _starred(
        self, name: str, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[_Target, ...]:
        module = self.modules.find(name)
        if module is not None:
            return self._look(module, parts, seen)
        return (f"{name}.{parts[0]}",) if hasattr(sys.modules.get(name), parts[0]) else ()

    def _import(
        self, module: _Module, imported: Imported, rest: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[_Target, ...]:
        level, name, attribute = imported
        absolute = module.absolute(level, name)
        parts = [attribute, *rest] if attribute else list(rest)
        source = self.modules.find(absolute)
        if source is None:
            return (".".join((absolute, *parts)),)
        return self._member(source, parts, seen)

    def _member(
        self, module: _Module, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[_Target, ...]:
        while parts:
            found = self._look(module, parts, seen)
            if found:
                return found
            below = self.modules.find(f"{module.name}.{parts[0]}") if module.path else None
            if below is None:
                return self._look(module, ("__getattr__",), seen)
            module, parts = below, parts[1:]
        return (self._definition(module, ""),)

    def _definition(self, module: _Module, name: str) -> _Node:
        """Give the node of a name of a module, or of all its names where it is used as a whole."""
        key = (id(module), name)
        node = self._definitions.get(key)
        if node is None:

            def build(parts: _Parts) -> None:
                outline = module.outline
                if outline is not None and name:
                    piece = Piece._make(outline.definitions[name])
                    self._piece(parts, module, piece)
                    self._references(parts, module, piece.defaults)
                elif outline is not None:
                    for each in sorted(outline.definitions):
                        parts.add(each, (self._definition(module, each),))

            node = self._definitions[key] = _Node(build)
        return node

    def _piece(self, parts: _Parts, module: _Module, piece: Piece) -> None:
        parts.texts.append(piece.digest.hex())
        self._references(parts, module, piece.references)
        for name, digest, references in piece.decorators:
            targets = self.resolve(module, name) if name else ()
            if not any(isinstance(target, str) and is_ours(target) for target in targets):
                parts.texts.append(digest.hex())
                self._references(parts, module, references)

    def _references(self, parts: _Parts, module: _Module, references: Iterable[Reference]) -> None:
        for reference in references:
            targets = self.resolve(module, reference)
            if targets:
                is_chain = isinstance(reference, str)
                parts.add(str(reference) if is_chain else ".".join(map(str, reference)), targets)

    def _live(self, value: Any, rest: Sequence[str]) -> tuple[_Target, ...]:
        if not isinstance(value, ModuleType):
            return self._value(value)
        module = self.modules.of_globals(vars(value))
        return self._member(module, rest, set()) if module.own else (module.name,)

    def _value(self, value: Any) -> tuple[_Target, ...]:
        found: list[_Target] = []
        text = self._text(value, found, set())
        return (text, *found)

    def _text(self, value: Any, found: list[_Target], within: set[int]) -> str:
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

    def _compound_text(self, value: Any, found: list[_Target], within: set[int]) -> str:
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

    def _code(self, value: Any) -> tuple[_Target, ...]:
        if isinstance(value, ModuleType):
            return self._live(value, ())
        return self._class(value) if isinstance(value, type) else (self.node_of(value),)

    def _class(self, cls: type) -> tuple[_Target, ...]:
        loaded = sys.modules.get(cls.__module__)
        module = self.modules.of_globals(vars(loaded)) if isinstance(loaded, ModuleType) else None
        if module is None or not module.own:
            return (f"{cls.__module__}.{cls.__qualname__}",)
        if module.outline is not None and "<locals>" not in cls.__qualname__:
            top = cls.__qualname__.partition(".")[0]
            if top in module.outline.definitions:
                return (self._definition(module, top),)
        return (self.node_of(cls),)

    def _object(self, thing: Any, parts: _Parts) -> None:
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

    def _function(self, function: FunctionType, parts: _Parts) -> None:
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
                self._piece(parts, module, piece)
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

    def _source(self, module: _Module, function: FunctionType) -> Piece | None:
        code = function.__code__
        outline = module.outline
        if code.co_filename != module.file and os.path.abspath(code.co_filename) != module.file:  # noqa: PTH100
            outline = self._outlines.of_text(code.co_filename, function.__globals__)
        return outline.function(code.co_name, code.co_firstlineno) if outline is not None else None

    def _defaults(
        self, function: FunctionType, piece: Piece, module: _Module, parts: _Parts
    ) -> None:
        """Take plain defaults by value: in ``for day in DAYS``, ``day=day`` is not all DAYS."""
        found: list[_Target] = []
        held = (function.__defaults__, function.__kwdefaults__)
        text = self._text(held, found, set())
        if found:
            self._references(parts, module, piece.defaults)
        else:
            parts.texts.append(text)

    def _bytecode(self, function: FunctionType, module: _Module, parts: _Parts) -> None:
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
            parts.add(name, self.resolve(module, name))
        parts.add("defaults", self._value([function.__defaults__, function.__kwdefaults__]))

    def _live_class(self, cls: type, parts: _Parts) -> None:
        """Take a class that no outline has at its top: a function's own, or a notebook's."""
        module = self.modules.of_globals(vars(sys.modules[cls.__module__]))
        outline = module.outline
        found = outline.classes.get(cls.__qualname__) if outline is not None else None
        if found is not None:
            self._piece(parts, module, Piece._make(found))
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

    def _instance(self, thing: Any, parts: _Parts) -> None:
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
