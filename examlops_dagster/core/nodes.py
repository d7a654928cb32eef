"""The nodes of a graph at one moment: assets and those of their partitions that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.mappings import SharedKeys, upstream_keys
from examlops_dagster.core.partitions import PartitionSpace
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot

UNPARTITIONED = ("",)
QUARTER_SECONDS = 900


class Nodes:
    """The graph at one moment: which partitions exist, and what each reads.

    Parameters
    ----------
    graph
        The declared names and edges.
    snapshot
        Gives the time and the keys of dynamic spaces.
    """

    def __init__(self, graph: Graph, snapshot: Snapshot) -> None:
        self.graph = graph
        self._snapshot = snapshot
        self._keys: dict[str, Sequence[str]] = {}
        self._spaces: dict[str, PartitionSpace | None] = {}
        self._equal: dict[PartitionSpace, PartitionSpace] = {}
        self._shared: dict[tuple[str, str], SharedKeys | None] = {}

    def at(self, snapshot: Snapshot) -> Nodes:
        """Give the graph at another moment, with what is known already and does not differ.

        A window ends at a full hour of its zone, and all zones are quarters of an hour apart.
        """
        former, moved = self._snapshot, copy(self)
        moved._snapshot = snapshot  # noqa: SLF001 - of the same class
        same_windows = _quarter(former.now) == _quarter(snapshot.now)
        if not same_windows or former.dynamic != snapshot.dynamic:
            moved._keys, moved._shared = {}, {}  # noqa: SLF001
        return moved

    def space(self, name: str) -> PartitionSpace | None:
        """Give the partition space of an asset, equal ones as one object.

        Two of 10,000 keys each take 0.1 ms to compare, and that would be done for every key.
        """
        if name not in self._spaces:
            declared = self.graph.declarations[name].partitions
            self._spaces[name] = declared and self._equal.setdefault(declared, declared)
        return self._spaces[name]

    def keys(self, name: str) -> Sequence[str]:
        """Give the partition keys of an asset; one empty key without partitions."""
        found = self._keys.get(name)
        if found is None:
            space = self.graph.declarations[name].partitions
            found = UNPARTITIONED
            if space is not None:
                found = space.keys(self._snapshot.now, self._snapshot.dynamic)
            self._keys[name] = found
        return found

    def _shared_keys(self, name: str, upstream: str) -> SharedKeys | None:
        pair = (name, upstream)
        if pair not in self._shared:
            own, space = self.space(name), self.space(upstream)
            self._shared[pair] = None
            if own is not None and space is not None and own is not space:
                self._shared[pair] = SharedKeys.of(own, space, self.keys(upstream))
        return self._shared[pair]

    def of(self, name: str) -> list[Node]:
        """Give the nodes of an asset."""
        return [Node(name, key) for key in self.keys(name)]

    def scheduled(self) -> list[Node]:
        """Give the nodes that declare a Schedule."""
        return [
            node
            for name, declaration in self.graph.declarations.items()
            if isinstance(declaration.freshness, Schedule)
            for node in self.of(name)
        ]

    def upstreams(self, node: Node) -> list[tuple[Upstream, Sequence[str]]]:
        """Give the edges into a node, each with the keys of the upstream that it reads."""
        found: list[tuple[Upstream, Sequence[str]]] = []
        for edge in self.graph.declarations[node.asset].upstreams:
            space = self.space(edge.name)
            if space is None:
                found.append((edge, UNPARTITIONED))
                continue
            own, existing = self.space(node.asset), self.keys(edge.name)
            shared = self._shared_keys(node.asset, edge.name)
            wanted = upstream_keys(node.partition, edge.mapped, own, space, existing, shared)
            if edge.mapped is not None and edge.mapped.missing == "skip":
                built = self._snapshot.records
                wanted = [key for key in wanted if Node(edge.name, key) in built]
            found.append((edge, wanted))
        return found

    def reads(self, node: Node) -> dict[str, Sequence[str]]:
        """Give what a node reads of each upstream; one that is a dep and an input stands once."""
        found: dict[str, Sequence[str]] = {}
        for edge, keys in self.upstreams(node):
            former = found.setdefault(edge.name, keys)
            if former is not keys:
                found[edge.name] = tuple(dict.fromkeys((*former, *keys)))
        return found

    def ancestors(self, targets: Iterable[Node]) -> set[Node]:
        """Give ``targets`` and every node that they are made from."""
        found: set[Node] = set()
        waiting = list(targets)
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found.add(node)
            for edge, keys in self.upstreams(node):
                waiting.extend(Node(edge.name, key) for key in keys)
        return found


def _quarter(moment: datetime) -> int:
    return int(moment.timestamp() // QUARTER_SECONDS)
