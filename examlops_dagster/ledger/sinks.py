"""How the last write of each sink ended, in platform.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from examlops_dagster.core.records import Node
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Database


@dataclass(frozen=True)
class SinkWrite:
    """One write of a value to a sink.

    Attributes
    ----------
    number
        Position of the sink in the declaration, from 1 on.
    url
        What was written, or the declared URL where it failed.
    data_version
        Of the value.
    error
        Empty when it was written.
    written_at
        Aware UTC datetime.
    """

    node: Node
    number: int
    url: str
    data_version: str
    error: str
    written_at: datetime


class SinkWrites:
    """Reads and writes the ends of sinks.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, writes: Iterable[SinkWrite]) -> None:
        """Keep how writes ended, in place of the former ones of those sinks."""
        with self._database.write() as connection:
            connection.execute_many(
                "INSERT INTO sink_writes (asset, partition, number, url, data_version, error, "
                "written_at) VALUES (:asset, :partition, :number, :url, :data_version, :error, "
                ":written_at) ON CONFLICT (asset, partition, number) DO UPDATE SET "
                "url = excluded.url, data_version = excluded.data_version, "
                "error = excluded.error, written_at = excluded.written_at",
                [
                    {
                        **write.node._asdict(),
                        "number": write.number,
                        "url": write.url,
                        "data_version": write.data_version,
                        "error": write.error,
                        "written_at": write.written_at.timestamp(),
                    }
                    for write in writes
                ],
            )

    def of(self, node: Node) -> list[SinkWrite]:
        """Give the last write of each sink of a node."""
        return self._select("WHERE asset = :asset AND partition = :partition", **node._asdict())

    def failed(self) -> list[SinkWrite]:
        """Give the sinks whose last write failed."""
        return self._select("WHERE error <> ''")

    def _select(self, clause: str, **parameters: str) -> list[SinkWrite]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT asset, partition, number, url, data_version, error, written_at "  # noqa: S608
                f"FROM sink_writes {clause} ORDER BY asset, partition, number",
                **parameters,
            )
        return [SinkWrite(Node(r[0], r[1]), r[2], r[3], r[4], r[5], from_epoch(r[6])) for r in rows]
