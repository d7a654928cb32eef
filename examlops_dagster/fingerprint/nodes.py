"""Nodes of definitions and objects, each hashed with all that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from examlops_dagster.fingerprint.outline import digest_of


class Node:
    """A definition or an object, hashed with all that it leads to."""

    __slots__ = ("build", "edges", "final", "index", "local", "low", "next")

    def __init__(self, build: Callable[[Parts], None]) -> None:
        self.build = build
        self.edges: list[tuple[str, Node]] = []
        self.local = self.final = b""
        self.index = self.low = -1
        self.next = 0

    def open(self, index: int) -> None:
        """Take in the node's own parts, when the walk first meets it."""
        parts = Parts()
        try:
            self.build(parts)
        except Exception as error:  # noqa: BLE001 - a user's object may raise anything when read
            parts.texts.append(type(error).__qualname__)
        self.index = self.low = index
        self.edges = parts.edges
        self.local = digest_of("\n".join(parts.texts))
        if not self.edges:
            self.final = self.local


Target: TypeAlias = str | Node
"""What a name or a value leads to: a node, or a text where there is nothing to follow."""


class Parts:
    """What a node is made of: texts, and edges to other nodes, each with a label."""

    __slots__ = ("edges", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.edges: list[tuple[str, Node]] = []

    def add(self, label: str, targets: Iterable[Target]) -> None:
        """Add what something of this label leads to."""
        for target in targets:
            if isinstance(target, str):
                self.texts.append(f"{label}={target}")
            else:
                self.edges.append((label, target))


def final_digest(root: Node) -> bytes:
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


def _close(members: list[Node]) -> None:
    own: list[bytes] = []
    for member in members:
        # Sorted, as the functions in a set come in another order in every process.
        leads = sorted(label.encode() + (to.final or to.local) for label, to in member.edges)
        own.append(digest_of(member.local + b"\n".join(leads)))
    together = b"".join(sorted(own)) if len(members) > 1 else b""
    for member, digest in zip(members, own, strict=True):
        member.final = digest_of(digest + together) if together else digest
