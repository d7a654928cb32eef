"""Claims in platform.db: which process builds a node, and whether that process is still there."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from examlops_dagster.core.records import Claim, Node
from examlops_dagster.errors import StoreError
from examlops_dagster.ledger.processes import own_start, process_started, same_start
from examlops_dagster.ledger.rows import from_epoch, select
from examlops_dagster.store.engine import Connection, Database

HEARTBEAT_SECONDS = 5.0
EXPIRY_SECONDS = 30.0
"""For a process of another host."""

_NOBODY = -1.0
"""Start of a process that no longer cares for its claim."""

_logger = logging.getLogger(__name__)


class Claims:
    """The claims of all processes; those of this one are kept alive until they are released.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._heartbeat = _Heartbeat(database, clock)

    def held(self) -> dict[Node, Claim]:
        """Give the claims of living processes."""
        with self._database.read() as connection:
            return living_claims(connection, self._clock())

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """Take a node, or give the claim that another has on it."""
        now = self._clock()
        pid = os.getpid()
        with self._database.write() as connection:
            held = living_claims(connection, now, [node]).get(node)
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
                pid_started=own_start(pid),
                run_id=run_id,
                now=now.timestamp(),
            )
        self._heartbeat.add(token)
        return None

    def release(self, node: Node, token: str) -> None:
        """Give a node back, unless another has it by now."""
        self.release_all({node: token})

    def release_all(self, tokens: Mapping[Node, str]) -> None:
        """Give several nodes back in one transaction."""
        for token in tokens.values():
            self._heartbeat.remove(token)
        with self._database.write() as connection:
            connection.execute_many(
                "DELETE FROM claims WHERE asset = :asset AND partition = :partition "
                "AND token = :token",
                [{**node._asdict(), "token": token} for node, token in tokens.items()],
            )

    def is_ours(self, node: Node, token: str) -> bool:
        """Tell whether nobody took a claim over, whose process may have stood still for long."""
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT 1 FROM claims WHERE asset = :asset AND partition = :partition "
                "AND token = :token",
                **node._asdict(),
                token=token,
            )
        return bool(found)

    def close(self) -> None:
        """Stop the heartbeat; claims that were not released expire, though the process lives on."""
        left = self._heartbeat.stop()
        if left:
            with suppress(StoreError), self._database.write() as connection:
                connection.execute_many(
                    "UPDATE claims SET pid_started = :nobody WHERE token = :token",
                    [{"nobody": _NOBODY, "token": token} for token in left],
                )


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

    def stop(self) -> list[str]:
        """End the thread, and give the claims that it kept alive."""
        self._wake.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout=1)
        with self._lock:
            return list(self._tokens)

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


def living_claims(
    connection: Connection, now: datetime, nodes: Iterable[Node] | None = None
) -> dict[Node, Claim]:
    """Give the claims whose process is alive, as far as this host and their heartbeat tell."""
    rows = select(
        connection,
        "SELECT asset, partition, token, host, pid, run_id, started_at, heartbeat_at, pid_started "
        "FROM claims",
        nodes,
    )
    here = socket.gethostname()
    started = {pid: process_started(pid) for pid in {row[4] for row in rows if row[3] == here}}
    found: dict[Node, Claim] = {}
    for row in rows:
        heartbeat = from_epoch(row[7])
        if row[3] == here and row[8] != _NOBODY:
            # one that stands still, as after Ctrl-Z, has no heartbeat, and goes on some time
            is_alive = same_start(started[row[4]], row[8])
        else:
            is_alive = (now - heartbeat).total_seconds() <= EXPIRY_SECONDS
        if is_alive:
            found[Node(row[0], row[1])] = Claim(
                row[2], row[3], row[4], row[5], from_epoch(row[6]), heartbeat
            )
    return found
