"""What the rows of platform.db hold: reads as JSON, times as seconds; and queries over nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.records import Node, Read
from examlops_dagster.store.engine import Connection

FEW_NODES = 50
"""Up to so many nodes are asked for one by one; beyond, by the names of their assets."""

MOST_NAMES = 500
"""Of one statement: SQLite once took no more than 999 parameters."""


def dump_reads(reads: Mapping[Node, Read]) -> str:
    """Write what a build read as JSON."""
    return json.dumps([[*node, *read] for node, read in reads.items()], separators=(",", ":"))


def load_reads(text: str) -> dict[Node, Read]:
    """Read what `dump_reads` wrote."""
    if text == "[]":
        return {}
    return {Node(a, p): Read(v, d) for a, p, v, d in json.loads(text)}


def dump_fingerprints(nodes: Mapping[Node, str]) -> str:
    """Write nodes, each with a fingerprint, as JSON."""
    return json.dumps([[*node, text] for node, text in nodes.items()])


def load_fingerprints(text: str) -> dict[Node, str]:
    """Read what `dump_fingerprints` wrote."""
    return {Node(a, p): fingerprint for a, p, fingerprint in json.loads(text)}


def from_epoch(seconds: float) -> datetime:
    """Give an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def storable(text: str) -> str:
    """Write out what no database takes: NUL, and the halves that stand for undecodable bytes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def slots(values: Iterable[str]) -> dict[str, str]:
    """Give each value a parameter of its own; the engine's have no digits in their names."""
    return {f"n{_letters(number)}": value for number, value in enumerate(values)}


def listed(names: Iterable[str]) -> str:
    """Write parameters as the list behind IN, without its brackets."""
    return ", ".join(f":{name}" for name in names)


def select(connection: Connection, sql: str, nodes: Iterable[Node] | None) -> list[Any]:
    """Run a query over all nodes, or over those named: one statement either way."""
    if nodes is None:
        return connection.execute(sql)
    wanted = set(nodes)
    joiner = " AND " if " WHERE " in sql else " WHERE "
    if len(wanted) <= FEW_NODES:  # of 10,000 partitions not all are read for one
        by_slot = {f"n{_letters(number)}": node for number, node in enumerate(wanted)}
        each = [f"(asset = :{slot}a AND partition = :{slot}p)" for slot in by_slot] or ["1 = 0"]
        named = {f"{slot}a": node.asset for slot, node in by_slot.items()}
        named |= {f"{slot}p": node.partition for slot, node in by_slot.items()}
        return connection.execute(f"{sql}{joiner}({' OR '.join(each)})", **named)
    names = list({node.asset for node in wanted})
    if len(names) > MOST_NAMES:  # everything is read then
        rows = connection.execute(sql)
    else:
        named = slots(names)
        rows = connection.execute(f"{sql}{joiner}asset IN ({listed(named)})", **named)
    return [row for row in rows if Node(row[0], row[1]) in wanted]


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
