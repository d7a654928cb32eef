"""Events of datasets and aliases as they are read of platform.db, and sent to Dagster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.emissions import DatasetEvent, Emission
from examlops_dagster.core.inlets import NEWEST
from examlops_dagster.core.records import Node, Record
from examlops_dagster.ledger.emissions import OUTSIDE, publish, stage
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Connection, Database


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
        "happened_at, version, data_version, partition FROM dataset_events "
        "WHERE build_id = :build_id ORDER BY dataset, version",
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
