"""Which approvals automation has to ask for: one for each slice that would run if it had it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from examlops_dagster.core.approvals import Approval, Gate
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge
from examlops_dagster.core.verdicts import State, Status


@dataclass(frozen=True)
class Asked:
    """A slice that waits for nothing but an approval.

    Attributes
    ----------
    gate
        The first that keeps it.
    nodes
        What would be built, and the sources that would be adopted by it.
    """

    gate: Gate
    nodes: list[Node] = field(default_factory=list)


def slices_to_ask(judge: Judge, verdicts: Mapping[Node, Status]) -> list[Asked]:
    """Give the slices for which nobody has asked yet.

    A slice is what would run by itself at once, hangs together, and is built from nothing that is
    still to be built outside of it, so that its fingerprints hold until it was built. What an
    approval is about already, whatever its state, is in none, with all that is below it.

    Parameters
    ----------
    judge
        Over a snapshot with the gates of policy.
    verdicts
        As it gives them.
    """
    return _Asking(judge, verdicts).slices()


class _Asking:
    def __init__(self, judge: Judge, verdicts: Mapping[Node, Status]) -> None:
        self._judge = judge
        self._verdicts = verdicts
        self._declared = judge.nodes.graph.declarations
        self._gates = {n: g for n, g in judge.snapshot.gates.items() if g.needs_approval}
        self._approvals: Collection[Approval] = {
            approval.id: approval for gate in self._gates.values() for approval in gate.approvals
        }.values()

    def slices(self) -> list[Asked]:
        if not self._gates:
            return []
        joined: dict[str, set[str]] = {}
        nodes = self._unasked()
        names = {node.asset for node in nodes}
        for node in nodes:
            mine = joined.setdefault(node.asset, {node.asset})
            for name in names.intersection(self._judge.nodes.reads(node)):
                theirs = joined[name]
                if theirs is not mine:
                    mine |= theirs
                    joined.update(dict.fromkeys(theirs, mine))
        found: dict[int, list[Node]] = {}
        for node in nodes:
            found.setdefault(id(joined[node.asset]), []).append(node)
        return [asked for members in found.values() if (asked := self._asked(members)) is not None]

    def _unasked(self) -> dict[Node, None]:
        """Give the nodes that missing approvals keep from running now, upstreams first."""
        gates = {n: g for n, g in self._judge.snapshot.gates.items() if not g.needs_approval}
        found: dict[Node, None] = {}
        for node, verdict in self._judge.under(gates).all().items():
            runs_already = self._verdicts[node].state is State.RUNNABLE
            if verdict.state is not State.RUNNABLE or runs_already:
                continue
            if not self._is_asked(node) and not self._waits_for_others(node, found):
                found[node] = None
        return found

    def _is_asked(self, node: Node) -> bool:
        return any(a.covers([node], self._judge.fingerprint) for a in self._approvals)

    def _waits_for_others(self, node: Node, slice_: Collection[Node]) -> bool:
        return any(
            upstream not in slice_
            and not self._declared[name].is_source
            and (verdict := self._verdicts.get(upstream)) is not None
            and bool(verdict.reasons)
            for name, keys in self._judge.nodes.reads(node).items()
            for upstream in (Node(name, key) for key in keys)
        )

    def _asked(self, members: list[Node]) -> Asked | None:
        """Make the slice of nodes that hang together; None where no gate of theirs is closed."""
        kept = [node for node in members if node.asset in self._gates]
        if not kept or all(self._declared[node.asset].is_source for node in members):
            return None
        sources = {s for node in members for s in self._unadopted(node)}
        return Asked(self._gates[kept[0].asset], [*sorted(sources - {*members}), *members])

    def _unadopted(self, node: Node) -> Iterator[Node]:
        for name, keys in self._judge.nodes.reads(node).items():
            if self._declared[name].is_source and name not in self._judge.nodes.graph.undeclared:
                for key in keys:
                    if Node(name, key) not in self._judge.snapshot.records:
                        yield Node(name, key)
