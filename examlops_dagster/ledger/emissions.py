"""Writes events of datasets and aliases into platform.db.

What a build emits is staged with its version, before Dagster has its event, and published with its
success: whoever completes the build publishes, also after a crash. A dataset is versioned by its
events; so is an alias, whose version is the number of the last event that went through it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from examlops_dagster.core.emissions import DatasetEvent, Emission
from examlops_dagster.core.records import Node, Record
from examlops_dagster.ledger.heads import allot_version, set_head
from examlops_dagster.store.engine import Connection

REPORTED = "reported-"
"""Start of the id of an event that others gave Dagster."""

OUTSIDE = ""
"""Source of an event that no node of ours emitted."""


def stage(connection: Connection, build_id: str, emissions: Sequence[Emission]) -> None:
    """Keep what a build is going to emit if it succeeds, inside a write transaction."""
    if emissions:
        connection.execute(
            "INSERT INTO staged_outlets (build_id, emissions) VALUES (:build_id, :emissions) "
            "ON CONFLICT (build_id) DO UPDATE SET emissions = excluded.emissions",
            build_id=build_id,
            emissions=json.dumps([asdict(emission) for emission in emissions]),
        )


def publish(connection: Connection, build_id: str, node: Node, run_id: str, now: datetime) -> None:
    """Make what a build staged known, inside the transaction that records its success."""
    rows = connection.execute(
        "SELECT emissions FROM staged_outlets WHERE build_id = :build_id", build_id=build_id
    )
    if not rows:
        return
    connection.execute("DELETE FROM staged_outlets WHERE build_id = :build_id", build_id=build_id)
    staged = [Emission(**{**e, "aliases": tuple(e["aliases"])}) for e in json.loads(rows[0][0])]
    for number, emission in enumerate(staged):
        event_id = f"{build_id}.{number}"
        _insert(connection, event_id, emission, build_id, node, run_id, now)
    connection.execute(
        "INSERT INTO unsent_outlets (build_id, asset, run_id, since) "
        "VALUES (:build_id, :asset, :run_id, :now)",
        build_id=build_id,
        asset=node.asset,
        run_id=run_id,
        now=now.timestamp(),
    )


def record_reported(
    connection: Connection,
    name: str,
    emission: Emission,
    build_id: str,
    run_id: str,
    now: datetime,
) -> None:
    """Record an event that others gave Dagster, inside a write transaction; once for each id.

    Parameters
    ----------
    name
        Of the alias or dataset that they reported. A dataset has its version already.
    build_id
        Identifies the event.
    """
    if connection.execute("SELECT 1 FROM dataset_events WHERE id = :id", id=build_id):
        return
    nobody = Node(OUTSIDE)
    if name != emission.dataset:
        _insert(connection, build_id, emission, build_id, nobody, run_id, now)
        connection.execute(
            "INSERT INTO unsent_outlets (build_id, asset, run_id, since) "
            "VALUES (:build_id, '', '', 0)",
            build_id=build_id,
        )
        return
    head = _head(connection, Node(name))
    known = head is None or connection.execute(
        "SELECT 1 FROM dataset_events WHERE dataset = :name AND version = :version",
        name=name,
        version=head[0],
    )
    if head is not None and not known:
        _insert_event(connection, build_id, emission, build_id, nobody, run_id, now, *head)


def restore(
    connection: Connection,
    event: DatasetEvent,
    build_id: str,
    *,
    is_source: bool = False,
) -> None:
    """Record an event of ours that platform.db has lost, inside a write transaction."""
    event_id = event.data_version
    if connection.execute("SELECT 1 FROM dataset_events WHERE id = :id", id=event_id):
        return
    emission = Emission(
        event.uri, event.extra, event.dataset_extra, event.aliases, event.partition, is_source
    )
    source = Node(event.source, event.source_partition)
    _insert(connection, event_id, emission, build_id, source, event.run_id, event.at)


def _insert(
    connection: Connection,
    event_id: str,
    emission: Emission,
    build_id: str,
    source: Node,
    run_id: str,
    now: datetime,
) -> None:
    dataset = Node(emission.dataset, emission.partition)
    version = allot_version(connection, dataset, event_id, now)
    # of what others reported too the latest counts; of what nobody declared nothing is kept
    if emission.is_source or _head(connection, dataset) is not None:
        set_head(connection, dataset, Record(version, event_id, None, {}, now, run_id=run_id))
    _insert_event(connection, event_id, emission, build_id, source, run_id, now, version, event_id)
    for alias in emission.aliases:
        [[highest]] = connection.execute(
            "SELECT coalesce(max(version), 0) FROM alias_events WHERE alias = :alias", alias=alias
        )
        connection.execute(
            "INSERT INTO alias_events (alias, version, event) VALUES (:alias, :version, :event)",
            alias=alias,
            version=highest + 1,
            event=event_id,
        )
        record = Record(highest + 1, event_id, None, {}, now, run_id=run_id)
        set_head(connection, Node(alias), record)


def _head(connection: Connection, node: Node) -> tuple[int, str] | None:
    rows = connection.execute(
        "SELECT version, data_version FROM heads WHERE asset = :asset AND partition = :partition",
        **node._asdict(),
    )
    return (rows[0][0], rows[0][1]) if rows else None


def _insert_event(
    connection: Connection,
    event_id: str,
    emission: Emission,
    build_id: str,
    source: Node,
    run_id: str,
    now: datetime,
    version: int,
    data_version: str,
) -> None:
    connection.execute(
        "INSERT INTO dataset_events (id, dataset, partition, version, data_version, extra, "
        "dataset_extra, aliases, source, source_partition, build_id, run_id, happened_at) "
        "VALUES (:id, :dataset, :partition, :version, :data_version, :extra, :dataset_extra, "
        ":aliases, :source, :source_partition, :build_id, :run_id, :now)",
        id=event_id,
        dataset=emission.dataset,
        partition=emission.partition,
        version=version,
        aliases=json.dumps(emission.aliases),
        data_version=data_version,
        extra=json.dumps(dict(emission.extra)),
        dataset_extra=json.dumps(dict(emission.dataset_extra)),
        source=source.asset,
        source_partition=source.partition,
        build_id=build_id,
        run_id=run_id,
        now=now.timestamp(),
    )
