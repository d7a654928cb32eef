"""The ledger over platform.db: attempts, versions and holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from examlops_dagster.clock import utc_now
from examlops_dagster.core.emissions import Emission
from examlops_dagster.core.records import Attempt, BuildState, Claim, Hold, Node, Record
from examlops_dagster.ledger.claims import Claims
from examlops_dagster.ledger.emissions import publish, stage
from examlops_dagster.ledger.heads import allot_version, read_heads, set_head
from examlops_dagster.ledger.history import Build, builds_of_run, history_of
from examlops_dagster.ledger.holds import (
    dead_attempts,
    drop_holds,
    read_holds,
    running_attempts,
    with_a_job,
    write_death,
    write_failure,
)
from examlops_dagster.ledger.notes import Note, write_notes
from examlops_dagster.ledger.outlets import dataset_records
from examlops_dagster.ledger.rows import dump_reads, from_epoch, select
from examlops_dagster.store.engine import Connection, Database

MOST_NOTED = 10_000
"""Notes that a process remembers to have written."""


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
            found = read_heads(connection, nodes)
        for node, record in emitted.items():
            if node not in found or found[node].version < record.version:
                found[node] = record
        return found

    def holds(self, nodes: Iterable[Node] | None = None) -> dict[Node, Hold]:
        """See Ledger; a process that died while it built counts from its death on."""
        with self._database.read() as connection:
            return read_holds(connection, nodes, self._clock())

    def claims(self) -> dict[Node, Claim]:
        """See Ledger."""
        return self._claims.held()

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """See Ledger; from now on a thread keeps the claim alive until it is released."""
        return self._claims.claim(node, token, run_id)

    def is_claimed(self, node: Node, token: str) -> bool:
        """Tell whether a claim is still ours, which somebody may have thought dead."""
        return self._claims.is_ours(node, token)

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
            for dead in running_attempts(connection, [attempt.node]):
                write_death(connection, dead, now)
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
            return write_failure(connection, attempt, state, error, self._clock())

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
            now = self._clock()
            for attempt in dead_attempts(connection, nodes, now):
                write_death(connection, attempt, now)
            drop_holds(connection, nodes)

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
            now = self._clock()
            left = with_a_job(connection)
            dead = [a for a in dead_attempts(connection, None, now) if a.build_id not in left]
            for attempt in dead:
                write_death(connection, attempt, now)
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
        name, partition = (asset, None) if node is None else node
        with self._database.read() as connection:
            return history_of(connection, name, partition, limit)

    def of_run(self, run_id: str) -> dict[Node, Build]:
        """Give the last build of each node in a Dagster run."""
        with self._database.read() as connection:
            return builds_of_run(connection, run_id)

    def close(self) -> None:
        """Stop the heartbeat; claims that were not released expire."""
        self._claims.close()


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
    drop_holds(connection, [attempt.node])
    return record
