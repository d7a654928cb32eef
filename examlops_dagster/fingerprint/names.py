"""What a name in a module of the user's means, as the source text says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from examlops_dagster.fingerprint.modules import Module, Modules
from examlops_dagster.fingerprint.nodes import Node, Parts, Target
from examlops_dagster.fingerprint.outline import Imported, Piece, Reference, is_ours


class Names:
    """Looks names up, and makes the node of each definition once.

    Parameters
    ----------
    modules
        The user's own.
    live
        Gives what attributes of a live value lead to, where no text has the name.
    """

    def __init__(
        self, modules: Modules, live: Callable[[Any, Sequence[str]], tuple[Target, ...]]
    ) -> None:
        self._modules = modules
        self._live = live
        self._definitions: dict[tuple[int, str], Node] = {}

    def resolve(self, module: Module, reference: Reference) -> tuple[Target, ...]:
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
        self, module: Module, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[Target, ...]:
        head, rest = parts[0], parts[1:]
        if (id(module), head) in seen:
            return ()
        seen.add((id(module), head))
        outline = module.outline
        if outline is not None:
            found: list[Target] = []
            if head in outline.definitions:
                found.append(self.definition(module, head))
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

    def _is_bound(self, module: Module, name: str, imported: Imported) -> bool:
        """Whether one of several statements that bind a name is the one that did."""
        level, source, attribute = imported
        loaded = sys.modules.get(module.absolute(level, source))
        if module.namespace is None or self._modules.find(module.absolute(level, source)) is None:
            return True
        value = getattr(loaded, attribute, None) if attribute else loaded
        return value is not None and module.namespace.get(name) is value

    def _starred(
        self, name: str, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[Target, ...]:
        module = self._modules.find(name)
        if module is not None:
            return self._look(module, parts, seen)
        return (f"{name}.{parts[0]}",) if hasattr(sys.modules.get(name), parts[0]) else ()

    def _import(
        self, module: Module, imported: Imported, rest: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[Target, ...]:
        level, name, attribute = imported
        absolute = module.absolute(level, name)
        parts = [attribute, *rest] if attribute else list(rest)
        source = self._modules.find(absolute)
        if source is None:
            return (".".join((absolute, *parts)),)
        return self.member(source, parts, seen)

    def member(
        self, module: Module, parts: Sequence[str], seen: set[tuple[int, str]]
    ) -> tuple[Target, ...]:
        """Give what an attribute chain on a module means; all of the module without one."""
        while parts:
            found = self._look(module, parts, seen)
            if found:
                return found
            below = self._modules.find(f"{module.name}.{parts[0]}") if module.path else None
            if below is None:
                return self._look(module, ("__getattr__",), seen)
            module, parts = below, parts[1:]
        return (self.definition(module, ""),)

    def definition(self, module: Module, name: str) -> Node:
        """Give the node of a name of a module, or of all its names where it is used as a whole."""
        key = (id(module), name)
        node = self._definitions.get(key)
        if node is None:

            def build(parts: Parts) -> None:
                outline = module.outline
                if outline is not None and name:
                    piece = Piece._make(outline.definitions[name])
                    self.add_piece(parts, module, piece)
                    self.add_references(parts, module, piece.defaults)
                elif outline is not None:
                    for each in sorted(outline.definitions):
                        parts.add(each, (self.definition(module, each),))

            node = self._definitions[key] = Node(build)
        return node

    def add_piece(self, parts: Parts, module: Module, piece: Piece) -> None:
        """Add a definition's own text, what it refers to, and its decorators."""
        parts.texts.append(piece.digest.hex())
        self.add_references(parts, module, piece.references)
        for name, digest, references in piece.decorators:
            targets = self.resolve(module, name) if name else ()
            if not any(isinstance(target, str) and is_ours(target) for target in targets):
                parts.texts.append(digest.hex())
                self.add_references(parts, module, references)

    def add_references(self, parts: Parts, module: Module, references: Iterable[Reference]) -> None:
        """Add what references of a module mean."""
        for reference in references:
            targets = self.resolve(module, reference)
            if targets:
                is_chain = isinstance(reference, str)
                parts.add(str(reference) if is_chain else ".".join(map(str, reference)), targets)
