"""The tables of platform.db, as numbered steps; a database is brought up to the last one."""

from __future__ import annotations

from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Database

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE builds (
            id {id},
            build_id TEXT NOT NULL UNIQUE,
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            state TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            code_version TEXT NOT NULL,
            built_from TEXT NOT NULL,
            orchestrator TEXT NOT NULL,
            run_id TEXT NOT NULL,
            provenance TEXT NOT NULL,
            version INTEGER,
            data_version TEXT,
            event_id BIGINT,
            error TEXT NOT NULL,
            started_at REAL NOT NULL,
            ended_at REAL
        )""",
        "CREATE INDEX builds_by_node ON builds (asset, partition, id)",
        "CREATE INDEX builds_by_state ON builds (state)",
        "CREATE INDEX builds_by_run ON builds (run_id)",
        """CREATE TABLE versions (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            version INTEGER NOT NULL,
            data_version TEXT NOT NULL,
            given_at REAL NOT NULL,
            PRIMARY KEY (asset, partition, version)
        )""",
        """CREATE TABLE heads (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            version INTEGER NOT NULL,
            data_version TEXT NOT NULL,
            code_version TEXT,
            built_from TEXT,
            built_at REAL NOT NULL,
            build_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            event_id BIGINT,
            PRIMARY KEY (asset, partition)
        )""",
        """CREATE TABLE holds (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            failures INTEGER NOT NULL,
            deaths INTEGER NOT NULL,
            state TEXT NOT NULL,
            error TEXT NOT NULL,
            ended_at REAL NOT NULL,
            run_id TEXT NOT NULL,
            PRIMARY KEY (asset, partition)
        )""",
        """CREATE TABLE claims (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            token TEXT NOT NULL,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            pid_started REAL NOT NULL,
            run_id TEXT NOT NULL,
            started_at REAL NOT NULL,
            heartbeat_at REAL NOT NULL,
            PRIMARY KEY (asset, partition)
        )""",
        """CREATE TABLE first_seen (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            seen_at REAL NOT NULL,
            PRIMARY KEY (asset, partition)
        )""",
        """CREATE TABLE declarations (
            name TEXT PRIMARY KEY,
            kind TEXT NOT NULL,
            deps TEXT NOT NULL,
            description TEXT,
            partitions TEXT,
            declared_by TEXT NOT NULL,
            declared_at REAL NOT NULL
        )""",
        "CREATE TABLE watermarks (name TEXT PRIMARY KEY, mark TEXT NOT NULL)",
        "CREATE TABLE hosts (host TEXT PRIMARY KEY, seen_at REAL NOT NULL)",
    ),
    (
        """CREATE TABLE sink_writes (
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            number INTEGER NOT NULL,
            url TEXT NOT NULL,
            data_version TEXT NOT NULL,
            error TEXT NOT NULL,
            written_at REAL NOT NULL,
            PRIMARY KEY (asset, partition, number)
        )""",
    ),
    (
        """CREATE TABLE hpc_jobs (
            token TEXT PRIMARY KEY,
            scheduler TEXT NOT NULL,
            cluster TEXT NOT NULL,
            job_id TEXT NOT NULL,
            submitted_at REAL NOT NULL,
            model TEXT NOT NULL,
            asset TEXT NOT NULL,
            partition TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            build_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            folder TEXT NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL,
            started_at REAL,
            ended_at REAL,
            exit_code INTEGER,
            hosts TEXT NOT NULL,
            nodes INTEGER,
            gpus INTEGER,
            cpus INTEGER
        )""",
        "CREATE INDEX hpc_jobs_by_node ON hpc_jobs (asset, partition, fingerprint)",
        "CREATE INDEX hpc_jobs_by_time ON hpc_jobs (submitted_at)",
    ),
)
"""Append only: a step that was released is never edited."""


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
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations (number) VALUES (:number)", number=number)


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
