"""Has anything changed on which a verdict rests? A few cheap queries, made for every answer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from dagster import DagsterInstance, RunsFilter
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.windows import TimeWindowSpace
from examlops_dagster.governance.policy import load_policy
from examlops_dagster.home import Home
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.event_log import IN_FLIGHT
from examlops_dagster.store.engine import Database

DOUBT_SECONDS = 5
"""How old an answer may be where something can change that leaves no mark: a process that died
before it claimed what it was going to build, or a storage of Dagster that is not the default."""

_NOT_OF_VERDICTS = ("builds", "versions", "audit", "lineage", "hpc_jobs", "request")
"""Starts of the names of tables that only grow, and on which no verdict rests."""


class Marks:
    """Gives a mark that differs whenever a verdict may.

    Parameters
    ----------
    home
        Of the project.
    database
        platform.db.
    instance
        Dagster's.
    """

    def __init__(self, home: Home, database: Database, instance: DagsterInstance) -> None:
        self._database = database
        self._instance = instance
        self._files = _Files()
        self._home = home
        self._index = home.folder / "history" / "runs" / "index.db"
        self._runs = home.folder / "history" / "runs.db"
        self._is_default_storage = watermark.read(home.folder) is not None

    def now(self, graph: Graph, alive: Hashable) -> Hashable:
        """Give the mark of this moment.

        Parameters
        ----------
        graph
            Says whether verdicts change by the clock alone.
        alive
            The claims whose process lives.
        """
        policy = load_policy(self._home)
        ticks = policy is not None or _has_ticks(graph)  # grants expire
        minute = utc_now().replace(second=0, microsecond=0) if ticks else None
        return (self._of_platform(), self._of_dagster(), alive, minute, repr(policy))

    def close(self) -> None:
        """Close what was opened."""
        self._files.close()

    def _of_platform(self) -> Hashable:
        if not self._database.is_postgres:
            return self._files.version(Path(self._database.location))
        with self._database.read() as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables "
                "WHERE table_schema = current_schema() ORDER BY table_name"
            )
            found = [
                connection.execute(f"SELECT count(*), max(xmin::text::bigint) FROM {table}")  # noqa: S608
                for (table,) in tables
                if not table.startswith(_NOT_OF_VERDICTS)
            ]
            running = "SELECT build_id FROM builds WHERE state = 'running' ORDER BY build_id"
            return (*(tuple(map(tuple, rows)) for rows in found), str(connection.execute(running)))

    def _of_dagster(self) -> Hashable:
        if self._is_default_storage:
            with suppress(sqlite3.Error):
                work = (
                    self._files.rows(self._runs, _OPEN_RUNS),
                    self._files.rows(self._runs, _OPEN_BACKFILLS),
                )
                doubt = _moment_of_doubt() if any(work) else None
                return (self._files.version(self._index), work, doubt)
        runs = self._instance.get_run_records(RunsFilter(statuses=IN_FLIGHT))
        statuses = [BulkActionStatus(status) for status in watermark.OPEN_BACKFILLS]
        backfills = self._instance.get_backfills(BulkActionsFilter(statuses=statuses))
        return (
            self._instance.event_log_storage.get_maximum_record_id(),
            tuple((r.dagster_run.run_id, r.dagster_run.status.value) for r in runs),
            tuple((b.backfill_id, b.status.value) for b in backfills),
            _moment_of_doubt(),
        )


_RUN_STATES = ", ".join(f"'{status}'" for status in watermark.OPEN_RUNS)
_BACKFILL_STATES = ", ".join(f"'{status}'" for status in watermark.OPEN_BACKFILLS)
_OPEN_RUNS = f"SELECT run_id, status FROM runs WHERE status IN ({_RUN_STATES})"  # noqa: S608
_OPEN_BACKFILLS = f"SELECT key, status, body FROM bulk_actions WHERE status IN ({_BACKFILL_STATES})"  # noqa: S608


class _Files:
    """Connections to SQLite files that stay open: only such a one is told that others wrote."""

    def __init__(self) -> None:
        self._open: dict[Path, tuple[tuple[int, int], sqlite3.Connection]] = {}

    def version(self, path: Path) -> Hashable:
        """Give a number that changes when another connection commits; None without a file."""
        connection = self._connection(path)
        if connection is None:
            return None
        [(version,)] = connection.execute("PRAGMA data_version")
        return (self._open[path][0], int(version))

    def rows(self, path: Path, query: str) -> tuple[Hashable, ...]:
        """Give the rows of a query; none without a file."""
        connection = self._connection(path)
        return () if connection is None else tuple(map(tuple, connection.execute(query)))

    def close(self) -> None:
        for _, connection in self._open.values():
            connection.close()
        self._open.clear()

    def _connection(self, path: Path) -> sqlite3.Connection | None:
        try:
            found = path.stat()
        except OSError:
            return None
        file = (found.st_dev, found.st_ino)
        former = self._open.get(path)
        if former is not None and former[0] == file:
            return former[1]
        if former is not None:
            former[1].close()
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=5,
            isolation_level=None,
            check_same_thread=False,
        )
        self._open[path] = (file, connection)
        return connection


def _moment_of_doubt() -> int:
    return int(time.monotonic() // DOUBT_SECONDS)


def _has_ticks(graph: Graph) -> bool:
    return any(map(_ticks, graph.declarations.values()))


def _ticks(declaration: Declaration) -> bool:
    if isinstance(declaration.freshness, Schedule):
        return True
    space = declaration.partitions
    return space is not None and any(isinstance(s, TimeWindowSpace) for _, s in space.dimensions)
