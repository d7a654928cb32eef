"""The tables of platform.db, as numbered steps."""

from __future__ import annotations

from typing import NamedTuple


class Either(NamedTuple):
    """Statements that only one of the two databases understands."""

    sqlite: tuple[str, ...]
    postgres: tuple[str, ...]


MIGRATIONS: tuple[tuple[str | Either, ...], ...] = (
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
    (  # tasks of an array share a token, and no SQLite changes the key of a table
        "ALTER TABLE hpc_jobs RENAME TO hpc_jobs_by_token",
        "DROP INDEX hpc_jobs_by_node",
        "DROP INDEX hpc_jobs_by_time",
        """CREATE TABLE hpc_jobs (
            token TEXT NOT NULL,
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
            cpus INTEGER,
            array_index INTEGER NOT NULL DEFAULT -1,
            PRIMARY KEY (token, array_index)
        )""",
        """INSERT INTO hpc_jobs (token, scheduler, cluster, job_id, submitted_at, model, asset,
            partition, fingerprint, build_id, run_id, folder, state, reason, started_at, ended_at,
            exit_code, hosts, nodes, gpus, cpus)
            SELECT token, scheduler, cluster, job_id, submitted_at, model, asset, partition,
            fingerprint, build_id, run_id, folder, state, reason, started_at, ended_at, exit_code,
            hosts, nodes, gpus, cpus FROM hpc_jobs_by_token""",
        "DROP TABLE hpc_jobs_by_token",
        "CREATE INDEX hpc_jobs_by_node ON hpc_jobs (asset, partition, fingerprint)",
        "CREATE INDEX hpc_jobs_by_time ON hpc_jobs (submitted_at)",
    ),
    (
        "CREATE TABLE contents (revision TEXT PRIMARY KEY, manifest TEXT NOT NULL)",
        """CREATE TABLE revisions (
            id {id},
            dataset TEXT NOT NULL,
            revision TEXT NOT NULL,
            backend TEXT NOT NULL,
            uri TEXT NOT NULL,
            file_count BIGINT,
            byte_count BIGINT,
            row_count BIGINT,
            schema_hash TEXT,
            actor TEXT NOT NULL,
            recorded_at REAL NOT NULL,
            version INTEGER
        )""",
        "CREATE INDEX revisions_by_dataset ON revisions (dataset, id)",
        "CREATE INDEX revisions_to_advance ON revisions (id) WHERE version IS NULL",
        """CREATE TABLE feature_views (
            name TEXT PRIMARY KEY,
            entity TEXT NOT NULL,
            features TEXT NOT NULL,
            source TEXT,
            actor TEXT NOT NULL,
            applied_at REAL NOT NULL,
            declared INTEGER NOT NULL
        )""",
        "CREATE INDEX feature_views_to_declare ON feature_views (name) WHERE declared = 0",
    ),
    (
        """CREATE TABLE notes (
            about TEXT NOT NULL,
            name TEXT NOT NULL,
            facts TEXT NOT NULL,
            PRIMARY KEY (about, name)
        )""",
        """CREATE TABLE lineage (
            id {id},
            build_id TEXT NOT NULL,
            phase INTEGER NOT NULL,
            happened_at REAL NOT NULL,
            state TEXT NOT NULL,
            event TEXT NOT NULL,
            is_open INTEGER NOT NULL,
            refusals INTEGER NOT NULL,
            next_at REAL NOT NULL,
            reason TEXT NOT NULL,
            UNIQUE (build_id, phase)
        )""",
        "CREATE INDEX lineage_waiting ON lineage (happened_at) WHERE state = 'waiting'",
        "CREATE INDEX lineage_refused ON lineage (happened_at) WHERE state = 'refused'",
        "CREATE INDEX lineage_open ON lineage (build_id) WHERE is_open = 1",
        "CREATE INDEX lineage_bad ON lineage (build_id) WHERE event IN ('FAIL', 'ABORT')",
        """CREATE TABLE lineage_deliverer (
            one INTEGER PRIMARY KEY,
            collected BIGINT NOT NULL,
            token TEXT NOT NULL,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            pid_started REAL NOT NULL,
            until REAL NOT NULL,
            failures INTEGER NOT NULL,
            next_at REAL NOT NULL,
            reason TEXT NOT NULL
        )""",
        "INSERT INTO lineage_deliverer VALUES (1, 0, '', '', 0, 0, 0, 0, 0, '')",
    ),
    (
        """CREATE TABLE audit (
            number BIGINT PRIMARY KEY,
            at TEXT NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            assets TEXT NOT NULL,
            details TEXT NOT NULL,
            once TEXT UNIQUE,
            former TEXT NOT NULL,
            hash TEXT NOT NULL
        )""",
        "CREATE TABLE audit_head (name TEXT PRIMARY KEY, number BIGINT NOT NULL, "
        "hash TEXT NOT NULL)",
        Either(
            sqlite=tuple(
                f"CREATE TRIGGER audit_refuses_{change} BEFORE {change} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
                for change in ("update", "delete")
            ),
            postgres=(
                "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
                "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
                "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
            ),
        ),
        # what was built before there was an audit log is not part of it
        "ALTER TABLE builds ADD COLUMN audited INTEGER NOT NULL DEFAULT 0",
        "UPDATE builds SET audited = 1",
        "CREATE INDEX builds_to_audit ON builds (id) WHERE audited = 0",
        """CREATE TABLE requests (
            id TEXT PRIMARY KEY,
            action TEXT NOT NULL,
            actor TEXT NOT NULL,
            source TEXT NOT NULL,
            nodes TEXT NOT NULL,
            refusal TEXT NOT NULL,
            details TEXT NOT NULL,
            process TEXT NOT NULL,
            asked_at REAL NOT NULL,
            closed INTEGER NOT NULL
        )""",
        "CREATE INDEX requests_open ON requests (closed) WHERE closed = 0",
        "CREATE INDEX requests_by_source ON requests (source, asked_at)",
        """CREATE TABLE request_runs (
            run_id TEXT PRIMARY KEY,
            request_id TEXT NOT NULL,
            nodes TEXT NOT NULL
        )""",
        "CREATE INDEX request_runs_by_request ON request_runs (request_id)",
        """CREATE TABLE approvals (
            id TEXT PRIMARY KEY,
            action TEXT NOT NULL,
            actor TEXT NOT NULL,
            source TEXT NOT NULL,
            nodes TEXT NOT NULL,
            rule TEXT NOT NULL,
            reason TEXT NOT NULL,
            state TEXT NOT NULL,
            asked_at REAL NOT NULL,
            decided_at REAL,
            decided_by TEXT NOT NULL,
            comment TEXT NOT NULL,
            expires_at REAL
        )""",
        "CREATE INDEX approvals_by_actor ON approvals (actor, action, asked_at)",
    ),
    (  # what nodes emit to datasets, and through which aliases
        """CREATE TABLE staged_outlets (
            build_id TEXT PRIMARY KEY,
            emissions TEXT NOT NULL
        )""",
        """CREATE TABLE dataset_events (
            id TEXT PRIMARY KEY,
            dataset TEXT NOT NULL,
            partition TEXT NOT NULL,
            version BIGINT NOT NULL,
            data_version TEXT NOT NULL,
            extra TEXT NOT NULL,
            dataset_extra TEXT NOT NULL,
            aliases TEXT NOT NULL,
            source TEXT NOT NULL,
            source_partition TEXT NOT NULL,
            build_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            happened_at REAL NOT NULL,
            UNIQUE (dataset, partition, version)
        )""",
        "CREATE INDEX dataset_events_by_build ON dataset_events (build_id)",
        """CREATE TABLE alias_events (
            alias TEXT NOT NULL,
            version BIGINT NOT NULL,
            event TEXT NOT NULL,
            PRIMARY KEY (alias, version)
        )""",
        "CREATE INDEX alias_events_by_event ON alias_events (event)",
        """CREATE TABLE unsent_outlets (
            build_id TEXT PRIMARY KEY,
            asset TEXT NOT NULL,
            run_id TEXT NOT NULL,
            since REAL NOT NULL
        )""",
    ),
    ("CREATE INDEX dataset_events_outside ON dataset_events (build_id) WHERE source = ''",),
    ("CREATE INDEX claims_by_token ON claims (token)",),  # the heartbeat of thousands of keys
    (
        """CREATE TABLE orders (
            id TEXT PRIMARY KEY,
            names TEXT NOT NULL,
            partition TEXT,
            due INTEGER NOT NULL,
            runs TEXT NOT NULL,
            later TEXT NOT NULL,
            asked_at REAL NOT NULL,
            taken_at REAL NOT NULL
        )""",
    ),
    (
        "ALTER TABLE orders ADD COLUMN state TEXT NOT NULL DEFAULT 'open'",
        "ALTER TABLE orders ADD COLUMN why TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE orders ADD COLUMN failures INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE orders ADD COLUMN next_at REAL NOT NULL DEFAULT 0",
        "ALTER TABLE orders ADD COLUMN ended_at REAL",
    ),
)
"""Append only: a step that was released is never edited."""
