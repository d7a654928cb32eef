"""Carries requests over HTTP on, whose later runs wait for the success of earlier ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from examlops_dagster.clock import utc_now
from examlops_dagster.errors import ExamlopsError, LaunchError, StoreError
from examlops_dagster.ledger.orders import Order, Orders
from examlops_dagster.store.engine import Database
from examlops_dagster.web.launch import Launcher
from examlops_dagster.web.runs import RefusedError

POLL_SECONDS = 2.0
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(minutes=5)
MOST_LAUNCHES = 8
"""That fail in a row because something is away; they take a quarter of an hour."""

LONGEST = timedelta(days=7)
"""After that nobody waits any more."""

logger = logging.getLogger(__name__)


class Later:
    """A thread of the server that launches what is left of requests.

    Parameters
    ----------
    launcher
        Launches runs.
    instance
        Dagster's, where their ends are looked up.
    database
        platform.db, open, with its tables.
    """

    def __init__(self, launcher: Launcher, instance: DagsterInstance, database: Database) -> None:
        self._launcher = launcher
        self._instance = instance
        self._orders = Orders(database)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="examlops-later", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=POLL_SECONDS * 2)

    def look(self) -> None:
        """Launch what may be launched now, and close what never will be."""
        for order in self._orders.open():
            try:
                runs = self._runs(order)
                why = _over(order, runs)
                if why:
                    self._end(order, why)
                elif all(run.is_finished for run in runs):
                    self._launcher.carry_on(order)
            except StoreError:  # which could not be written down either
                raise
            except ExamlopsError as error:
                self._failed(order, error)

    def _follow(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            try:
                self.look()
            except Exception:  # Dagster's storage may be away for a while
                logger.exception("requests are carried on at the next look")

    def _failed(self, order: Order, error: ExamlopsError) -> None:
        """Try a launch again later, where what failed may pass; else give it up."""
        failures = order.failures + 1
        away = isinstance(error, (LaunchError, RefusedError)) and error.transient
        if not away or failures >= MOST_LAUNCHES:
            tries = f" ({failures} launches failed)" if away else ""
            self._end(order, f"{error}{tries}")
            return
        wait = min(FIRST_WAIT * 2 ** (failures - 1), LONGEST_WAIT)
        self._orders.postpone(order, str(error), utc_now() + wait)
        logger.warning(
            "%s: launch %d of %d failed, the next is in %d s: %s",
            ", ".join(order.assets), failures, MOST_LAUNCHES, wait.total_seconds(), error,
        )  # fmt: skip

    def _end(self, order: Order, why: str) -> None:
        self._orders.end(order, why)
        logger.warning("%s: not launched any more, %s", ", ".join(order.assets), why)

    def _runs(self, order: Order) -> list[DagsterRun]:
        if not order.runs:
            return []
        return list(self._instance.get_runs(RunsFilter(run_ids=list(order.runs))))


def _over(order: Order, runs: Sequence[DagsterRun]) -> str:
    """Say why an order is not carried on; empty where it is."""
    if utc_now() - order.asked_at > LONGEST:
        return f"it was asked for on {order.asked_at:%Y-%m-%d}"
    bad = [run for run in runs if run.is_finished and run.status is not DagsterRunStatus.SUCCESS]
    if bad:
        return f"since run {bad[0].run_id} ended as {bad[0].status.value}"
    return "since a run before it was deleted" if len(runs) < len(order.runs) else ""
