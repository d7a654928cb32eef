"""The audit log: rows that are only added, each with the hash of the one before it.

The head (number and hash of the last row) is kept beside the rows, so that a tail that was cut
off is noticed. Who can write to the database can write a whole new chain: what proves the log to
others is a head that was kept elsewhere (``exa audit verify`` prints it).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.ledger.rows import storable
from examlops_dagster.store.engine import Connection, Database

GENESIS = "0" * 64
"""What stands for the hash before the first row."""

PAGE = 2_000


@dataclass(frozen=True)
class Entry:
    """What is to be recorded.

    Attributes
    ----------
    assets
        Names of the assets that it is about.
    details
        What JSON can hold.
    once
        A key under which it is recorded a single time, whoever tries; empty for any number.
    """

    action: str
    actor: str
    assets: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    once: str = ""


@dataclass(frozen=True)
class AuditRow:
    """What was recorded.

    Attributes
    ----------
    at
        UTC, ISO 8601 with microseconds and Z.
    former, hash
        Hash of the row before, and of this one.
    """

    number: int
    at: str
    actor: str
    action: str
    assets: tuple[str, ...]
    details: Mapping[str, Any]
    once: str | None
    former: str
    hash: str

    @property
    def content(self) -> dict[str, Any]:
        """What is hashed, with the hash of the row before."""
        return {
            "number": self.number,
            "at": self.at,
            "actor": self.actor,
            "action": self.action,
            "assets": list(self.assets),
            "details": dict(self.details),
            "once": self.once,
            "former": self.former,
        }

    @property
    def as_json(self) -> dict[str, Any]:
        """As ``exa audit export`` shows it."""
        return {**self.content, "hash": self.hash}


@dataclass(frozen=True)
class Verification:
    """What a look at the whole chain found.

    Attributes
    ----------
    count
        Rows that follow from each other.
    head
        Hash of the last of them.
    broken
        Number of the first row that does not; None when all do.
    reason
        What is wrong with it.
    """

    count: int
    head: str
    broken: int | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was changed, taken out, put in or cut off."""
        return self.broken is None


class Audit:
    """The audit log in platform.db; safe for many processes.

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

    def append(self, *entries: Entry) -> None:
        """Record entries, all of them or none."""
        with self._database.write() as connection:
            append(connection, entries, self._clock())

    def listed(
        self,
        *,
        asset: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        limit: int = 20,
    ) -> list[AuditRow]:
        """Give the latest rows that are about something, newest first.

        Parameters
        ----------
        since
            Aware datetime.
        """
        found: list[AuditRow] = []
        for row in self._rows(newest_first=True):
            if since is not None and row.at < _text(since):
                break
            if asset is not None and asset not in row.assets:
                continue
            if action is not None and row.action != action:
                continue
            found.append(row)
            if len(found) >= limit:
                break
        return found

    def rows(self) -> Iterator[AuditRow]:
        """Give every row, oldest first."""
        return self._rows(newest_first=False)

    def verify(self) -> Verification:
        """Follow the chain from the first row to the head."""
        count, former = 0, GENESIS
        with self._database.read() as connection:
            head = _head(connection)
            for row in _pages(connection, newest_first=False):
                number = count + 1
                if row[0] != number:
                    reason = f"row {number} is missing; row {row[0]} comes next"
                    return Verification(count, former, number, reason)
                problem = _problem(row, former)
                if problem:
                    return Verification(count, former, number, f"row {number} {problem}")
                count, former = number, row[8]
        if head is None and count:
            return Verification(count, former, count, "the head of the log was taken away")
        if head is not None and head[0] > count:
            cut = f"row {count + 1}" if head[0] == count + 1 else f"rows {count + 1} to {head[0]}"
            verb = "was" if head[0] == count + 1 else "were"
            return Verification(count, former, count + 1, f"{cut} {verb} cut off")
        if head is not None and head != (count, former):
            return Verification(count, former, head[0] + 1, f"row {head[0]} is not the head")
        return Verification(count, former)

    def _rows(self, *, newest_first: bool) -> Iterator[AuditRow]:
        with self._database.read() as connection:
            yield from map(_row, _pages(connection, newest_first=newest_first))


def append(connection: Connection, entries: Iterable[Entry], now: datetime) -> None:
    """Record entries inside a write transaction, which keeps other writers out.

    Parameters
    ----------
    now
        Aware UTC datetime.
    """
    head = _head(connection) or _last(connection)
    number, former = head
    for entry in entries:
        once = storable(entry.once) or None
        if once is not None and connection.execute(
            "SELECT 1 FROM audit WHERE once = :once", once=once
        ):
            continue
        number += 1
        row = AuditRow(
            number,
            _text(now),
            storable(entry.actor),
            storable(entry.action),
            tuple(map(str, entry.assets)),
            json.loads(canonical(dict(entry.details))),
            once,
            former,
            "",
        )
        former = digest(row)
        connection.execute(
            "INSERT INTO audit (number, at, actor, action, assets, details, once, former, hash) "
            "VALUES (:number, :at, :actor, :action, :assets, :details, :once, :former, :hash)",
            number=number,
            at=row.at,
            actor=row.actor,
            action=row.action,
            assets=canonical(list(row.assets)),
            details=canonical(dict(row.details)),
            once=once,
            former=row.former,
            hash=former,
        )
    if number != head[0]:
        connection.execute(
            "INSERT INTO audit_head (name, number, hash) VALUES ('audit', :number, :hash) "
            "ON CONFLICT (name) DO UPDATE SET number = excluded.number, hash = excluded.hash",
            number=number,
            hash=former,
        )


def canonical(value: object) -> str:
    """Write JSON in the one form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def digest(row: AuditRow) -> str:
    """Give the hash of a row: sha256 of the canonical JSON of its content."""
    return hashlib.sha256(canonical(row.content).encode()).hexdigest()


_ROWS = "SELECT number, at, actor, action, assets, details, once, former, hash FROM audit"


def _pages(connection: Connection, *, newest_first: bool) -> Iterator[Any]:
    order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
    rows = connection.execute(f"{_ROWS} ORDER BY number {order} LIMIT :page", page=PAGE)
    while rows:
        yield from rows
        if len(rows) < PAGE:
            return
        rows = connection.execute(
            f"{_ROWS} WHERE number {sign} :number ORDER BY number {order} LIMIT :page",
            number=rows[-1][0],
            page=PAGE,
        )


def _row(row: Any) -> AuditRow:
    """Read a row; one that somebody spoilt is shown as far as it can be read."""
    return AuditRow(
        row[0], row[1], row[2], row[3], tuple(_json(row[4], [])), _json(row[5], {}), *row[6:]
    )


def _json(text: str, kind: Any) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, type(kind)):
        return found
    return [text] if isinstance(kind, list) else {"unreadable": text}


def _problem(row: Any, former: str) -> str:
    """Say what is wrong with a stored row, or nothing."""
    read = _row(row)
    if read.former != former:
        return "does not follow from the row before it"
    as_stored = (canonical(list(read.assets)), canonical(dict(read.details)))
    if as_stored != (row[4], row[5]) or digest(read) != read.hash:
        return "was changed: its content does not give its hash"
    return ""


def _head(connection: Connection) -> tuple[int, str] | None:
    rows = connection.execute("SELECT number, hash FROM audit_head WHERE name = 'audit'")
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def _last(connection: Connection) -> tuple[int, str]:
    """Give the last row: the head of a log whose head somebody took away."""
    rows = connection.execute("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1")
    return (int(rows[0][0]), str(rows[0][1])) if rows else (0, GENESIS)


def _text(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
