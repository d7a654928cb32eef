"""Requests over HTTP that need several runs in turn: what is still to be launched, in platform.db.

A server that is ended in between leaves the row to the next one. What became of a request can be
read for a week after its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Database

LEASE = timedelta(minutes=1)
"""How long a server may take to launch runs, before another takes an order up."""

KEPT = timedelta(days=7)
"""How long it can be read what became of an order."""

_COLUMNS = (
    "id", "names", "partition", "due", "runs", "later", "asked_at", "state", "why", "failures",
    "next_at", "ended_at",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM orders"  # noqa: S608 - the parts are constants


class OrderState(Enum):
    """What becomes of an order; the values are stored, and are those of the API."""

    OPEN = "open"
    DONE = "done"
    """All of it is launched."""
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class Order:
    """What a request has launched, and what it has not yet.

    Attributes
    ----------
    names
        As the request named them; empty for all that is due.
    partition
        As the request named it.
    due
        Whether only what is due is built of them.
    runs
        Dagster runs whose success is waited for.
    later
        What is launched then.
    asked_at
        Aware UTC datetime.
    why
        Why it was given up, or what the last launch failed by.
    failures
        Launches in a row that failed.
    next_at
        Before which no other is tried; an aware UTC datetime, None for at once.
    ended_at
        Aware UTC datetime; None while it is open.
    """

    id: str
    names: tuple[str, ...]
    partition: str | None
    due: bool
    runs: tuple[str, ...]
    later: frozenset[Node]
    asked_at: datetime
    state: OrderState = OrderState.OPEN
    why: str = ""
    failures: int = 0
    next_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def assets(self) -> list[str]:
        """Names of the assets that are launched later."""
        return sorted({node.asset for node in self.later})


class Orders:
    """Keeps orders; safe for many servers.

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

    def keep(self, order: Order, *, taken: bool = False) -> None:
        """Keep an order as it is now; ``taken`` leaves it to who keeps it, for as long as a lease."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO orders (id, names, partition, due, runs, later, asked_at, taken_at) "
                "VALUES (:id, :names, :partition, :due, :runs, :later, :asked_at, :taken_at) "
                "ON CONFLICT (id) DO UPDATE SET runs = excluded.runs, later = excluded.later, "
                "taken_at = excluded.taken_at",
                id=order.id,
                names=json.dumps(order.names),
                partition=order.partition,
                due=int(order.due),
                runs=json.dumps(order.runs),
                later=json.dumps(sorted(order.later)),
                asked_at=order.asked_at.timestamp(),
                taken_at=self._clock().timestamp() if taken else 0.0,
            )

    def open(self) -> list[Order]:
        """Give the orders that nobody has taken and whose time has come, oldest first."""
        return self._read(
            "WHERE state = 'open' AND taken_at < :since AND next_at <= :now ORDER BY asked_at, id",
            since=self._since,
            now=self._clock().timestamp(),
        )

    def listed(self) -> list[Order]:
        """Give all that are kept, newest first."""
        return self._read("ORDER BY asked_at DESC, id")

    def named(self, order_id: str) -> Order | None:
        """Give one by its id; None where there is none (any more)."""
        return next(iter(self._read("WHERE id = :id", id=order_id)), None)

    def take(self, order: Order) -> bool:
        """Take an order as it is; False where another took it, carried it on or ended it."""
        with self._database.write() as connection:
            found = connection.execute(
                "SELECT 1 FROM orders WHERE id = :id AND runs = :runs AND taken_at < :since "
                "AND state = 'open'",
                id=order.id,
                runs=json.dumps(order.runs),
                since=self._since,
            )
            if found:
                connection.execute(
                    "UPDATE orders SET taken_at = :now WHERE id = :id",
                    id=order.id,
                    now=self._clock().timestamp(),
                )
        return bool(found)

    def launched(self, order: Order) -> None:
        """Forget the failures before a launch that came about."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE orders SET failures = 0, why = '', next_at = 0 WHERE id = :id", id=order.id
            )

    def postpone(self, order: Order, why: str, until: datetime) -> None:
        """Note that a launch failed, and when another is tried."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE orders SET failures = failures + 1, why = :why, next_at = :until, "
                "taken_at = 0 WHERE id = :id",
                id=order.id,
                why=why,
                until=until.timestamp(),
            )

    def end(self, order: Order, why: str = "") -> None:
        """Close an order: all of it is launched, or what is left is given up, and why."""
        now = self._clock()
        with self._database.write() as connection:
            if not why:
                connection.execute(
                    "UPDATE orders SET runs = :runs, later = '[]' WHERE id = :id",
                    id=order.id,
                    runs=json.dumps(order.runs),
                )
            connection.execute(
                "UPDATE orders SET state = :state, why = :why, ended_at = :now, next_at = 0 "
                "WHERE id = :id",
                id=order.id,
                state=(OrderState.GIVEN_UP if why else OrderState.DONE).value,
                why=why,
                now=now.timestamp(),
            )
            connection.execute(
                "DELETE FROM orders WHERE ended_at < :since", since=(now - KEPT).timestamp()
            )

    def forget(self, order: Order) -> None:
        """Remove an order of which nobody was told."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM orders WHERE id = :id", id=order.id)

    def _read(self, clause: str, **parameters: Any) -> list[Order]:
        with self._database.read() as connection:
            rows = connection.execute(f"{_SELECT} {clause}", **parameters)
        return [_order(dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    @property
    def _since(self) -> float:
        return (self._clock() - LEASE).timestamp()


def _order(row: dict[str, Any]) -> Order:
    return Order(
        row["id"],
        tuple(json.loads(row["names"])),
        row["partition"],
        bool(row["due"]),
        tuple(json.loads(row["runs"])),
        frozenset(Node(*each) for each in json.loads(row["later"])),
        from_epoch(row["asked_at"]),
        OrderState(row["state"]),
        row["why"],
        row["failures"],
        from_epoch(row["next_at"]) if row["next_at"] else None,
        None if row["ended_at"] is None else from_epoch(row["ended_at"]),
    )
