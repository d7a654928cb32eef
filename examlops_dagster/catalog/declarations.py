"""The declarations made from the command line, in platform.db."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from examlops_dagster.core.declarations import DEFAULT_KIND, Declaration, Upstream
from examlops_dagster.core.partitions import parse_space
from examlops_dagster.store.engine import Connection, Database

COMMAND_LINE = "command line"

Former = Literal["replaced", "relinked", "kept"]

_RELINK = (
    "UPDATE SET kind = excluded.kind, deps = excluded.deps, "
    "declared_by = excluded.declared_by, declared_at = excluded.declared_at"
)
_ON_CONFLICT: dict[Former, str] = {
    "replaced": f"{_RELINK}, description = excluded.description, partitions = excluded.partitions",
    "relinked": _RELINK,
    "kept": "NOTHING",
}


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
        former: Former = "replaced",
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
        former
            What becomes of a former one: of a relinked one description and partitions stay.

        Raises
        ------
        ValueError
            If ``partitions`` cannot be read; nothing is written.
        """
        declaration = _declaration(name, kind, deps, description, partitions)
        with self._database.write() as connection:
            insert_declaration(
                connection,
                name,
                now=now,
                actor=actor,
                kind=kind,
                deps=deps,
                description=description,
                partitions=partitions,
                former=former,
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


def insert_declaration(
    connection: Connection,
    name: str,
    *,
    now: datetime,
    actor: str,
    kind: str = DEFAULT_KIND,
    deps: Sequence[str] = (),
    description: str | None = None,
    partitions: str | None = None,
    former: Former = "replaced",
) -> None:
    """Write a declaration inside a transaction; see `Catalog.declare`."""
    connection.execute(
        "INSERT INTO declarations (name, kind, deps, description, partitions, "  # noqa: S608
        "declared_by, declared_at) VALUES (:name, :kind, :deps, :description, "
        f":partitions, :actor, :now) ON CONFLICT (name) DO {_ON_CONFLICT[former]}",
        name=name,
        kind=kind,
        deps=json.dumps(list(deps)),
        description=description,
        partitions=partitions,
        actor=actor,
        now=now.timestamp(),
    )


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
