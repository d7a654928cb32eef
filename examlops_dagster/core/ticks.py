"""The ticks of schedules, held against when a node was built or first seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot


class Ticks:
    """What the schedules of a graph say at the moment of one snapshot.

    Parameters
    ----------
    graph
        Declared names and edges.
    snapshot
        Time, zone, records, and when scheduled nodes were first seen.
    """

    def __init__(self, graph: Graph, snapshot: Snapshot) -> None:
        self._graph = graph
        self._snapshot = snapshot

    def awaited(self, node: Node) -> str:
        """Say which tick a scheduled node waits for; empty where it waits for none."""
        schedule = self._graph.declarations[node.asset].freshness
        if not isinstance(schedule, Schedule) or self.due(node) is not None:
            return ""
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where a schedule is shown

        zone = schedule.timezone or self._snapshot.zone
        following = schedule.next_tick(self._snapshot.now, self._snapshot.zone)
        return f"{following.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"

    def due(self, node: Node) -> datetime | None:
        """Give the tick that an attempt now answers to, or None: each one gives a new chance."""
        schedule = self._graph.declarations[node.asset].freshness
        if not isinstance(schedule, Schedule):
            return None
        record = self._snapshot.records.get(node)
        since = record.built_at if record is not None else self._snapshot.first_seen.get(node)
        if since is None:
            return None
        latest = schedule.latest_tick(self._snapshot.now, self._snapshot.zone)
        return latest if latest > since else None

    def passed(self, node: Node) -> datetime | None:
        """Give the tick that makes a node stale by itself (rule 6), or None."""
        declaration = self._graph.declarations[node.asset]
        schedule = declaration.freshness
        ticks = isinstance(schedule, Schedule) and (
            schedule.rebuild == "always"
            or declaration.node_type in (NodeType.SENSOR, NodeType.TASK)
            or declaration.is_root
        )
        if not ticks:
            return None
        record = self._snapshot.records.get(node)
        if record is not None:
            ended = window_ended(declaration, node)
            if ended is not None and record.built_at >= ended:
                return None  # built after its window: it ticks no more
        return self.due(node)

    def moment(self, node: Node) -> datetime:
        """Give the tick that a build of a node now answers to, else now; in its schedule's zone."""
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where something is built

        schedule = self._graph.declarations[node.asset].freshness
        zone = self._snapshot.zone
        if isinstance(schedule, Schedule):
            zone = schedule.timezone or zone
        return (self.due(node) or self._snapshot.now).astimezone(ZoneInfo(zone))


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
        ended = window_ended(nodes.graph.declarations[node.asset], node)
        known = earliest.get(node.asset)
        found[node] = now if ended is None or known is None else max(known, ended)
    return found


def window_ended(declaration: Declaration, node: Node) -> datetime | None:
    """Give when the window of a partition ended; None for one without a window."""
    if declaration.partitions is None:
        return None
    windows = declaration.partitions.windows(node.partition)
    return max((end.astimezone(timezone.utc) for _, end in windows), default=None)
