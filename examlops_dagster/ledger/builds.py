"""The ledger over platform.db: attempts, versions and holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from examlops_dagster.core.outlets import Emission
from examlops_dagster.core.seams import (
    Attempt,
    BuildState,
    Claim,
    Hold,
    Node,
    Read,
    Record,
)
from examlops_dagster.ledger.claims import Claims, living_claims
from examlops_dagster.ledger.heads import allot_version, set_head
from examlops_dagster.ledger.notes import Note, write_notes
from examlops_dagster.ledger.outlets import dataset_records, publish, stage
from examlops_dagster.ledger.rows import dump_reads, from_epoch, load_reads, select
from examlops_dagster.store.engine import Connection, Database

MOST_NOTED = 10_000
"""Notes that a process remembers to have written."""


def utc_now() -> datetime:
    """Give the time as an aware UTC datetime."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Build:
    """One row of ``builds``, for ``exa assets history``.

    Attributes
    ----------
    version, data_version
        Of the result; None without one.
    error
        Last line of the error; empty without one.
    started_at, ended_at
        Aware UTC datetimes.
    """

    node: Node
    build_id: str
    state: BuildState
    version: int | None
    data_version: str | None
    built_from: Mapping[Node, Read]
    orchestrator: str
    run_id: str
    provenance: Mapping[str, str]
    error: str
    started_at: datetime
    ended_at: datetime | None


class Completion(NamedTuple):
    """The success of one attempt, as `BuildsLedger.complete_all` records it."""

    attempt: Attempt
    version: int
    data_version: str
    provenance: Mapping[str, str]
    state: BuildState = BuildState.SUCCEEDED
    notes: tuple[Note, ...] = ()


class BuildsLedger:
    """The ledger over platform.db; safe for many processes and threads.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock
        self._claims = Claims(database, clock)
        self._noted: set[Note] = set()

    def records(
        self, nodes: Iterable[Node] | None = None, datasets: Iterable[str] = ()
    ) -> dict[Node, Record]:
        """See Ledger; of ``datasets``, by name, what their events made current too."""
        with self._database.read() as connection:
            emitted = dataset_records(connection, datasets)
            rows = select(
                connection,
                "SELECT asset, partition, version, data_version, code_version, built_from, "
                "built_at, build_id, run_id FROM heads",
                nodes,
            )
        found = {
            Node(row[0], row[1]): Record(
                row[2],
                row[3],
                row[4],
                None if row[5] is None else load_reads(row[5]),
                from_epoch(row[6]),
                row[7],
                row[8],
            )
            for row in rows
        }
        for node, record in emitted.items():
            if node not in found or found[node].version < record.version:
                found[node] = record
        return found

    def holds(self, nodes: Iterable[Node] | None = None) -> dict[Node, Hold]:
        """See Ledger; a process that died while it built counts from its death on."""
        with self._database.read() as connection:
            rows = select(
                connection,
                "SELECT asset, partition, fingerprint, failures, deaths, state, error, ended_at, "
                "run_id FROM holds",
                nodes,
            )
            running = _running(connection, nodes)
            claims = living_claims(connection, self._clock(), nodes) if running else {}
            alive = {claim.token for claim in claims.values()}
        found = {
            Node(row[0], row[1]): Hold(
                row[2], row[3], row[4], BuildState(row[5]), row[6], from_epoch(row[7]), row[8]
            )
            for row in rows
        }
        for attempt in running:
            if attempt.build_id not in alive:
                found[attempt.node] = Hold.after(
                    found.get(attempt.node),
                    attempt,
                    BuildState.DIED,
                    "process died",
                    self._clock(),
                )
        return found

    def claims(self) -> dict[Node, Claim]:
        """See Ledger."""
        return self._claims.held()

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """See Ledger; from now on a thread keeps the claim alive until it is released."""
        return self._claims.claim(node, token, run_id)

    def release(self, node: Node, token: str) -> None:
        """See Ledger."""
        self._claims.release(node, token)

    def release_all(self, tokens: Mapping[Node, str]) -> None:
        """Give several claims back in one transaction."""
        self._claims.release_all(tokens)

    def begin(self, attempt: Attempt, notes: Iterable[Note] = ()) -> None:
        """See Ledger; who left an attempt at this node unfinished died over it.

        Parameters
        ----------
        notes
            Kept with it; what this object wrote before is not written again.
        """
        now = self._clock()
        new = [note for note in notes if note not in self._noted]
        with self._database.write() as connection:
            write_notes(connection, new)
            for dead in _running(connection, [attempt.node]):
                self._fail(connection, dead, BuildState.DIED, "process died", now)
            connection.execute(
                "INSERT INTO builds (build_id, asset, partition, state, fingerprint, "
                "code_version, built_from, orchestrator, run_id, provenance, error, started_at) "
                "VALUES (:build_id, :asset, :partition, :state, :fingerprint, :code_version, "
                ":built_from, :orchestrator, :run_id, '{}', '', :now)",
                build_id=attempt.build_id,
                asset=attempt.node.asset,
                partition=attempt.node.partition,
                state=BuildState.RUNNING.value,
                fingerprint=attempt.fingerprint,
                code_version=attempt.code_version,
                built_from=dump_reads(attempt.built_from),
                orchestrator=attempt.orchestrator,
                run_id=attempt.run_id,
                now=now.timestamp(),
            )
        if len(self._noted) > MOST_NOTED:  # a server lives for many runs
            self._noted.clear()
        self._noted.update(note for note in new if note.about in ("asset", "run"))

    def allot(self, attempt: Attempt, data_version: str, emissions: Sequence[Emission] = ()) -> int:
        """See Ledger; what it emits is published with its completion, whoever completes it."""
        with self._database.write() as connection:
            stage(connection, attempt.build_id, emissions)
            version = allot_version(connection, attempt.node, data_version, self._clock())
            connection.execute(
                "UPDATE builds SET version = :version, data_version = :data_version "
                "WHERE build_id = :build_id",
                version=version,
                data_version=data_version,
                build_id=attempt.build_id,
            )
        return version

    def complete(
        self,
        attempt: Attempt,
        version: int,
        data_version: str,
        provenance: Mapping[str, str],
        state: BuildState = BuildState.SUCCEEDED,
    ) -> Record:
        """See Ledger; does nothing to a build that the sync from the event log completed."""
        built = Completion(attempt, version, data_version, provenance, state)
        [record] = self.complete_all([built])
        return record

    def complete_all(self, built: Iterable[Completion]) -> list[Record]:
        """As `complete`, for several builds in one transaction."""
        now = self._clock()
        built = list(built)
        with self._database.write() as connection:
            write_notes(connection, [note for each in built for note in each.notes])
            return [_complete(connection, each, now) for each in built]

    def fail(
        self, attempt: Attempt, state: BuildState, error: str, notes: Iterable[Note] = ()
    ) -> Hold:
        """See Ledger; the notes are kept with it."""
        with self._database.write() as connection:
            write_notes(connection, notes)
            return self._fail(connection, attempt, state, error, self._clock())

    def lift(self, nodes: Iterable[Node]) -> None:
        """See Ledger."""
        nodes = list(nodes)
        with self._database.read() as connection:
            held = connection.execute(
                "SELECT 1 FROM holds UNION ALL SELECT 1 FROM builds WHERE state = 'running' LIMIT 1"
            )
        if not held:
            return
        with self._database.write() as connection:
            wanted = set(nodes)
            alive = {claim.token for claim in living_claims(connection, self._clock()).values()}
            for attempt in _running(connection, None):
                if attempt.node in wanted and attempt.build_id not in alive:
                    self._fail(connection, attempt, BuildState.DIED, "process died", self._clock())
            connection.execute_many(
                "DELETE FROM holds WHERE asset = :asset AND partition = :partition",
                [node._asdict() for node in nodes],
            )

    def has_running(self) -> bool:
        """Tell whether an attempt has no end yet."""
        with self._database.read() as connection:
            sql = "SELECT 1 FROM builds WHERE state = 'running' LIMIT 1"
            return bool(connection.execute(sql))

    def bury(self) -> list[Attempt]:
        """Record the deaths of those who died while they built, and give what they tried.

        Not of those whose batch job is left running: it is found again. Whoever calls this has
        synced with the event log, which may hold the event of a build that was not recorded.
        """
        if not self.has_running():
            return []
        with self._database.write() as connection:
            alive = {claim.token for claim in living_claims(connection, self._clock()).values()}
            left = {row[0] for row in connection.execute(_LEFT_RUNNING)}
            dead = [a for a in _running(connection, None) if a.build_id not in alive | left]
            for attempt in dead:
                self._fail(connection, attempt, BuildState.DIED, "process died", self._clock())
        return dead

    def first_seen(self, nodes: Iterable[Node] | None = None) -> dict[Node, datetime]:
        """Give when automation first saw each scheduled node (aware UTC datetimes)."""
        with self._database.read() as connection:
            rows = select(connection, "SELECT asset, partition, seen_at FROM first_seen", nodes)
        return {Node(row[0], row[1]): from_epoch(row[2]) for row in rows}

    def see(self, sights: Mapping[Node, datetime]) -> None:
        """Note since when automation sees scheduled nodes; what was noted stays."""
        rows = [{**node._asdict(), "at": at.timestamp()} for node, at in sights.items()]
        if rows:
            with self._database.write() as connection:
                connection.execute_many(
                    "INSERT INTO first_seen (asset, partition, seen_at) "
                    "VALUES (:asset, :partition, :at) ON CONFLICT DO NOTHING",
                    rows,
                )

    def history(self, node: Node | None = None, asset: str = "", limit: int = 50) -> list[Build]:
        """Give the latest builds of a node, or of all partitions of an asset; newest first."""
        name = node.asset if node is not None else asset
        clause = " AND partition = :partition" if node is not None else ""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_BUILDS} WHERE asset = :asset{clause} ORDER BY id DESC LIMIT :limit",
                asset=name,
                limit=limit,
                **({"partition": node.partition} if node is not None else {}),
            )
        return list(map(_build, rows))

    def of_run(self, run_id: str) -> dict[Node, Build]:
        """Give the last build of each node in a Dagster run."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_BUILDS} WHERE run_id = :run_id ORDER BY id", run_id=run_id
            )
        return {build.node: build for build in map(_build, rows)}

    def close(self) -> None:
        """Stop the heartbeat; claims that were not released expire."""
        self._claims.close()

    @staticmethod
    def _fail(
        connection: Connection, attempt: Attempt, state: BuildState, error: str, now: datetime
    ) -> Hold:
        error = _storable(error)
        connection.execute(
            "UPDATE builds SET state = :state, error = :error, ended_at = :now "
            "WHERE build_id = :build_id",
            state=state.value,
            error=error,
            now=now.timestamp(),
            build_id=attempt.build_id,
        )
        rows = connection.execute(
            "SELECT fingerprint, failures, deaths, state, error, ended_at, run_id FROM holds "
            "WHERE asset = :asset AND partition = :partition",
            **attempt.node._asdict(),
        )
        former = None
        if rows:
            [row] = rows
            former = Hold(
                row[0], row[1], row[2], BuildState(row[3]), row[4], from_epoch(row[5]), row[6]
            )
        hold = Hold.after(former, attempt, state, error, now)
        connection.execute(
            "INSERT INTO holds (asset, partition, fingerprint, failures, deaths, state, error, "
            "ended_at, run_id) VALUES (:asset, :partition, :fingerprint, :failures, :deaths, "
            ":state, :error, :ended_at, :run_id) ON CONFLICT (asset, partition) DO UPDATE SET "
            "fingerprint = excluded.fingerprint, failures = excluded.failures, "
            "deaths = excluded.deaths, state = excluded.state, error = excluded.error, "
            "ended_at = excluded.ended_at, run_id = excluded.run_id",
            **attempt.node._asdict(),
            fingerprint=hold.fingerprint,
            failures=hold.failures,
            deaths=hold.deaths,
            state=hold.state.value,
            error=hold.error,
            ended_at=now.timestamp(),
            run_id=hold.run_id,
        )
        return hold


_LEFT_RUNNING = (
    "SELECT j.build_id FROM hpc_jobs j JOIN builds b ON b.build_id = j.build_id "
    "WHERE b.state = 'running' AND (j.ended_at IS NULL OR j.state = 'COMPLETED')"
)

_BUILDS = (
    "SELECT asset, partition, build_id, state, version, data_version, built_from, "
    "orchestrator, run_id, provenance, error, started_at, ended_at FROM builds"
)


def _build(row: Any) -> Build:
    return Build(
        Node(row[0], row[1]),
        row[2],
        BuildState(row[3]),
        row[4],
        row[5],
        load_reads(row[6]),
        row[7],
        row[8],
        json.loads(row[9]),
        row[10],
        from_epoch(row[11]),
        None if row[12] is None else from_epoch(row[12]),
    )


def _storable(text: str) -> str:
    """Write out what no database takes: NUL, and the halves that stand for undecodable bytes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _complete(connection: Connection, built: Completion, now: datetime) -> Record:
    attempt = built.attempt
    record = Record(
        built.version,
        built.data_version,
        attempt.code_version,
        dict(attempt.built_from),
        now,
        attempt.build_id,
        attempt.run_id,
    )
    done = connection.execute(
        "SELECT 1 FROM builds WHERE build_id = :build_id AND event_id IS NOT NULL",
        build_id=attempt.build_id,
    )
    connection.execute(
        "UPDATE builds SET state = :state, provenance = :provenance, ended_at = :now, "
        "version = :version, data_version = :data_version WHERE build_id = :build_id",
        state=built.state.value,
        provenance=json.dumps(dict(built.provenance)),
        now=now.timestamp(),
        version=built.version,
        data_version=built.data_version,
        build_id=attempt.build_id,
    )
    if not done:
        set_head(connection, attempt.node, record)
    publish(connection, attempt.build_id, attempt.node, attempt.run_id, now)
    _drop_hold(connection, attempt.node)
    return record


def _drop_hold(connection: Connection, node: Node) -> None:
    connection.execute(
        "DELETE FROM holds WHERE asset = :asset AND partition = :partition", **node._asdict()
    )


def _running(connection: Connection, nodes: Iterable[Node] | None) -> list[Attempt]:
    rows = select(
        connection,
        "SELECT asset, partition, build_id, fingerprint, code_version, orchestrator, run_id "
        "FROM builds WHERE state = 'running'",
        nodes,
    )
    return [Attempt(Node(r[0], r[1]), r[2], r[3], r[4], {}, r[5], r[6]) for r in rows]
