"""Events of datasets and aliases in platform.db.

What a build emits is staged with its version, before Dagster has its event, and published with its
success: whoever completes the build publishes, also after a crash. A dataset is versioned by its
events; so is an alias, whose version is the number of the last event that went through it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.inlets import NEWEST
from examlops_dagster.core.outlets import DatasetEvent, Emission
from examlops_dagster.core.seams import Node, Record
from examlops_dagster.ledger.heads import allot_version, set_head
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Connection, Database

REPORTED = "reported-"
"""Start of the id of an event that others gave Dagster."""

OUTSIDE = ""
"""Source of an event that no node of ours emitted."""


@dataclass(frozen=True)
class Batch:
    """What one build emitted, for Dagster's event log.

    Attributes
    ----------
    events
        With the version of the dataset.
    aliases
        By name, the version and data version that each has now.
    """

    build_id: str
    events: tuple[DatasetEvent, ...]
    aliases: Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class AliasState:
    """What an alias was resolved to last.

    Attributes
    ----------
    producers
        Names of the nodes that may emit to it; empty for one that is not declared any more.
    version
        Number of events that went through it.
    last
        The latest of them; None before the first.
    """

    name: str
    producers: tuple[str, ...] = ()
    version: int = 0
    last: DatasetEvent | None = None


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


def dataset_records(connection: Connection, names: Iterable[str]) -> dict[Node, Record]:
    """Give what exists of datasets by their events; one without any is left out."""
    found: dict[Node, Record] = {}
    for name in names:
        rows = connection.execute(
            "SELECT version, data_version, happened_at, run_id FROM dataset_events "
            "WHERE dataset = :dataset AND partition = '' ORDER BY version DESC LIMIT 1",
            dataset=name,
        )
        for version, data_version, at, run_id in rows:
            found[Node(name)] = Record(
                version, data_version, None, {}, from_epoch(at), run_id=run_id
            )
    return found


class Outlets:
    """Reads events of one platform.db, and emits from outside of builds.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def emit(self, token: str, emissions: Sequence[Emission]) -> Batch:
        """Emit without a build: a producer outside says what it wrote."""
        now = datetime.now(timezone.utc)
        with self._database.write() as connection:
            stage(connection, token, emissions)
            publish(connection, token, Node(OUTSIDE), "", now)
            return _batch(connection, token)

    def unsent(self, asset: str, run_id: str) -> list[Batch]:
        """Give what the builds of an asset in a run emitted that Dagster does not have yet."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT build_id FROM unsent_outlets WHERE run_id = :run_id AND asset = :asset "
                "ORDER BY since",
                run_id=run_id,
                asset=asset,
            )
            return [_batch(connection, row[0]) for row in rows]

    def left_unsent(self, before: datetime) -> list[Batch]:
        """Give what was published before a moment and that nobody has sent."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT build_id FROM unsent_outlets WHERE since < :before ORDER BY since",
                before=before.timestamp(),
            )
            return [_batch(connection, row[0]) for row in rows]

    def sent(self, build_id: str) -> None:
        """Note that Dagster's event log has what a build emitted."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM unsent_outlets WHERE build_id = :build_id", build_id=build_id
            )

    def events(
        self,
        name: str,
        *,
        alias: bool,
        after: int = 0,
        until: int = NEWEST,
        limit: int | None = None,
    ) -> list[DatasetEvent]:
        """Give events of an alias or a dataset, oldest first.

        Parameters
        ----------
        after, until
            Versions, the first of them not included.
        limit
            At most so many, the newest.
        """
        where = "{v}.version > :after AND {v}.version <= :until ORDER BY {v}.version DESC"
        if limit is not None:
            where += f" LIMIT {int(limit)}"
        with self._database.read() as connection:
            rows = _rows(connection, name, where, alias=alias, after=after, until=until)
        return [_event(row) for row in reversed(rows)]

    def last_batch(self, name: str, *, alias: bool, until: int) -> list[DatasetEvent]:
        """Give what the build that made a version emitted up to it, oldest first."""
        with self._database.read() as connection:
            newest = _rows(connection, name, "{v}.version = :until", alias=alias, until=until)
            rows = [
                row
                for found in newest
                for row in _rows(
                    connection,
                    name,
                    "e.build_id = :build_id AND {v}.version <= :until ORDER BY {v}.version",
                    alias=alias,
                    build_id=found[-1],
                    until=until,
                )
            ]
        return list(map(_event, rows))

    def first_after(self, name: str, *, alias: bool, after: int) -> tuple[int, str] | None:
        """Give version and data version of the oldest event behind a version."""
        where = "{v}.version > :after ORDER BY {v}.version LIMIT 1"
        with self._database.read() as connection:
            rows = _rows(connection, name, where, alias=alias, after=after)
        return next(((row[8], row[9]) for row in rows), None)

    def resolved_aliases(self) -> dict[str, DatasetEvent]:
        """Give the last event of each alias that was ever resolved, by name."""
        with self._database.read() as connection:
            heads = connection.execute(
                "SELECT asset, version FROM heads WHERE EXISTS "
                "(SELECT 1 FROM alias_events a WHERE a.alias = heads.asset) ORDER BY asset"
            )
            return {
                alias: _event(row)
                for alias, version in heads
                for row in _rows(connection, alias, "{v}.version = :v", alias=True, v=version)
            }


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
        "VALUES (:id, :dataset, :partition, :version, :data_version, :extra, :dataset_extra, :aliases, :source, :source_partition, "
        ":build_id, :run_id, :now)",
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


def _rows(
    connection: Connection, name: str, where: str, *, alias: bool, **parameters: Any
) -> list[Any]:
    """Read events of an alias or a dataset; ``{v}`` is where the version stands."""
    versioned, named = ("a", "a.alias") if alias else ("e", "e.dataset")
    source = "alias_events a JOIN dataset_events e ON e.id = a.event"
    return connection.execute(
        f"SELECT e.dataset, e.extra, e.dataset_extra, e.aliases, e.source, "  # noqa: S608
        f"e.source_partition, e.run_id, e.happened_at, {versioned}.version, e.data_version, "
        f"e.partition, e.build_id FROM {source if alias else 'dataset_events e'} "
        f"WHERE {named} = :name AND {where.format(v=versioned)}",
        name=name,
        **parameters,
    )


def _event(row: Any) -> DatasetEvent:
    return DatasetEvent(
        row[0],
        json.loads(row[1]),
        json.loads(row[2]),
        tuple(json.loads(row[3])),
        row[4],
        row[5],
        row[6],
        from_epoch(row[7]),
        row[8],
        row[9],
        row[10],
    )


def _batch(connection: Connection, build_id: str) -> Batch:
    rows = connection.execute(
        "SELECT dataset, extra, dataset_extra, aliases, source, source_partition, run_id, "
        "happened_at, version, data_version, partition FROM dataset_events WHERE build_id = :build_id ORDER BY dataset, "
        "version",
        build_id=build_id,
    )
    through = connection.execute(
        "SELECT a.alias, a.version, e.id FROM alias_events a "
        "JOIN dataset_events e ON e.id = a.event WHERE e.build_id = :build_id "
        "ORDER BY a.alias, a.version",
        build_id=build_id,
    )
    aliases = {alias: (version, event) for alias, version, event in through}
    return Batch(build_id, tuple(map(_event, rows)), aliases)
