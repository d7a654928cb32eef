"""What is new of the upstreams of a node since it was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import Node, Read, Record
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.verdicts import Reason, ReasonKind


class Changes:
    """Holds the versions that a build recorded against those of one snapshot (rules 3 to 5).

    Parameters
    ----------
    nodes
        What exists and reads what.
    snapshot
        The versions that are current.
    """

    def __init__(self, nodes: Nodes, snapshot: Snapshot) -> None:
        self._nodes = nodes
        self._records = snapshot.records

    def reasons(self, node: Node, record: Record) -> list[Reason]:
        """Say what is new, changed or gone of what a node was built from."""
        built_from = record.built_from
        if built_from is None:
            return []
        declaration = self._nodes.graph.declarations[node.asset]
        reasons: list[Reason] = []
        conditional: dict[str, list[Reason]] = {}
        read: set[Node] = set()
        for name, keys in self._nodes.reads(node).items():
            read.update(Node(name, key) for key in keys)
            found = self._of_upstream(name, keys, built_from, record)
            if name in declaration.conditional:
                conditional[name] = found
            else:
                reasons.extend(found)
        for condition in declaration.conditions:
            if condition.holds(lambda name: bool(conditional[name])):
                reasons.extend(r for name in condition.leaves() for r in conditional[name])
        reasons = list(dict.fromkeys(reasons))
        gone: dict[str, list[Node]] = {}
        for upstream in built_from:
            if upstream not in read and record.build_id:
                gone.setdefault(upstream.asset, []).append(upstream)
        reasons.extend(
            Reason(ReasonKind.REMOVED, nodes[0], more=len(nodes) - 1) for nodes in gone.values()
        )
        return reasons

    def _of_upstream(
        self, name: str, keys: Sequence[str], built_from: Mapping[Node, Read], record: Record
    ) -> list[Reason]:
        """Say what is new of one upstream since a record was built."""
        not_recorded: list[Node] = []
        changed: list[tuple[Node, Read, Record]] = []
        for key in keys:
            upstream = Node(name, key)
            was, current = built_from.get(upstream), self._records.get(upstream)
            if was is None:
                awaited = current is None and self._nodes.graph.declarations[name].is_emitted
                if record.build_id and not awaited:
                    not_recorded.append(upstream)
            elif current is not None and current.data_version != was.data_version:
                changed.append((upstream, was, current))
        reasons: list[Reason] = []
        if not_recorded:
            reasons.append(
                Reason(ReasonKind.NOT_RECORDED, not_recorded[0], more=len(not_recorded) - 1)
            )
        if changed:
            upstream, was, current = changed[0]
            detail = f"{was.version} → {current.version}"
            reasons.append(Reason(ReasonKind.CHANGED, upstream, detail, len(changed) - 1))
        return reasons
