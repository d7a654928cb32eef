"""Attempts, versions, claims and holds in platform.db."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.seams import (
    Attempt,
    BuildState,
    Claim,
    Hold,
    Node,
    Read,
    Record,
)
from examlops_dagster.core.versions import next_version
from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Connection, Database

HEARTBEAT_SECONDS = 5.0
EXPIRY_SECONDS = 30.0

FEW_NODES = 50
"""Up to so many nodes are asked for one by one; beyond, by the names of their assets."""
MANY_NAMES = 500
"""Beyond so many names everything is read: SQLite once took no more than 999 parameters."""

SAME_PROCESS_SECONDS = 60.0
"""How far two readings of a process's start may lie apart: they move when the clock is set."""

_logger = logging.getLogger(__name__)


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
        self._heartbeat = _Heartbeat(database, clock)

    def records(self, nodes: Iterable[Node] | None = None) -> dict[Node, Record]:
        """See Ledger."""
        with self._database.read() as connection:
            rows = _select(
                connection,
                "SELECT asset, partition, version, data_version, code_version, built_from, "
                "built_at, build_id, run_id FROM heads",
                nodes,
            )
        return {
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

    def holds(self, nodes: Iterable[Node] | None = None) -> dict[Node, Hold]:
        """See Ledger; a process that died while it built counts from its death on."""
        with self._database.read() as connection:
            rows = _select(
                connection,
                "SELECT asset, partition, fingerprint, failures, deaths, state, error, ended_at, "
                "run_id FROM holds",
                nodes,
            )
            running = _running(connection, nodes)
            alive = {claim.token for claim in _claims(connection, self._clock()).values()}
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
        with self._database.read() as connection:
            return _claims(connection, self._clock())

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """See Ledger; from now on a thread keeps the claim alive until it is released."""
        now = self._clock()
        pid = os.getpid()
        with self._database.write() as connection:
            held = _claims(connection, now, [node]).get(node)
            if held is not None and held.token != token:
                return held
            connection.execute(
                "INSERT INTO claims (asset, partition, token, host, pid, pid_started, run_id, "
                "started_at, heartbeat_at) VALUES (:asset, :partition, :token, :host, :pid, "
                ":pid_started, :run_id, :now, :now) ON CONFLICT (asset, partition) DO UPDATE SET "
                "token = excluded.token, host = excluded.host, pid = excluded.pid, "
                "pid_started = excluded.pid_started, run_id = excluded.run_id, "
                "started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at",
                asset=node.asset,
                partition=node.partition,
                token=token,
                host=socket.gethostname(),
                pid=pid,
                pid_started=process_started(pid),
                run_id=run_id,
                now=now.timestamp(),
            )
        self._heartbeat.add(token)
        return None

    def release(self, node: Node, token: str) -> None:
        """See Ledger."""
        self._heartbeat.remove(token)
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM claims WHERE asset = :asset AND partition = :partition "
                "AND token = :token",
                asset=node.asset,
                partition=node.partition,
                token=token,
            )

    def begin(self, attempt: Attempt) -> None:
        """See Ledger; who left an attempt at this node unfinished died over it."""
        now = self._clock()
        with self._database.write() as connection:
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

    def allot(self, attempt: Attempt, data_version: str) -> int:
        """See Ledger."""
        with self._database.write() as connection:
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
        now = self._clock()
        record = Record(
            version,
            data_version,
            attempt.code_version,
            dict(attempt.built_from),
            now,
            attempt.build_id,
            attempt.run_id,
        )
        with self._database.write() as connection:
            done = connection.execute(
                "SELECT 1 FROM builds WHERE build_id = :build_id AND event_id IS NOT NULL",
                build_id=attempt.build_id,
            )
            connection.execute(
                "UPDATE builds SET state = :state, provenance = :provenance, ended_at = :now, "
                "version = :version, data_version = :data_version WHERE build_id = :build_id",
                state=state.value,
                provenance=json.dumps(dict(provenance)),
                now=now.timestamp(),
                version=version,
                data_version=data_version,
                build_id=attempt.build_id,
            )
            if not done:
                set_head(connection, attempt.node, record)
            _drop_hold(connection, attempt.node)
        return record

    def fail(self, attempt: Attempt, state: BuildState, error: str) -> Hold:
        """See Ledger."""
        with self._database.write() as connection:
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
            alive = {claim.token for claim in _claims(connection, self._clock()).values()}
            for attempt in _running(connection, None):
                if attempt.node in wanted and attempt.build_id not in alive:
                    self._fail(connection, attempt, BuildState.DIED, "process died", self._clock())
            connection.execute_many(
                "DELETE FROM holds WHERE asset = :asset AND partition = :partition",
                [node._asdict() for node in nodes],
            )

    def first_seen(self, nodes: Iterable[Node] | None = None) -> dict[Node, datetime]:
        """Give when automation first saw each scheduled node (aware UTC datetimes)."""
        with self._database.read() as connection:
            rows = _select(connection, "SELECT asset, partition, seen_at FROM first_seen", nodes)
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
        self._heartbeat.stop()

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


class _Heartbeat:
    """Keeps the claims of this process alive from one daemon thread."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._tokens: set[str] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, token: str) -> None:
        with self._lock:
            self._tokens.add(token)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(
                    target=self._beat, name="examlops-heartbeat", daemon=True
                )
                self._thread.start()

    def remove(self, token: str) -> None:
        with self._lock:
            self._tokens.discard(token)

    def stop(self) -> None:
        self._wake.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout=1)

    def _beat(self) -> None:
        while not self._wake.wait(HEARTBEAT_SECONDS):
            with self._lock:
                tokens = list(self._tokens)
            if not tokens:
                continue
            now = self._clock().timestamp()
            try:
                with self._database.write() as connection:
                    connection.execute_many(
                        "UPDATE claims SET heartbeat_at = :now WHERE token = :token",
                        [{"now": now, "token": token} for token in tokens],
                    )
            except StoreError:
                _logger.warning("a heartbeat was lost; the next one follows", exc_info=True)


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


def allot_version(connection: Connection, node: Node, data_version: str, now: datetime) -> int:
    """Give a node's result its number, inside a write transaction."""
    rows = connection.execute(
        "SELECT version, data_version, built_at FROM heads "
        "WHERE asset = :asset AND partition = :partition",
        **node._asdict(),
    )
    former = None
    if rows:
        [row] = rows
        former = Record(row[0], row[1], None, None, from_epoch(row[2]))
    [[highest]] = connection.execute(
        "SELECT coalesce(max(version), 0) FROM versions "
        "WHERE asset = :asset AND partition = :partition",
        **node._asdict(),
    )
    version = next_version(former, max(highest, former.version if former else 0), data_version)
    connection.execute(
        "INSERT INTO versions (asset, partition, version, data_version, given_at) "
        "VALUES (:asset, :partition, :version, :data_version, :now) ON CONFLICT DO NOTHING",
        **node._asdict(),
        version=version,
        data_version=data_version,
        now=now.timestamp(),
    )
    return version


def set_head(
    connection: Connection, node: Node, record: Record, event_id: int | None = None
) -> None:
    """Make a record the current one of its node, inside a write transaction."""
    connection.execute(
        "INSERT INTO heads (asset, partition, version, data_version, code_version, built_from, "
        "built_at, build_id, run_id, event_id) VALUES (:asset, :partition, :version, "
        ":data_version, :code_version, :built_from, :built_at, :build_id, :run_id, :event_id) "
        "ON CONFLICT (asset, partition) DO UPDATE SET version = excluded.version, "
        "data_version = excluded.data_version, code_version = excluded.code_version, "
        "built_from = excluded.built_from, built_at = excluded.built_at, "
        "build_id = excluded.build_id, run_id = excluded.run_id, event_id = excluded.event_id",
        **node._asdict(),
        version=record.version,
        data_version=record.data_version,
        code_version=record.code_version,
        built_from=None if record.built_from is None else dump_reads(record.built_from),
        built_at=record.built_at.timestamp(),
        build_id=record.build_id,
        run_id=record.run_id,
        event_id=event_id,
    )


def dump_reads(reads: Mapping[Node, Read]) -> str:
    """Write what a build read as JSON."""
    return json.dumps([[*node, *read] for node, read in reads.items()], separators=(",", ":"))


def load_reads(text: str) -> dict[Node, Read]:
    """Read what `dump_reads` wrote."""
    if text == "[]":
        return {}
    return {Node(a, p): Read(v, d) for a, p, v, d in json.loads(text)}


def from_epoch(seconds: float) -> datetime:
    """Give an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def _storable(text: str) -> str:
    """Write out what no database takes: NUL, and the halves that stand for undecodable bytes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _drop_hold(connection: Connection, node: Node) -> None:
    connection.execute(
        "DELETE FROM holds WHERE asset = :asset AND partition = :partition", **node._asdict()
    )


def _select(connection: Connection, sql: str, nodes: Iterable[Node] | None) -> list[Any]:
    """Run a query over all nodes, or over those named: one statement either way."""
    if nodes is None:
        return connection.execute(sql)
    wanted = set(nodes)
    joiner = " AND " if " WHERE " in sql else " WHERE "
    if len(wanted) <= FEW_NODES:  # of 10,000 partitions not all are read for one
        slots = {f"n{_letters(i)}": node for i, node in enumerate(wanted)}
        each = [f"(asset = :{slot}a AND partition = :{slot}p)" for slot in slots] or ["1 = 0"]
        named = {f"{slot}a": node.asset for slot, node in slots.items()}
        named |= {f"{slot}p": node.partition for slot, node in slots.items()}
        return connection.execute(f"{sql}{joiner}({' OR '.join(each)})", **named)
    names = list({node.asset for node in wanted})
    if len(names) > MANY_NAMES:
        rows = connection.execute(sql)
    else:
        inside = {f"n{_letters(i)}": name for i, name in enumerate(names)}
        listed = ", ".join(f":{slot}" for slot in inside)
        rows = connection.execute(f"{sql}{joiner}asset IN ({listed})", **inside)
    return [row for row in rows if Node(row[0], row[1]) in wanted]


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def _running(connection: Connection, nodes: Iterable[Node] | None) -> list[Attempt]:
    rows = _select(
        connection,
        "SELECT asset, partition, build_id, fingerprint, code_version, orchestrator, run_id "
        "FROM builds WHERE state = 'running'",
        nodes,
    )
    return [Attempt(Node(r[0], r[1]), r[2], r[3], r[4], {}, r[5], r[6]) for r in rows]


def _claims(
    connection: Connection, now: datetime, nodes: Iterable[Node] | None = None
) -> dict[Node, Claim]:
    rows = _select(
        connection,
        "SELECT asset, partition, token, host, pid, run_id, started_at, heartbeat_at, pid_started "
        "FROM claims",
        nodes,
    )
    here = socket.gethostname()
    found: dict[Node, Claim] = {}
    for row in rows:
        heartbeat = from_epoch(row[7])
        expired = (now - heartbeat).total_seconds() > EXPIRY_SECONDS
        gone = row[3] == here and abs(process_started(row[4]) - row[8]) > SAME_PROCESS_SECONDS
        if not expired and not gone:
            found[Node(row[0], row[1])] = Claim(
                row[2], row[3], row[4], row[5], from_epoch(row[6]), heartbeat
            )
    return found


def process_started(pid: int) -> float:
    """Give when a process started, so that a pid that was given anew is told apart; 0 if gone."""
    import psutil  # noqa: PLC0415 - only where somebody builds

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # killed, and nobody asked for its exit code
            return 0.0
        return float(process.create_time())
    except psutil.Error:
        return 0.0
