"""Is it stale, why, and may it run now: decided from state, never from events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.graph import Graph, Nodes
from examlops_dagster.core.partitions import TimeWindowSpace
from examlops_dagster.core.seams import BuildState, Hold, Node, Read, Record, Snapshot
from examlops_dagster.core.versions import attempt_fingerprint

MAX_DEATHS = 3
"""Processes that die in a row over one fingerprint before it is held."""


class State(Enum):
    """What may happen to a node now; the value is what JSON shows."""

    FRESH = "fresh"
    RUNNABLE = "runnable_stale"
    WAITING_FOR_SCHEDULE = "stale_waiting_for_schedule"
    WAITING_FOR_UPSTREAM = "stale_waiting_for_upstream"
    WAITING_FOR_REQUEST = "stale_waiting_for_request"
    RUNNING = "running"
    FAILED = "failed"
    HISTORICAL = "historical"
    UNDECLARED = "undeclared"

    @property
    def shown(self) -> str:
        """The words for people."""
        return _SHOWN.get(self, self.value)

    @property
    def settled(self) -> bool:
        """Whether a node below may run, in the plan of all that may run now."""
        return self in (State.FRESH, State.RUNNABLE)

    @property
    def in_order(self) -> bool:
        """Whether ``exa assets status --check`` lets it pass."""
        return self in (State.FRESH, State.RUNNING, State.HISTORICAL)


_SHOWN = {
    State.RUNNABLE: "stale",
    State.WAITING_FOR_SCHEDULE: "waiting for schedule",
    State.WAITING_FOR_UPSTREAM: "waiting for upstream",
    State.WAITING_FOR_REQUEST: "waiting for request",
}


class ReasonKind(Enum):
    """Why a node is stale; the values are what JSON shows."""

    NEVER = "never_materialized"
    CODE = "code_changed"
    NOT_RECORDED = "upstream_not_recorded"
    CHANGED = "upstream_changed"
    REMOVED = "upstream_removed"
    TICK = "tick_passed"
    UPSTREAM = "upstream_stale"


@dataclass(frozen=True)
class Reason:
    """One reason for which a node is stale.

    Attributes
    ----------
    upstream
        The upstream that it is about, where there is one.
    detail
        Versions or tick, ready to be shown.
    more
        How many further partitions of the same upstream it holds for.
    """

    kind: ReasonKind
    upstream: Node | None = None
    detail: str = ""
    more: int = 0

    def __str__(self) -> str:
        text = _WORDS[self.kind].format(upstream=self.upstream, detail=self.detail)
        return f"{text} (+{self.more} more)" if self.more else text


_WORDS = {
    ReasonKind.NEVER: "never materialized",
    ReasonKind.CODE: "code changed",
    ReasonKind.NOT_RECORDED: "upstream {upstream} not recorded at build",
    ReasonKind.CHANGED: "upstream {upstream} changed ({detail})",
    ReasonKind.REMOVED: "upstream {upstream} removed",
    ReasonKind.TICK: "tick {detail} passed",
    ReasonKind.UPSTREAM: "upstream {upstream} is stale",
}


@dataclass(frozen=True)
class Status:
    """The verdict on one node.

    Attributes
    ----------
    version
        Integer version; 0 before the first build.
    reasons
        Why it is stale; empty when it is not.
    note
        What holds it up and the command that helps, or the last line of its error.
    shown
        State in the words that people read.
    """

    node: Node
    state: State
    version: int = 0
    reasons: tuple[Reason, ...] = ()
    note: str = ""
    shown: str = ""

    @property
    def why(self) -> tuple[str, ...]:
        """Reasons and note in words."""
        words = tuple(map(str, self.reasons))
        return (*words, self.note) if self.note else words


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
        self._verdicts: dict[Node, Status] = {}

    def all(self) -> dict[Node, Status]:
        """Judge every node that is declared or recorded."""
        for name in self._graph.declarations:
            for node in self.nodes.of(name):
                self._verdicts[node] = self._judge(node)
        for node, record in self.snapshot.records.items():
            if node not in self._verdicts:
                self._verdicts[node] = _status(node, State.HISTORICAL, record.version)
        return self._verdicts

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
            reasons.extend(self._upstream_reasons(node, record))
        tick = self._passed_tick(node, declaration, record)
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
        record = self.snapshot.records.get(node)
        return attempt_fingerprint(
            declaration,
            self._code_versions.get(node.asset, ""),
            inputs,
            self._due_tick(node, declaration, record),
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
            return _status(node, State.UNDECLARED, version, note=note)
        reasons = self.own_reasons(node)
        reasons.extend(self._stale_upstreams(node))
        if record is not None and not record.build_id and reasons and record.built_from:
            note = "inputs not recorded"
        else:
            note = ""
        if node in self.snapshot.claims or node in self.snapshot.queued:
            return _status(node, State.RUNNING, version, reasons, note)
        if not reasons:
            return _status(node, State.FRESH, version)
        hold = self.snapshot.holds.get(node)
        if hold is not None and self.is_held(node, hold):
            shown = "failed" if hold.state is BuildState.DIED else hold.state.value
            error = hold.error or ("process died" if hold.state is BuildState.DIED else "")
            return _status(node, State.FAILED, version, reasons, error, shown)
        return self._eligible(node, declaration, record, reasons, note)

    @staticmethod
    def _judge_emitted(node: Node, declaration: Declaration, record: Record | None) -> Status:
        """Judge a dataset or alias: what its producers still have to do does not make it stale.

        They may emit nothing, and what is below is stale once an event is there.
        """
        if record is not None:
            return _status(node, State.FRESH, record.version)
        alias = declaration.node_type is NodeType.ALIAS
        note = "it was resolved to no dataset yet" if alias else "nobody emitted an event of it yet"
        shown = "unresolved" if alias else "without event"
        return _status(node, State.WAITING_FOR_UPSTREAM, 0, note=note, shown=shown)

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
        schedule = declaration.freshness
        if isinstance(schedule, Schedule) and not self._is_due(node, schedule, record):
            following = schedule.next_tick(self.snapshot.now, self.snapshot.zone)
            note = _joined(note, f"next tick {self._local(schedule, following)}")
            return _status(node, State.WAITING_FOR_SCHEDULE, version, reasons, note)
        blocker = self._blocker(node)
        if blocker is not None:
            note = _joined(note, blocker)
            return _status(node, State.WAITING_FOR_UPSTREAM, version, reasons, note)
        if declaration.node_type is NodeType.EXTERNAL:
            note = "an asset of plain Dagster: materialize it there"
            return _status(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        if declaration.freshness is Manual:
            note = _joined(note, f"Manual: exa assets materialize {node.asset}")
            return _status(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        barred = self._barred(node)
        if barred:
            note = _joined(note, barred)
            return _status(node, State.WAITING_FOR_REQUEST, version, reasons, note)
        return _status(node, State.RUNNABLE, version, reasons, note, shown)

    def _upstream_reasons(self, node: Node, record: Record) -> list[Reason]:
        built_from = record.built_from
        if built_from is None:
            return []
        declaration = self._graph.declarations[node.asset]
        reasons: list[Reason] = []
        conditional: dict[str, list[Reason]] = {}
        read: set[Node] = set()
        for name, keys in self._edges_once(node):
            read.update(Node(name, key) for key in keys)
            found = self._changes(name, keys, built_from, record)
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

    def _changes(
        self, name: str, keys: Sequence[str], built_from: Mapping[Node, Read], record: Record
    ) -> list[Reason]:
        """Say what is new of one upstream since a record was built."""
        not_recorded: list[Node] = []
        changed: list[tuple[Node, Read, Record]] = []
        for key in keys:
            upstream = Node(name, key)
            was, current = built_from.get(upstream), self.snapshot.records.get(upstream)
            if was is None:
                awaited = current is None and self._graph.declarations[name].is_emitted
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

    def _stale_upstreams(self, node: Node) -> Iterable[Reason]:
        conditional = self._graph.declarations[node.asset].conditional
        for name, keys in self._edges_once(node):
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

    def _edges_once(self, node: Node) -> Iterable[tuple[str, Sequence[str]]]:
        """Give the upstreams of a node, one that is a dep and an input only once."""
        found: dict[str, Sequence[str]] = {}
        for edge, keys in self.nodes.upstreams(node):
            former = found.setdefault(edge.name, keys)
            if former is not keys:
                found[edge.name] = tuple(dict.fromkeys((*former, *keys)))
        return found.items()

    def _code_changed(self, declaration: Declaration, record: Record) -> bool:
        loaded = self._code_versions.get(declaration.name)
        if not record.build_id:
            return False  # made outside: nobody knows by which code
        return bool(record.code_version and loaded and record.code_version != loaded)

    def _due_tick(
        self, node: Node, declaration: Declaration, record: Record | None
    ) -> datetime | None:
        """Give the tick that an attempt now answers to, or None: each one gives a new chance."""
        schedule = declaration.freshness
        if isinstance(schedule, Schedule) and self._is_due(node, schedule, record):
            return schedule.latest_tick(self.snapshot.now, self.snapshot.zone)
        return None

    def _passed_tick(
        self, node: Node, declaration: Declaration, record: Record | None
    ) -> datetime | None:
        """Give the tick that makes a node stale by itself (rule 6), or None."""
        schedule = declaration.freshness
        ticks = isinstance(schedule, Schedule) and (
            schedule.rebuild == "always"
            or declaration.node_type in (NodeType.SENSOR, NodeType.TASK)
            or declaration.is_root
        )
        if not ticks:
            return None
        if record is not None and _built_after_window(declaration, node, record):
            return None
        return self._due_tick(node, declaration, record)

    def _is_due(self, node: Node, schedule: Schedule, record: Record | None) -> bool:
        since = record.built_at if record is not None else self.snapshot.first_seen.get(node)
        if since is None:
            return False
        return schedule.latest_tick(self.snapshot.now, self.snapshot.zone) > since

    def has_ticked(self, node: Node) -> bool:
        """Tell whether the schedule of a node lets it run now."""
        schedule = self._graph.declarations[node.asset].freshness
        record = self.snapshot.records.get(node)
        return isinstance(schedule, Schedule) and self._is_due(node, schedule, record)

    def moment(self, node: Node) -> datetime:
        """Give the tick that a build of a node now answers to, else now; in its schedule's zone."""
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where something is built

        schedule = self._graph.declarations[node.asset].freshness
        moment, zone = self.snapshot.now, self.snapshot.zone
        if isinstance(schedule, Schedule):
            zone = schedule.timezone or zone
            if self._is_due(node, schedule, self.snapshot.records.get(node)):
                moment = schedule.latest_tick(moment, zone)
        return moment.astimezone(ZoneInfo(zone))

    def _local(self, schedule: Schedule, tick: datetime) -> str:
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where a schedule is shown

        zone = schedule.timezone or self.snapshot.zone
        return f"{tick.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"

    def _blocker(self, node: Node) -> str | None:
        declaration = self._graph.declarations[node.asset]
        conditional: dict[str, str | None] = {}
        for name, keys in self._edges_once(node):
            found = next(filter(None, (self._blocks(Node(name, key)) for key in keys)), None)
            if name in declaration.conditional:
                conditional[name] = found
            elif found is not None:
                return found
        for condition in declaration.conditions:
            if not condition.holds(lambda name: conditional[name] is None):
                return next(filter(None, (conditional[name] for name in condition.leaves())))
        return None

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
        # a source that nobody adopted yet is adopted by whoever first needs it; a dataset has events
        declaration = self._graph.declarations[verdict.node.asset]
        return (
            declaration.is_source
            and not declaration.is_emitted
            and verdict.state is not State.UNDECLARED
            and not self._barred(verdict.node)
        )


def first_sights(
    nodes: Nodes, seen: Mapping[Node, datetime], now: datetime
) -> dict[Node, datetime]:
    """Give the scheduled nodes that nobody noted yet, each with when it counts as seen.

    That is now. A window of an asset that was seen before counts from its own end on: who looks
    but once a day, after the tick, must not find each day's partition a day late.

    Parameters
    ----------
    nodes
        What exists.
    seen
        What was noted.
    now
        Aware UTC datetime.
    """
    earliest: dict[str, datetime] = {}
    for node, moment in seen.items():
        earliest[node.asset] = min(moment, earliest.get(node.asset, moment))
    found: dict[Node, datetime] = {}
    for node in nodes.scheduled():
        if node in seen:
            continue
        ended = _window_ended(nodes.graph.declarations[node.asset], node)
        known = earliest.get(node.asset)
        found[node] = now if ended is None or known is None else max(known, ended)
    return found


def _status(
    node: Node,
    state: State,
    version: int,
    reasons: Iterable[Reason] = (),
    note: str = "",
    shown: str = "",
) -> Status:
    return Status(node, state, version, tuple(reasons), note, shown or state.shown)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _built_after_window(declaration: Declaration, node: Node, record: Record) -> bool:
    """Tell whether a partition of a time window ticks no more: its window ended before."""
    ended = _window_ended(declaration, node)
    return ended is not None and record.built_at >= ended


def _window_ended(declaration: Declaration, node: Node) -> datetime | None:
    """Give when the window of a partition ended; None for one without a window."""
    if declaration.partitions is None:
        return None
    keys = declaration.partitions.split(node.partition)
    ends = [
        space.window(keys[name])[1].astimezone(timezone.utc)
        for name, space in declaration.partitions.dimensions
        if isinstance(space, TimeWindowSpace)
    ]
    return max(ends, default=None)


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
