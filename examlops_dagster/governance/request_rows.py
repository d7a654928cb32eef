"""Rows of ``requests`` in platform.db: what somebody asked for, and the runs that act for it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from examlops_dagster.core.records import Node
from examlops_dagster.governance.decision import Action
from examlops_dagster.ledger.rows import dump_fingerprints, from_epoch, load_fingerprints
from examlops_dagster.store.engine import Connection

MATERIALIZED = Action.MATERIALIZE.value

AUTOMATION = "automation"
"""The actor, and the source, of what Dagster's daemon requests by itself."""

REQUESTS = "SELECT id, action, actor, source, nodes, refusal, details, asked_at FROM requests"
OPEN = REQUESTS.replace(" FROM", ", process FROM")


@dataclass(frozen=True)
class Request:
    """One thing that somebody asked for.

    Attributes
    ----------
    nodes
        What it is about, each with a fingerprint where one counts.
    refusal
        Why nothing may be built by it; empty where it may.
    asked_at
        Aware UTC datetime.
    """

    id: str
    action: str
    actor: str
    source: str
    nodes: Mapping[Node, str]
    asked_at: datetime
    refusal: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def assets(self) -> list[str]:
        """Names of the assets, each once."""
        return list(dict.fromkeys(node.asset for node in self.nodes))


def read_request(row: Any) -> Request:
    """Make a request of a row of `REQUESTS`."""
    nodes = load_fingerprints(row[4])
    return Request(
        row[0], row[1], row[2], row[3], nodes, from_epoch(row[7]), row[5], json.loads(row[6])
    )


def request_by_id(connection: Connection, id_: str) -> Request | None:
    """Give a request; None where there is none."""
    rows = connection.execute(f"{REQUESTS} WHERE id = :id", id=id_)
    return read_request(rows[0]) if rows else None


def insert_request(connection: Connection, request: Request, process: str | None) -> None:
    """Write a request down; one that no process carries out is closed already."""
    connection.execute(
        "INSERT INTO requests (id, action, actor, source, nodes, refusal, details, process, "
        "asked_at, closed) VALUES (:id, :action, :actor, :source, :nodes, :refusal, :details, "
        ":process, :now, :closed)",
        id=request.id,
        action=request.action,
        actor=request.actor,
        source=request.source,
        nodes=dump_fingerprints(request.nodes),
        refusal=request.refusal,
        details=json.dumps(dict(request.details), default=str),
        process=process or "",
        now=request.asked_at.timestamp(),
        closed=int(process is None),
    )


def bind_run(connection: Connection, id_: str, run_id: str, nodes: Collection[Node]) -> None:
    """Let a run act for a request."""
    connection.execute(
        "INSERT INTO request_runs (run_id, request_id, nodes) VALUES (:run_id, :id, :nodes) "
        "ON CONFLICT DO NOTHING",
        run_id=run_id,
        id=id_,
        nodes=json.dumps([list(node) for node in nodes]),
    )


def request_of_run(connection: Connection, run_id: str) -> Request | None:
    """Give the request that a run acts for."""
    rows = connection.execute(
        "SELECT request_id FROM request_runs WHERE run_id = :run_id", run_id=run_id
    )
    return request_by_id(connection, rows[0][0]) if rows else None
