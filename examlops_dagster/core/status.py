"""Is it stale, why, and may it run now: decided from state, never from events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from examlops_dagster.core.approvals import Gate
from examlops_dagster.core.changes import Changes
from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import BuildState, Hold, Node, Record
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.ticks import Ticks
from examlops_dagster.core.verdicts import Reason, ReasonKind, State, Status
from examlops_dagster.core.versions import attempt_fingerprint

MAX_DEATHS = 3
"""Processes that die in a row over one fingerprint before it is held."""


def statuses(
    graph: Graph, snapshot: Snapshot, code_versions: Mapping[str, str]
) -> dict[Node, Status]:
    """Judge every node: those declared, in the order of the graph, then the historical ones.

    Parameters
    ----------
    graph
        Declared names and edges.
    snapshot
        Time, records, holds, claims, runs in flight.
    code_versions
        Of the loaded production functions, by name; a name that is absent is not judged by
        its code.
    """
    return Judge(graph, snapshot, code_versions).all()


class Judge:
    """Applies the rules over one snapshot; keeps the verdicts given so far.

    Parameters
    ----------
    graph, snapshot, code_versions
        As for `statuses`.
    nodes
        The nodes of that snapshot, where somebody has them already.
    """

    def __init__(
        self,
        graph: Graph,
        snapshot: Snapshot,
        code_versions: Mapping[str, str],
        nodes: Nodes | None = None,
    ) -> None:
        self.nodes = nodes or Nodes(graph, snapshot)
        self._graph = graph
        self.snapshot = snapshot
        self._code_versions = code_versions
        self._ticks = Ticks(graph, snapshot)
        self._changes = Changes(self.nodes, snapshot)
        self._verdicts: dict[Node, Status] = {}

    def all(self) -> dict[Node, Status]:
        """Judge every node that is declared or recorded."""
        for name in self._graph.declarations:
            for node in self.nodes.of(name):
                self._verdicts[node] = self._judge(node)
        for node, record in self.snapshot.records.items():
            if node not in self._verdicts:
                self._verdicts[node] = Status.of(node, State.HISTORICAL, record.version)
        return self._verdicts

    def under(self, gates: Mapping[str, Gate]) -> Judge:
        """Judge the same moment anew, under other gates of policy."""
        snapshot = self.snapshot._replace(gates=gates)
        return Judge(self._graph, snapshot, self._code_versions, self.nodes)

    def own_reasons(self, node: Node) -> list[Reason]:
        """Say why a node is stale by itself, whatever its upstreams still need (rules 1 to 6)."""
        declaration = self._graph.declarations[node.asset]
        record = self.snapshot.records.get(node)
        reasons: list[Reason] = []
        if record is None:
            reasons.append(Reason(ReasonKind.NEVER))
        else:
            if self._code_changed(declaration, record):
                reasons.append(Reason(ReasonKind.CODE))
            reasons.extend(self._changes.reasons(node, record))
        tick = self._ticks.passed(node)
        if tick is not None and record is not None:
            reasons.append(Reason(ReasonKind.TICK, detail=f"{tick:%Y-%m-%d %H:%M}"))
        return reasons

    def fingerprint(self, node: Node, within: Collection[Node] = ()) -> str:
        """Give the fingerprint of an attempt at this node now.

        Parameters
        ----------
        within
            A slice; whatever its nodes will come out as counts as the same.
        """
        declaration = self._graph.declarations[node.asset]
        inputs: dict[Node, str] = {}
        for edge, keys in self.nodes.upstreams(node):
            for key in keys:
                upstream = Node(edge.name, key)
                record = self.snapshot.records.get(upstream)
                inputs[upstream] = record.data_version if record else ""
                if upstream in within:
                    inputs[upstream] = "of the slice"
        return attempt_fingerprint(
            declaration,
            self._code_versions.get(node.asset, ""),
            inputs,
            self._ticks.due(node),
        )

    def is_held(self, node: Node, hold: Hold) -> bool:
        """Tell whether the attempts at a node are used up for what it would be built from now."""
        if hold.fingerprint != self.fingerprint(node):
            return False
        budget = 1 + self._graph.declarations[node.asset].retries
        return (
            hold.state is BuildState.CANCELLED
            or hold.failures >= budget
            or hold.deaths >= MAX_DEATHS
        )

    def _judge(self, node: Node) -> Status:
        declaration = self._graph.declarations[node.asset]
        record = self.snapshot.records.get(node)
        version = record.version if record is not None else 0
        if declaration.is_emitted:
            return self._judge_emitted(node, declaration, record)
        if node.asset in self._graph.undeclared:
            note = f"declare it: exa assets declare {node.asset}"
            return Status.of(node, State.UNDECLARED, version, note=note)
        reasons = self.own_reasons(node)
        reasons.extend(self._stale_upstreams(node))
        if record is not None and not record.build_id and reasons and record.built_from:
            note = "inputs not recorded"
        else:
            note = ""
        if node in self.snapshot.claims or node in self.snapshot.queued:
            return Status.of(node, State.RUNNING, version, reasons, note)
        hold = self.snapshot.holds.get(node)
        if not reasons:
            return Status.of(node, State.FRESH, version, note=_failed_since(record, hold))
        if hold is not None and self.is_held(node, hold):
            return Status.of(node, State.FAILED, version, reasons, hold.why, hold.shown)
        return self._eligible(node, declaration, record, reasons, note)

    @staticmethod
    def _judge_emitted(node: Node, declaration: Declaration, record: Record | None) -> Status:
        """Judge a dataset or alias: what its producers still have to do does not make it stale.

        They may emit nothing, and what is below is stale once an event is there.
        """
        if record is not None:
            return Status.of(node, State.FRESH, record.version)
        alias = declaration.node_type is NodeType.ALIAS
        note = "it was resolved to no dataset yet" if alias else "nobody emitted an event of it yet"
        shown = "unresolved" if alias else "without event"
        return Status.of(node, State.WAITING_FOR_UPSTREAM, 0, note=note, shown=shown)

    def _eligible(
        self,
        node: Node,
        declaration: Declaration,
        record: Record | None,
        reasons: list[Reason],
        note: str,
    ) -> Status:
        version = record.version if record is not None else 0
        shown = "never built" if record is None else "stale"
        awaited = self._ticks.awaited(node)
        if awaited:
            note = _joined(note, f"next tick {awaited}")
            return Status.of(node, State.WAITING_FOR_SCHEDULE, version, reasons, note)
        blocker = self._blocker(node)
        if blocker is not None:
            note = _joined(note, blocker)
            return Status.of(node, State.WAITING_FOR_UPSTREAM, version, reasons, note)
        if declaration.node_type is NodeType.EXTERNAL:
            note = "an asset of plain Dagster: materialize it there"
            return Status.of(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        if declaration.freshness is Manual:
            note = _joined(note, f"Manual: exa assets materialize {node.asset}")
            return Status.of(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        barred = self._barred(node)
        if barred:
            note = _joined(note, barred)
            return Status.of(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        return Status.of(node, State.RUNNABLE, version, reasons, note, shown)

    def _stale_upstreams(self, node: Node) -> Iterable[Reason]:
        conditional = self._graph.declarations[node.asset].conditional
        for name, keys in self.nodes.reads(node).items():
            if name in conditional:
                continue  # it counts once it has changed
            stale: list[Node] = []
            for key in keys:
                upstream = Node(name, key)
                verdict = self._verdicts.get(upstream)
                if verdict is None or verdict.reasons or verdict.state is State.UNDECLARED:
                    stale.append(upstream)
            if stale:
                yield Reason(ReasonKind.UPSTREAM, stale[0], more=len(stale) - 1)

    def _code_changed(self, declaration: Declaration, record: Record) -> bool:
        loaded = self._code_versions.get(declaration.name)
        if not record.build_id:
            return False  # made outside: nobody knows by which code
        return bool(record.code_version and loaded and record.code_version != loaded)

    def has_ticked(self, node: Node) -> bool:
        """Tell whether the schedule of a node lets it run now."""
        return self._ticks.due(node) is not None

    def moment(self, node: Node) -> datetime:
        """Give the tick that a build of a node now answers to, else now; in its schedule's zone."""
        return self._ticks.moment(node)

    def _blocker(self, node: Node) -> str | None:
        declaration = self._graph.declarations[node.asset]
        conditional: dict[str, str | None] = {}
        for name, keys in self.nodes.reads(node).items():
            found = next(filter(None, (self._blocks(Node(name, key)) for key in keys)), None)
            if name in declaration.conditional:
                conditional[name] = found
            elif found is not None:
                return found
        return next(filter(None, (c.lacks(conditional) for c in declaration.conditions)), None)

    def _blocks(self, upstream: Node) -> str | None:
        """Say why an upstream is not settled; None if it is."""
        verdict = self._verdicts.get(upstream)
        if verdict is None:
            return f"upstream {upstream} does not exist"
        if self._settled(verdict):
            return None
        remedy = _remedy(verdict, self._graph.declarations[upstream.asset])
        return f"upstream {upstream} is {verdict.shown}{remedy}"

    def _barred(self, node: Node) -> str:
        """Say what policy holds against automation building a node now; empty for nothing."""
        gate = self.snapshot.gates.get(node.asset)
        return gate.note(node, self.fingerprint) if gate is not None else ""

    def _settled(self, verdict: Status) -> bool:
        if verdict.state.settled:
            return True
        # whoever first needs a source adopts it; a dataset has events
        declaration = self._graph.declarations[verdict.node.asset]
        return (
            declaration.is_source
            and not declaration.is_emitted
            and verdict.state is not State.UNDECLARED
            and not self._barred(verdict.node)
        )


def _failed_since(record: Record | None, hold: Hold | None) -> str:
    """Say how the last attempt at a fresh node ended, where that was no success.

    Somebody forced it, or it is fresh again without one: the version that there is still stands.
    """
    if record is None or hold is None or hold.ended_at <= record.built_at:
        return ""
    return f"last attempt {hold.shown}: {hold.why}"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _remedy(verdict: Status, declaration: Declaration) -> str:
    if declaration.node_type is NodeType.EXTERNAL and verdict.state is not State.UNDECLARED:
        return f": {verdict.note}"
    if declaration.is_emitted:
        producers = [edge.name for edge in declaration.upstreams]
        emit = f": exa assets emit {declaration.name} URI"
        return f": exa assets materialize {' '.join(producers)}" if producers else emit
    if verdict.state is State.UNDECLARED:
        return f": exa assets declare {verdict.node.asset}"
    if verdict.state is State.FAILED:
        return f": exa assets retry {verdict.node.asset}"
    if verdict.state in (State.WAITING_FOR_REQUEST, State.WAITING_FOR_UPSTREAM):
        return f": exa assets materialize {verdict.node.asset}"
    return ""
