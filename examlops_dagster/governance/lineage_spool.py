"""The spool of lineage events in platform.db: which are still to be delivered, and by whom.

``builds`` is what there is to tell. The spool follows it: an attempt gets its START, and its end
once it has ended, however its process ended. A row says only that an event is due; what it says is
read when it is delivered. One deliverer at a time, so that the events of a run keep their order.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from examlops_dagster.ledger.history import NOT_BUILT
from examlops_dagster.ledger.processes import Process
from examlops_dagster.ledger.rows import storable
from examlops_dagster.store.engine import Connection, Database

LEASE_SECONDS = 60.0
COLLECTED_AT_ONCE = 5_000
FIRST_BACK_OFF_SECONDS = 10.0
LONGEST_BACK_OFF_SECONDS = 300.0
FIRST_REFUSAL_SECONDS = 30.0
LONGEST_REFUSAL_SECONDS = 3_600.0
LONGEST_REASON = 1_000

_RECOVERED = (
    "lineage l JOIN builds b ON b.build_id = l.build_id "
    "WHERE l.event IN ('FAIL', 'ABORT') AND b.state IN ('succeeded', 'unchanged')"
)
_EMITTED = (
    "dataset_events e WHERE e.source = '' AND substr(e.build_id, 1, 5) = 'emit-' "
    "AND NOT EXISTS (SELECT 1 FROM lineage s WHERE s.build_id = e.build_id AND s.phase = 1)"
)
"""What was emitted without a build: somebody said on the command line what he wrote."""


class Phase(IntEnum):
    """Place of an event among those of its attempt.

    The latter two are a second run: of an attempt that was told as failed, and whose event was
    found in Dagster's log later.
    """

    START = 0
    END = 1
    RECOVERED_START = 2
    RECOVERED_END = 3

    @property
    def is_start(self) -> bool:
        """Whether it begins a run."""
        return self in (Phase.START, Phase.RECOVERED_START)

    @property
    def recovered(self) -> bool:
        """Whether it belongs to the second run."""
        return self in (Phase.RECOVERED_START, Phase.RECOVERED_END)


class Delivery(Enum):
    """State of an event in the spool; the value is what is stored."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    SET_ASIDE = "refused"
    NONE = "none"
    """The START of what was not built: a changed source is told by its end alone."""


class Due(NamedTuple):
    """An event that is to be delivered.

    Attributes
    ----------
    before
        Events of the attempt that come before it and are not delivered.
    """

    build_id: str
    phase: Phase
    refusals: int
    before: int


@dataclass(frozen=True)
class Spooled:
    """An event in the spool, for people.

    Attributes
    ----------
    next_at
        When it is tried again (seconds since the epoch).
    reason
        Why it was refused; empty if it was not.
    """

    asset: str
    partition: str
    build_id: str
    phase: Phase
    state: Delivery
    refusals: int
    next_at: float
    reason: str


@dataclass(frozen=True)
class Outage:
    """That the backend cannot be reached.

    Attributes
    ----------
    failures
        In a row.
    next_at
        When it is tried again (seconds since the epoch).
    """

    failures: int
    next_at: float
    reason: str


class Spool:
    """The spool of one platform.db.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    clock
        Gives seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._token = secrets.token_hex(8)

    def is_empty(self) -> bool:
        """Tell whether nothing waits, without taking the writer's lock."""
        with self._database.read() as connection:
            [[collected, newest]] = connection.execute(
                "SELECT d.collected, (SELECT coalesce(max(id), 0) FROM builds) "
                "FROM lineage_deliverer d"
            )
            if newest > collected:
                return False
            return not connection.execute(
                "SELECT 1 FROM lineage WHERE state = 'waiting' UNION ALL "  # noqa: S608 - ours
                "SELECT 1 FROM lineage l JOIN builds b ON b.build_id = l.build_id "
                "WHERE l.is_open = 1 AND b.state <> 'running' UNION ALL "
                f"SELECT 1 FROM {_RECOVERED} AND NOT EXISTS (SELECT 1 FROM lineage s "
                "WHERE s.build_id = l.build_id AND s.phase = 3) UNION ALL "
                f"SELECT 1 FROM {_EMITTED} LIMIT 1"
            )

    def outage(self) -> Outage | None:
        """Give why the backend is left alone for now; None if it is not."""
        with self._database.read() as connection:
            [[failures, next_at, reason]] = connection.execute(
                "SELECT failures, next_at, reason FROM lineage_deliverer"
            )
        return Outage(failures, next_at, reason) if failures else None

    def lease(self) -> bool:
        """Become the deliverer, or stay it; False if another process is."""
        now = self._clock()
        here = Process.here()
        with self._database.write() as connection:
            [[token, host, pid, started, until]] = connection.execute(
                "SELECT token, host, pid, pid_started, until FROM lineage_deliverer"
            )
            is_another = token not in ("", self._token) and until > now
            if is_another and not Process(host, pid, started).is_gone:
                return False
            connection.execute(
                "UPDATE lineage_deliverer SET token = :token, host = :host, pid = :pid, "
                "pid_started = :started, until = :until",
                token=self._token,
                host=here.host,
                pid=here.pid,
                started=here.started,
                until=now + LEASE_SECONDS,
            )
        return True

    def release(self) -> None:
        """Let another process deliver."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE lineage_deliverer SET token = '', until = 0 WHERE token = :token",
                token=self._token,
            )

    def collect(self) -> bool:
        """Take over what happened in ``builds``; False if there is more."""
        with self._database.write() as connection:
            [[collected]] = connection.execute("SELECT collected FROM lineage_deliverer")
            rows = connection.execute(
                "SELECT id FROM builds WHERE id > :after ORDER BY id LIMIT :most",
                after=collected,
                most=COLLECTED_AT_ONCE,
            )
            if rows:
                self._add(connection, collected, rows[-1][0])
            self._close(connection)
            self._add_recovered(connection)
            self._add_emitted(connection)
        return len(rows) < COLLECTED_AT_ONCE

    def due(self, most: int) -> list[Due]:
        """Give events that may be delivered now, in the order in which they happened."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT l.build_id, l.phase, l.refusals, (SELECT count(*) FROM lineage s "
                "WHERE s.build_id = l.build_id AND s.phase < l.phase AND s.state = 'waiting') "
                "FROM lineage l WHERE l.state = 'waiting' AND l.next_at <= :now "
                "AND NOT EXISTS (SELECT 1 FROM lineage s WHERE s.build_id = l.build_id "
                "AND s.phase < l.phase AND s.state = 'waiting' AND s.next_at > :now) "
                "ORDER BY l.happened_at, l.phase, l.id LIMIT :most",
                now=self._clock(),
                most=most,
            )
        return [Due(row[0], Phase(row[1]), row[2], row[3]) for row in rows]

    def delivered(self, events: Sequence[tuple[Due, str]]) -> None:
        """Note that the backend has these, with their event types; it is there, so no outage."""
        with self._database.write() as connection:
            connection.execute_many(
                "UPDATE lineage SET state = 'delivered', event = :event, reason = '' "
                "WHERE build_id = :build_id AND phase = :phase",
                [
                    {"build_id": due.build_id, "phase": int(due.phase), "event": event}
                    for due, event in events
                ],
            )
            if connection.execute("SELECT 1 FROM lineage_deliverer WHERE failures > 0"):
                connection.execute(
                    "UPDATE lineage_deliverer SET failures = 0, next_at = 0, reason = ''"
                )
                connection.execute(
                    "UPDATE lineage SET next_at = 0 WHERE state = 'waiting' AND next_at > 0"
                )

    def refused(self, due: Due, reason: str, *, most: int) -> bool:
        """Note that an event was refused; True if it is set aside, so often was it refused."""
        refusals = due.refusals + 1
        aside = refusals >= most
        wait = min(FIRST_REFUSAL_SECONDS * 4**due.refusals, LONGEST_REFUSAL_SECONDS)
        with self._database.write() as connection:
            connection.execute(
                "UPDATE lineage SET state = :state, refusals = :refusals, next_at = :next_at, "
                "reason = :reason WHERE build_id = :build_id AND phase = :phase",
                state=(Delivery.SET_ASIDE if aside else Delivery.WAITING).value,
                refusals=refusals,
                next_at=self._clock() + wait,
                reason=storable(reason)[:LONGEST_REASON],
                build_id=due.build_id,
                phase=int(due.phase),
            )
        return aside

    def postponed(self, due: Due, reason: str) -> None:
        """Note that the backend failed over an event, which need not be at fault."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE lineage SET next_at = :next_at, reason = :reason "
                "WHERE build_id = :build_id AND phase = :phase",
                next_at=self._clock() + FIRST_REFUSAL_SECONDS,
                reason=storable(reason)[:LONGEST_REASON],
                build_id=due.build_id,
                phase=int(due.phase),
            )

    def failed(self, reason: str) -> None:
        """Note that the backend cannot be reached, and leave it alone for a while."""
        with self._database.write() as connection:
            [[failures]] = connection.execute("SELECT failures FROM lineage_deliverer")
            wait = min(FIRST_BACK_OFF_SECONDS * 2 ** min(failures, 10), LONGEST_BACK_OFF_SECONDS)
            connection.execute(
                "UPDATE lineage_deliverer SET failures = :failures, next_at = :next_at, "
                "reason = :reason",
                failures=failures + 1,
                next_at=self._clock() + wait,
                reason=storable(reason)[:LONGEST_REASON],
            )

    def undelivered(self, limit: int) -> list[Spooled]:
        """Give the events that no backend has, oldest first."""
        return self._spooled("l.state IN ('waiting', 'refused')", limit=limit)

    def states_of(self, build_ids: Iterable[str]) -> dict[tuple[str, Phase], Spooled]:
        """Give how the events of attempts stand."""
        found: dict[tuple[str, Phase], Spooled] = {}
        for build_id in build_ids:
            for each in self._spooled("l.build_id = :build_id", build_id=build_id, limit=4):
                found[build_id, each.phase] = each
        return found

    def counts(self) -> dict[str, int]:
        """Give how many events wait, and how many are set aside."""
        with self._database.read() as connection:
            [[waiting]] = connection.execute("SELECT count(*) FROM lineage WHERE state = 'waiting'")
            [[aside]] = connection.execute("SELECT count(*) FROM lineage WHERE state = 'refused'")
        return {"waiting": waiting, "set_aside": aside}

    def try_again(self) -> int:
        """Let the events that were set aside, or wait after a refusal, be tried again at once."""
        with self._database.write() as connection:
            [[count]] = connection.execute("SELECT count(*) FROM lineage WHERE state = 'refused'")
            connection.execute(
                "UPDATE lineage SET state = 'waiting', refusals = 0, next_at = 0 "
                "WHERE state = 'refused' OR (state = 'waiting' AND next_at > 0)"
            )
        return int(count)

    def _spooled(self, clause: str, **parameters: Any) -> list[Spooled]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT b.asset, b.partition, l.build_id, l.phase, l.state, l.refusals, "  # noqa: S608
                "l.next_at, l.reason FROM lineage l LEFT JOIN builds b ON b.build_id = l.build_id "
                f"WHERE {clause} ORDER BY l.happened_at, l.phase, l.id LIMIT :limit",
                **parameters,
            )
        return [
            Spooled(r[0] or "", r[1] or "", r[2], Phase(r[3]), Delivery(r[4]), r[5], r[6], r[7])
            for r in rows
        ]

    @staticmethod
    def _add(connection: Connection, after: int, until: int) -> None:
        reported = ", ".join(f"'{word}'" for word in NOT_BUILT)
        connection.execute(
            "INSERT INTO lineage (build_id, phase, happened_at, state, event, "  # noqa: S608
            "is_open, refusals, next_at, reason) SELECT build_id, 0, started_at, "
            f"CASE WHEN orchestrator IN ({reported}) THEN 'none' ELSE 'waiting' END, "
            "'', 1, 0, 0, '' FROM builds WHERE id > :after AND id <= :until ORDER BY id "
            "ON CONFLICT DO NOTHING",
            after=after,
            until=until,
        )
        connection.execute("UPDATE lineage_deliverer SET collected = :until", until=until)

    @staticmethod
    def _close(connection: Connection) -> None:
        """Add the ends of what has ended."""
        connection.execute(
            "INSERT INTO lineage (build_id, phase, happened_at, state, event, is_open, refusals, "
            "next_at, reason) SELECT b.build_id, 1, coalesce(b.ended_at, b.started_at), "
            "'waiting', '', 0, 0, 0, '' FROM lineage l JOIN builds b ON b.build_id = l.build_id "
            "WHERE l.is_open = 1 AND b.state <> 'running' ORDER BY b.id ON CONFLICT DO NOTHING"
        )
        connection.execute(
            "UPDATE lineage SET is_open = 0 WHERE is_open = 1 AND EXISTS (SELECT 1 FROM lineage e "
            "WHERE e.build_id = lineage.build_id AND e.phase = 1)"
        )

    def _add_recovered(self, connection: Connection) -> None:
        """Tell anew what was told as failed, and whose event was found in Dagster's log since."""
        for phase in (Phase.RECOVERED_START, Phase.RECOVERED_END):
            connection.execute(
                "INSERT INTO lineage (build_id, phase, happened_at, state, event, "  # noqa: S608
                "is_open, refusals, next_at, reason) SELECT b.build_id, :phase, :now, 'waiting', "
                f"'', 0, 0, 0, '' FROM {_RECOVERED} ON CONFLICT DO NOTHING",
                phase=int(phase),
                now=self._clock(),
            )

    @staticmethod
    def _add_emitted(connection: Connection) -> None:
        connection.execute(
            "INSERT INTO lineage (build_id, phase, happened_at, state, event, "  # noqa: S608 - ours
            "is_open, refusals, next_at, reason) SELECT e.build_id, 1, min(e.happened_at), "
            f"'waiting', '', 0, 0, 0, '' FROM {_EMITTED} GROUP BY e.build_id "
            "ON CONFLICT DO NOTHING"
        )
