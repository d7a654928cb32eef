"""What a build reads of datasets and aliases: the events that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.emissions import DatasetEvent, Emission
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.outlets import InletEvents, OutletEvents
from examlops_dagster.core.records import Node, Read, Record

NEWEST = 1 << 62
"""Above every version."""

LATEST_OF_INLETS = 100
"""Events of an inlet that is no upstream: its history may be long."""


class EventsLog(Protocol):
    """Remembers the events of datasets and aliases."""

    def events(
        self,
        name: str,
        *,
        alias: bool,
        after: int = 0,
        until: int = NEWEST,
        limit: int | None = None,
    ) -> list[DatasetEvent]:
        """Give events with versions above ``after`` up to ``until``, oldest first.

        Of more than ``limit`` the newest.
        """
        ...

    def last_batch(self, name: str, *, alias: bool, until: int) -> list[DatasetEvent]:
        """Give what the build that made a version emitted up to it, oldest first."""
        ...

    def first_after(self, name: str, *, alias: bool, after: int) -> tuple[int, str] | None:
        """Give version and data version of the oldest event behind a version."""
        ...


class Outbox(EventsLog, Protocol):
    """Takes events too."""

    def emit(self, source: Node, build_id: str, emissions: Sequence[Emission]) -> None:
        """Make what a successful build emits known."""
        ...


def next_reads(
    log: EventsLog, nodes: Nodes, node: Node, read: Mapping[Node, Read], former: Record | None
) -> dict[Node, Read]:
    """Give what a build is about to read, of ``each_event`` upstreams the next event alone."""
    found = dict(read)
    for edge in nodes.graph.declarations[node.asset].upstreams:
        upstream = Node(edge.name)
        now, was = read.get(upstream), _read_before(former, upstream)
        if not _is_by_event(edge) or now is None or was is None:
            continue
        following = log.first_after(edge.name, alias=_is_alias(nodes, edge.name), after=was.version)
        if following is not None and following[0] <= now.version:
            found[upstream] = Read(*following)
    return found


def new_events(
    log: EventsLog, nodes: Nodes, node: Node, read: Mapping[Node, Read], former: Record | None
) -> dict[str, list[DatasetEvent]]:
    """Give the events that a build is about: those since its last success, by upstream.

    A first build gets what made it runnable, not the history: the events of the last build that
    emitted (of ``each_event`` the last one).
    """
    declaration = nodes.graph.declarations[node.asset]
    found: dict[str, list[DatasetEvent]] = {}
    for edge in declaration.upstreams:
        if not nodes.graph.declarations[edge.name].is_emitted:
            continue
        alias = _is_alias(nodes, edge.name)
        now, was = read.get(Node(edge.name)), _read_before(former, Node(edge.name))
        if now is None:
            found[edge.name] = []
        elif was is not None:
            found[edge.name] = log.events(
                edge.name, alias=alias, after=was.version, until=now.version
            )
        elif _is_by_event(edge):
            found[edge.name] = log.events(
                edge.name, alias=alias, after=now.version - 1, until=now.version
            )
        else:
            found[edge.name] = log.last_batch(edge.name, alias=alias, until=now.version)
    for inlet in declaration.inlets:
        if inlet.name not in found:
            alias = _is_alias(nodes, inlet.name)
            found[inlet.name] = log.events(inlet.name, alias=alias, limit=LATEST_OF_INLETS)
    return found


def event_arguments(
    declaration: Declaration, events: Mapping[str, Sequence[DatasetEvent]]
) -> dict[str, Any]:
    """Give ``outlet_events`` and ``inlet_events`` to a function that asks for them."""
    given: dict[str, Any] = {}
    names = declaration.parameters.names
    if "outlet_events" in names:
        given["outlet_events"] = OutletEvents(declaration.name, declaration.outlets)
    if "inlet_events" in names:
        given["inlet_events"] = InletEvents(declaration.name, events)
    return given


def _is_alias(nodes: Nodes, name: str) -> bool:
    return nodes.graph.declarations[name].node_type is NodeType.ALIAS


def _is_by_event(edge: Upstream) -> bool:
    return edge.mapped is not None and edge.mapped.kind == "each_event"


def _read_before(former: Record | None, upstream: Node) -> Read | None:
    return (former.built_from or {}).get(upstream) if former is not None else None
