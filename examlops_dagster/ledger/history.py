"""Past attempts in ``builds``, as ``exa assets history`` shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examlops_dagster.core.records import BuildState, Node, Read
from examlops_dagster.ledger.rows import from_epoch, load_reads
from examlops_dagster.store.engine import Connection

NOT_BUILT = ("report", "outside")
"""Orchestrators of records that are no builds of ours: an adopted source or one that changed, a
content of others."""

_BUILDS = (
    "SELECT asset, partition, build_id, state, version, data_version, built_from, "
    "orchestrator, run_id, provenance, error, started_at, ended_at FROM builds"
)


@dataclass(frozen=True)
class Build:
    """One row of ``builds``.

    Attributes
    ----------
    version, data_version
        Of the result; None without one.
    error
        Last line of the error; empty without one.
    started_at, ended_at
        Aware UTC datetimes.
    """

    node: Node
    build_id: str
    state: BuildState
    version: int | None
    data_version: str | None
    built_from: Mapping[Node, Read]
    orchestrator: str
    run_id: str
    provenance: Mapping[str, str]
    error: str
    started_at: datetime
    ended_at: datetime | None


def history_of(
    connection: Connection, asset: str, partition: str | None, limit: int
) -> list[Build]:
    """Give the latest builds of a node, newest first; of all partitions where none is named."""
    clause, named = "", {}
    if partition is not None:
        clause, named = " AND partition = :partition", {"partition": partition}
    rows = connection.execute(
        f"{_BUILDS} WHERE asset = :asset{clause} ORDER BY id DESC LIMIT :limit",
        asset=asset,
        limit=limit,
        **named,
    )
    return list(map(_build, rows))


def builds_of_run(connection: Connection, run_id: str) -> dict[Node, Build]:
    """Give the last build of each node in a Dagster run."""
    rows = connection.execute(f"{_BUILDS} WHERE run_id = :run_id ORDER BY id", run_id=run_id)
    return {build.node: build for build in map(_build, rows)}


def _build(row: Any) -> Build:
    return Build(
        Node(row[0], row[1]),
        row[2],
        BuildState(row[3]),
        row[4],
        row[5],
        load_reads(row[6]),
        row[7],
        row[8],
        json.loads(row[9]),
        row[10],
        from_epoch(row[11]),
        None if row[12] is None else from_epoch(row[12]),
    )
