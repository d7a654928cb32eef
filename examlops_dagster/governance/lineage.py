"""Lineage: delivers what was built to an OpenLineage backend, at least once and in order.

Nothing here stops a build. What cannot be delivered now waits in platform.db; an event that the
backend refuses again and again is set aside with the reason, and the others go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from examlops_dagster.governance.lineage_backend import (
    Backend,
    RefusedEventError,
    TroubledError,
    UnreachableError,
    open_backend,
)
from examlops_dagster.governance.lineage_names import Names
from examlops_dagster.governance.lineage_rows import Facts, facts_of
from examlops_dagster.governance.lineage_spool import LEASE_SECONDS, Due, Phase, Spool
from examlops_dagster.home import Home
from examlops_dagster.store.engine import Database

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

MOST_REFUSALS = 3
MOST_TROUBLES = 10
"""How often an event may let a backend fail that takes others, before it is set aside."""

TROUBLES_IN_A_ROW = 3
"""After so many it is the backend that does not work; the next pass begins with other events."""

BATCH = 50

logger = logging.getLogger(__name__)


@dataclass
class Delivered:
    """What a pass over the spool came to.

    Attributes
    ----------
    delivered, set_aside, refused
        Numbers of events.
    waiting
        Events that are still to be delivered.
    outage
        Why the pass ended early; empty if it did not.
    is_elsewhere
        Whether that is because another process delivers them.
    """

    delivered: int = 0
    set_aside: int = 0
    refused: int = 0
    waiting: int = 0
    outage: str = ""
    is_elsewhere: bool = False

    def __str__(self) -> str:
        text = f"Delivered {self.delivered} lineage events, {self.waiting} wait"
        if self.set_aside:
            text += f", {self.set_aside} were set aside"
        return f"{text}: {self.outage}" if self.outage else text


def deliver(
    database: Database,
    home: Home,
    *,
    most: int = 1_000_000,
    seconds: float = 3_600.0,
    patient: bool = True,
    backend: Backend | None = None,
) -> Delivered:
    """Deliver what waits.

    Parameters
    ----------
    most
        Events in this pass.
    seconds
        No event is begun later than this after the start of the pass.
    patient
        Leave a backend alone for a while that could not be reached.
    backend
        Where they go; the configured one by default.

    Raises
    ------
    UsageError
        If the configuration of the backend cannot work.
    """
    spool = Spool(database)
    outage = spool.outage()
    if patient and outage is not None and outage.next_at > time.time():
        return Delivered(waiting=spool.counts()["waiting"], outage=outage.reason)
    if spool.is_empty():
        return Delivered()
    if not spool.lease():
        return Delivered(outage="another process is delivering them", is_elsewhere=True)
    opened = backend
    try:
        opened = opened or open_backend(home)
        names = Names.of(home.environment)
        done = _Pass(database, spool, opened, names, most, time.monotonic() + seconds).run()
        done.waiting = spool.counts()["waiting"]
        return done
    finally:
        spool.release()
        if opened is not None and backend is None:
            opened.close()


def tell_outage(reason: str) -> None:
    """Say that the backend is left alone for now, and why."""
    logger.warning("the lineage backend cannot be reached (%s); the events wait", reason)


class _Pass:
    def __init__(
        self,
        database: Database,
        spool: Spool,
        backend: Backend,
        names: Names,
        most: int,
        deadline: float,
    ) -> None:
        self._database = database
        self._spool = spool
        self._backend = backend
        self._names = names
        self._left = most
        self._deadline = deadline
        self._leased = time.monotonic()
        self._troubled: list[tuple[Due, str]] = []
        self._done = Delivered()
        self._sent: list[tuple[Due, str]] = []
        self._gone: set[tuple[str, Phase]] = set()

    def run(self) -> Delivered:
        while not self._is_over() and not self._spool.collect():
            pass
        while not self._is_over():
            batch = self._spool.due(min(BATCH, self._left))
            if not batch or not self._deliver(batch):
                break
        if self._troubled and not self._done.outage:  # it took no other one
            self._fail(self._troubled[-1][1])
        return self._done

    def _is_over(self) -> bool:
        return (
            bool(self._done.outage)
            or self._left <= 0
            or time.monotonic() > self._deadline
            or not self._keeps_lease()
        )

    def _keeps_lease(self) -> bool:
        if time.monotonic() - self._leased < LEASE_SECONDS / 4:
            return True
        self._leased = time.monotonic()
        return self._spool.lease()

    def _deliver(self, batch: list[Due]) -> bool:
        """Deliver a batch, and say whether any of it is dealt with."""
        with self._database.read() as connection:
            facts = facts_of(connection, [due.build_id for due in batch])
        dealt_with = False
        try:
            for due in batch:
                if self._is_over():
                    break
                earlier = sum((due.build_id, p) in self._gone for p in Phase if p < due.phase)
                if due.before > earlier:
                    continue  # its run begins with an event that is tried again later
                dealt_with = True
                self._one(due, facts.get(due.build_id))
        finally:
            self._note()
        return dealt_with

    def _one(self, due: Due, facts: Facts | None) -> None:
        self._left -= 1
        try:
            event = _event(due, facts, self._names)
        except Exception as error:
            logger.exception("the lineage event of attempt %s cannot be made", due.build_id)
            self._refuse(due, f"it cannot be made: {error}", most=1)
            return
        try:
            self._backend.send(event)
        except RefusedEventError as error:
            self._refuse(due, str(error), most=MOST_REFUSALS)
        except TroubledError as error:
            self._trouble(due, str(error))
        except UnreachableError as error:
            self._fail(str(error))
        else:
            self._done.delivered += 1
            self._gone.add((due.build_id, due.phase))
            word = event.eventType.value if event.eventType is not None else ""
            self._sent.append((due, word))
            self._blame_events()

    def _refuse(self, due: Due, reason: str, *, most: int) -> None:
        self._note()
        self._done.refused += 1
        if self._spool.refused(due, reason, most=most):
            self._done.set_aside += 1
            self._gone.add((due.build_id, due.phase))
            logger.error(
                "a lineage event is set aside after %d refusals: %s → exa lineage --undelivered",
                due.refusals + 1,
                reason,
            )

    def _trouble(self, due: Due, reason: str) -> None:
        self._note()
        self._spool.postponed(due, reason)
        self._troubled.append((due, reason))
        if len(self._troubled) >= TROUBLES_IN_A_ROW:
            self._fail(reason)

    def _blame_events(self) -> None:
        """Count what the backend failed over against the events, since it took another one."""
        while self._troubled:
            due, reason = self._troubled.pop(0)
            self._refuse(due, reason, most=MOST_TROUBLES)

    def _fail(self, reason: str) -> None:
        self._done.outage = reason
        self._note()
        self._spool.failed(reason)
        tell_outage(reason)

    def _note(self) -> None:
        sent, self._sent = self._sent, []
        if sent:
            self._spool.delivered(sent)


def _event(due: Due, facts: Facts | None, names: Names) -> RunEvent:
    from examlops_dagster.governance.lineage_events import (  # noqa: PLC0415 - takes a second
        end_of,
        start_of,
    )

    if facts is None:
        raise LookupError("its build is no longer recorded")
    make: Callable[..., RunEvent] = start_of if due.phase.is_start else end_of
    return make(facts, names, recovered=due.phase.recovered)
