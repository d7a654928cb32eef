"""Records the keys of a range: the event of each, then its version, many in one transaction.

A key whose event waits keeps its claim, and its attempt stays ``running`` with a version. A
process that is killed meanwhile leaves a number unused and nothing recorded; one that is killed
between the events and the versions leaves what the next sync completes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dagster import AssetExecutionContext, AssetMaterialization, EventLogEntry
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

from examlops_dagster.dagster_bridge.event_batches import store_batch, takes_batches
from examlops_dagster.dagster_bridge.node import NodeBuild
from examlops_dagster.dagster_bridge.products import Product
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.values import make_durable

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

MOST_WAITING = 100
"""Keys whose events wait to be stored together."""

LONGEST_WAIT_SECONDS = 1.0
"""How long a key that was built waits to be recorded, also behind a slow one."""


class _Waiting(NamedTuple):
    build: NodeBuild
    product: Product
    entry: EventLogEntry
    path: Path | None


class RangeEvents:
    """Keeps the events of keys that were built, and stores them many at once.

    Where the storage does not take many at once, each is given to Dagster. Leaving the context
    records what waits, whatever the reason.

    Parameters
    ----------
    context
        Of the step.
    ledger
        Where the builds are completed.
    most
        Keys that may wait; 1 records each before the next one is built.
    recorded
        Called with each key that is recorded, while its claim is still held.
    """

    def __init__(
        self,
        context: AssetExecutionContext,
        ledger: BuildsLedger,
        most: int = MOST_WAITING,
        recorded: Callable[[Product], None] = lambda product: None,  # noqa: ARG005
    ) -> None:
        self._step = context.get_step_execution_context()
        self._storage = context.instance.event_log_storage
        self._ledger = ledger
        self._most = most
        self._recorded = recorded
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._since = 0.0
        self._stored: list[DagsterEvent] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._record()

    def add(
        self,
        build: NodeBuild,
        product: Product,
        event: AssetMaterialization,
        path: Path | None,
    ) -> Iterator[AssetMaterialization | DagsterEvent]:
        """Take over a key that was built, with its claim; gives what Dagster has to be told.

        Parameters
        ----------
        path
            File of the value, which need not be durable yet; None where none is kept.
        """
        if not takes_batches(self._storage):
            try:
                try:
                    make_durable([path] if path else [])
                    yield event
                except BaseException as error:
                    build.fail(product.attempt, error)
                    raise
                build.complete(product)
                self._recorded(product)
            finally:
                build.claim.release()
            return
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(_Waiting(build, product, self._entry(event), path))
            due = len(self._waiting) >= self._most or self._is_late()
        if due:
            yield from self.flush()
        elif self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, name="examlops-range-events", daemon=True
            )
            self._thread.start()

    def flush(self) -> Iterator[DagsterEvent]:
        """Record what waits now; gives what Dagster has to be told."""
        self._record()
        with self._lock:
            stored, self._stored = self._stored, []
        yield from stored

    def _is_late(self) -> bool:
        return time.monotonic() - self._since >= LONGEST_WAIT_SECONDS

    def _watch(self) -> None:
        """Record what waits behind a key that takes long."""
        while not self._ended.wait(LONGEST_WAIT_SECONDS / 2):
            with self._lock:
                late = bool(self._waiting) and self._is_late()
            if late:
                try:
                    self._record()
                except Exception as error:  # noqa: BLE001 - raised in the step's own thread
                    self._error = error
                    return

    def _record(self) -> None:
        with self._lock:
            if self._error is not None:
                former, self._error = self._error, None
                raise former
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._record_all(waiting)

    def _record_all(self, waiting: Sequence[_Waiting]) -> None:
        stored = False
        try:
            make_durable([each.path for each in waiting if each.path is not None])
            store_batch(self._storage, [each.entry for each in waiting])
            stored = True
            self._ledger.complete_all([each.product.completion for each in waiting])
            for each in waiting:
                self._recorded(each.product)
        except BaseException as error:
            if not stored:  # else the next sync completes them
                for each in waiting:
                    each.build.fail(each.product.attempt, error)
            raise
        finally:
            self._ledger.release_all({each.build.node: each.build.claim.token for each in waiting})
        self._stored.extend(each.entry.get_dagster_event() for each in waiting)

    def _entry(self, event: AssetMaterialization) -> EventLogEntry:
        """Make the entry that Dagster would make of an event that a step yields.

        Its logs are not told: a line for each of thousands of keys helps nobody.
        """
        step = self._step
        message = event.description or f"Materialized value {event.label}."
        made = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name=step.job_name,
            step_handle=step.step.handle,
            node_handle=step.step.node_handle,
            step_kind_value=step.step.kind.value,
            logging_tags=step.event_tags,
            event_specific_data=StepMaterializationData(event),
            message=message,
            pid=os.getpid(),
        )
        return EventLogEntry(  # type: ignore[no-untyped-call]
            error_info=None,
            level=logging.DEBUG,
            user_message=message,
            run_id=step.run_id,
            timestamp=time.time(),
            step_key=step.step.key,
            job_name=step.job_name,
            dagster_event=made,
        )
