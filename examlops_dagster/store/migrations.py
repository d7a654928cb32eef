"""Brings a database up to the last of the numbered steps."""

from __future__ import annotations

from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Database
from examlops_dagster.store.tables import MIGRATIONS, Either


def migrate(database: Database) -> None:
    """Create what is missing; does nothing, with one query, where nothing is.

    Raises
    ------
    StoreError
        If the database was written by a newer version of this package.
    """
    done = _done(database)
    if done == len(MIGRATIONS):
        return
    if done > len(MIGRATIONS):
        raise StoreError(
            f"{database.location} has the tables of a newer examlops-dagster ({done}, this one "
            f"knows {len(MIGRATIONS)}) → upgrade this installation"
        )
    with database.write() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)")
        [[current]] = connection.execute("SELECT coalesce(max(number), 0) FROM migrations")
        for number, statements in enumerate(MIGRATIONS[current:], start=current + 1):
            for each in statements:
                for statement in _statements(each, postgres=database.is_postgres):
                    connection.execute(statement)
            connection.execute("INSERT INTO migrations (number) VALUES (:number)", number=number)


def _statements(each: str | Either, *, postgres: bool) -> tuple[str, ...]:
    if isinstance(each, str):
        return (each,)
    return each.postgres if postgres else each.sqlite


def _done(database: Database) -> int:
    sql = "SELECT 1 FROM sqlite_master WHERE name = 'migrations'"
    if database.is_postgres:  # which may hold other schemas, with a table of that name
        sql = "SELECT 1 WHERE to_regclass('migrations') IS NOT NULL"
    with database.read() as connection:
        found = connection.execute(sql)
        if not found:
            return 0
        [[number]] = connection.execute("SELECT coalesce(max(number), 0) FROM migrations")
    return int(number)
