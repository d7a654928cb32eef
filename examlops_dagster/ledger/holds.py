"""Attempts without success in platform.db: those that are held, and those without an end yet."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from examlops_dagster.core.records import Attempt, BuildState, Hold, Node
from examlops_dagster.ledger.claims import living_claims
from examlops_dagster.ledger.rows import from_epoch, select, storable
from examlops_dagster.store.engine import Connection

PROCESS_DIED = "process died"

_HOLDS = (
    "SELECT asset, partition, fingerprint, failures, deaths, state, error, ended_at, run_id "
    "FROM holds"
)

_WITH_A_JOB = (
    "SELECT j.build_id FROM hpc_jobs j JOIN builds b ON b.build_id = j.build_id "
    "WHERE b.state = 'running' AND (j.ended_at IS NULL OR j.state = 'COMPLETED')"
)


def read_holds(
    connection: Connection, nodes: Iterable[Node] | None, now: datetime
) -> dict[Node, Hold]:
    """Give what is held; a process that died while it built counts, though nobody wrote it down."""
    found = {Node(row[0], row[1]): _hold(row) for row in select(connection, _HOLDS, nodes)}
    for attempt in dead_attempts(connection, nodes, now):
        former = found.get(attempt.node)
        found[attempt.node] = Hold.after(former, attempt, BuildState.DIED, PROCESS_DIED, now)
    return found


def running_attempts(connection: Connection, nodes: Iterable[Node] | None = None) -> list[Attempt]:
    """Give the attempts that have no end."""
    rows = select(
        connection,
        "SELECT asset, partition, build_id, fingerprint, code_version, orchestrator, run_id "
        "FROM builds WHERE state = 'running'",
        nodes,
    )
    return [Attempt(Node(r[0], r[1]), r[2], r[3], r[4], {}, r[5], r[6]) for r in rows]


def dead_attempts(
    connection: Connection, nodes: Iterable[Node] | None, now: datetime
) -> list[Attempt]:
    """Give the attempts that have no end, and nobody who works at them."""
    running = running_attempts(connection, nodes)
    if not running:
        return []
    alive = {claim.token for claim in living_claims(connection, now, nodes).values()}
    return [attempt for attempt in running if attempt.build_id not in alive]


def with_a_job(connection: Connection) -> set[str]:
    """Give the ids of attempts without an end whose batch job will be, or was, found again."""
    return {row[0] for row in connection.execute(_WITH_A_JOB)}


def write_failure(
    connection: Connection, attempt: Attempt, state: BuildState, error: str, now: datetime
) -> Hold:
    """Record the end of an attempt without success, inside a write transaction."""
    error = storable(error)
    connection.execute(
        "UPDATE builds SET state = :state, error = :error, ended_at = :now "
        "WHERE build_id = :build_id",
        state=state.value,
        error=error,
        now=now.timestamp(),
        build_id=attempt.build_id,
    )
    rows = connection.execute(
        f"{_HOLDS} WHERE asset = :asset AND partition = :partition", **attempt.node._asdict()
    )
    hold = Hold.after(_hold(rows[0]) if rows else None, attempt, state, error, now)
    connection.execute(
        "INSERT INTO holds (asset, partition, fingerprint, failures, deaths, state, error, "
        "ended_at, run_id) VALUES (:asset, :partition, :fingerprint, :failures, :deaths, "
        ":state, :error, :ended_at, :run_id) ON CONFLICT (asset, partition) DO UPDATE SET "
        "fingerprint = excluded.fingerprint, failures = excluded.failures, "
        "deaths = excluded.deaths, state = excluded.state, error = excluded.error, "
        "ended_at = excluded.ended_at, run_id = excluded.run_id",
        **attempt.node._asdict(),
        fingerprint=hold.fingerprint,
        failures=hold.failures,
        deaths=hold.deaths,
        state=hold.state.value,
        error=hold.error,
        ended_at=now.timestamp(),
        run_id=hold.run_id,
    )
    return hold


def write_death(connection: Connection, attempt: Attempt, now: datetime) -> Hold:
    """Record that the process of an attempt died over it, inside a write transaction."""
    return write_failure(connection, attempt, BuildState.DIED, PROCESS_DIED, now)


def drop_holds(connection: Connection, nodes: Iterable[Node]) -> None:
    """Forget what is held of nodes, inside a write transaction."""
    connection.execute_many(
        "DELETE FROM holds WHERE asset = :asset AND partition = :partition",
        [node._asdict() for node in nodes],
    )


def _hold(row: Any) -> Hold:
    return Hold(row[2], row[3], row[4], BuildState(row[5]), row[6], from_epoch(row[7]), row[8])
