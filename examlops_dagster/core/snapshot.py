"""Everything outside the declarations that a verdict rests on, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from examlops_dagster.core.approvals import Gate
from examlops_dagster.core.records import Claim, Hold, Node, Record


class Snapshot(NamedTuple):
    """What is known of all nodes, taken at one moment.

    Attributes
    ----------
    now
        Aware UTC datetime.
    zone
        IANA name of the zone of schedules that name none.
    records, holds, claims
        As in the ledger.
    queued
        Nodes that a queued or started run, or an open backfill, is going to build.
    first_seen
        When automation first saw a scheduled node (aware UTC datetimes).
    dynamic
        Keys of dynamic partition spaces.
    gates
        What keeps automation from building an asset by itself, by name.
    """

    now: datetime
    zone: str = "UTC"
    records: Mapping[Node, Record] = {}
    holds: Mapping[Node, Hold] = {}
    claims: Mapping[Node, Claim] = {}
    queued: frozenset[Node] = frozenset()
    first_seen: Mapping[Node, datetime] = {}
    dynamic: Mapping[str, Sequence[str]] = {}
    gates: Mapping[str, Gate] = {}
