"""Requests over HTTP that need several runs in turn: what is still to be launched, in platform.db.

A server that is ended in between leaves the row to the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from examlops_dagster.core.records import Node
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Database

LEASE = timedelta(minutes=1)
"""How long a server may take to launch runs, before another takes an order up."""


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
    """

    id: str
    names: tuple[str, ...]
    partition: str | None
    due: bool
    runs: tuple[str, ...]
    later: frozenset[Node]
    asked_at: datetime

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
        """Give the orders that nobody has taken, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT id, names, partition, due, runs, later, asked_at FROM orders "
                "WHERE taken_at < :since ORDER BY asked_at, id",
                since=self._since,
            )
        return [
            Order(
                row[0],
                tuple(json.loads(row[1])),
                row[2],
                bool(row[3]),
                tuple(json.loads(row[4])),
                frozenset(Node(*each) for each in json.loads(row[5])),
                from_epoch(row[6]),
            )
            for row in rows
        ]

    def take(self, order: Order) -> bool:
        """Take an order as it is; False where another took it, carried it on or ended it."""
        with self._database.write() as connection:
            found = connection.execute(
                "SELECT 1 FROM orders WHERE id = :id AND runs = :runs AND taken_at < :since",
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

    def end(self, order: Order) -> None:
        """Forget an order."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM orders WHERE id = :id", id=order.id)

    @property
    def _since(self) -> float:
        return (self._clock() - LEASE).timestamp()
