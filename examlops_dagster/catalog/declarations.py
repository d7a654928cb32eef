"""The declarations made from the command line, in platform.db."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from examlops_dagster.core.declarations import DEFAULT_KIND, Declaration, Upstream
from examlops_dagster.core.partitions import parse_space
from examlops_dagster.store.engine import Database

COMMAND_LINE = "command line"


class Catalog:
    """Reads and writes the declarations of platform.db.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(
        self,
        name: str,
        *,
        now: datetime,
        actor: str,
        kind: str = DEFAULT_KIND,
        deps: Sequence[str] = (),
        description: str | None = None,
        partitions: str | None = None,
    ) -> Declaration:
        """Write a declaration, in place of a former one of that name, and give it.

        Parameters
        ----------
        now
            Aware UTC datetime.
        actor
            Who declares.
        partitions
            Text such as ``daily:2024-01-01``; see `parse_space`.

        Raises
        ------
        ValueError
            If ``partitions`` cannot be read; nothing is written.
        """
        declaration = _declaration(name, kind, deps, description, partitions)
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO declarations (name, kind, deps, description, partitions, "
                "declared_by, declared_at) VALUES (:name, :kind, :deps, :description, "
                ":partitions, :actor, :now) ON CONFLICT (name) DO UPDATE SET "
                "kind = excluded.kind, deps = excluded.deps, description = excluded.description, "
                "partitions = excluded.partitions, declared_by = excluded.declared_by, "
                "declared_at = excluded.declared_at",
                name=name,
                kind=kind,
                deps=json.dumps(list(deps)),
                description=description,
                partitions=partitions,
                actor=actor,
                now=now.timestamp(),
            )
        return declaration

    def undeclare(self, name: str) -> bool:
        """Remove a declaration; False when there was none."""
        with self._database.write() as connection:
            return bool(
                connection.execute(
                    "DELETE FROM declarations WHERE name = :name RETURNING name", name=name
                )
            )

    def all(self) -> list[Declaration]:
        """Give every declaration, in the order in which they were made."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT name, kind, deps, description, partitions FROM declarations "
                "ORDER BY declared_at, name"
            )
        return [_declaration(r[0], r[1], json.loads(r[2]), r[3], r[4]) for r in rows]


def _declaration(
    name: str, kind: str, deps: Sequence[str], description: str | None, partitions: str | None
) -> Declaration:
    return Declaration(
        name,
        kind=kind,
        upstreams=tuple(Upstream(dep) for dep in deps),
        where=COMMAND_LINE,
        outside=True,
        description=description,
        partitions=parse_space(partitions) if partitions else None,
    )
