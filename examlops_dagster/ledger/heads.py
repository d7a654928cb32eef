"""What exists of a node, in platform.db: its head, and the numbers that were given to it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from examlops_dagster.core.records import Node, Record
from examlops_dagster.core.versions import next_version
from examlops_dagster.ledger.rows import dump_reads, from_epoch, load_reads, select
from examlops_dagster.store.engine import Connection


def read_heads(connection: Connection, nodes: Iterable[Node] | None) -> dict[Node, Record]:
    """Give what exists of nodes, or of all."""
    rows = select(
        connection,
        "SELECT asset, partition, version, data_version, code_version, built_from, built_at, "
        "build_id, run_id FROM heads",
        nodes,
    )
    return {
        Node(row[0], row[1]): Record(
            row[2],
            row[3],
            row[4],
            None if row[5] is None else load_reads(row[5]),
            from_epoch(row[6]),
            row[7],
            row[8],
        )
        for row in rows
    }


def allot_version(connection: Connection, node: Node, data_version: str, now: datetime) -> int:
    """Give a node's result its number, inside a write transaction."""
    rows = connection.execute(
        "SELECT version, data_version, built_at FROM heads "
        "WHERE asset = :asset AND partition = :partition",
        **node._asdict(),
    )
    former = None
    if rows:
        [row] = rows
        former = Record(row[0], row[1], None, None, from_epoch(row[2]))
    [[highest]] = connection.execute(
        "SELECT coalesce(max(version), 0) FROM versions "
        "WHERE asset = :asset AND partition = :partition",
        **node._asdict(),
    )
    version = next_version(former, max(highest, former.version if former else 0), data_version)
    connection.execute(
        "INSERT INTO versions (asset, partition, version, data_version, given_at) "
        "VALUES (:asset, :partition, :version, :data_version, :now) ON CONFLICT DO NOTHING",
        **node._asdict(),
        version=version,
        data_version=data_version,
        now=now.timestamp(),
    )
    return version


def set_head(
    connection: Connection, node: Node, record: Record, event_id: int | None = None
) -> None:
    """Make a record the current one of its node, inside a write transaction."""
    connection.execute(
        "INSERT INTO heads (asset, partition, version, data_version, code_version, built_from, "
        "built_at, build_id, run_id, event_id) VALUES (:asset, :partition, :version, "
        ":data_version, :code_version, :built_from, :built_at, :build_id, :run_id, :event_id) "
        "ON CONFLICT (asset, partition) DO UPDATE SET version = excluded.version, "
        "data_version = excluded.data_version, code_version = excluded.code_version, "
        "built_from = excluded.built_from, built_at = excluded.built_at, "
        "build_id = excluded.build_id, run_id = excluded.run_id, event_id = excluded.event_id",
        **node._asdict(),
        version=record.version,
        data_version=record.data_version,
        code_version=record.code_version,
        built_from=None if record.built_from is None else dump_reads(record.built_from),
        built_at=record.built_at.timestamp(),
        build_id=record.build_id,
        run_id=record.run_id,
        event_id=event_id,
    )


def advance_head(connection: Connection, node: Node, record: Record, event_id: int) -> None:
    """Make a record that rests on an event the current one of its node, inside a transaction.

    Not where a later event has been read already; the id alone does not tell (SQLite gives that of
    a deleted event anew), nor does the time.
    """
    rows = connection.execute(
        "SELECT 1 FROM heads WHERE asset = :asset AND partition = :partition "
        "AND event_id > :event_id AND built_at >= :built_at",
        **node._asdict(),
        event_id=event_id,
        built_at=record.built_at.timestamp(),
    )
    if not rows:
        set_head(connection, node, record, event_id)
