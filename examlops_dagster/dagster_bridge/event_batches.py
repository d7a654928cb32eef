"""Stores many events in one transaction, where Dagster would take two for each.

Dagster's default storage opens a connection, commits and closes it for each event, in the file of
the run and in the index: 5 to 10 ms of processor, and up to 100 ms on a disk that others use. A
run over 10,000 partitions has 20,000 such events: one planned and one materialized for each.
Storages other than the default one are left to Dagster.

Rests on the methods in `_NEEDED` of Dagster 1.13; where one is missing, every event is left to
Dagster, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeGuard

from dagster import DagsterInstance, EventLogEntry
from dagster._core.events import ASSET_EVENTS

if TYPE_CHECKING:
    from dagster._core.storage.event_log import SqliteEventLogStorage

MOST = 500
"""Events in one transaction: others who write to the index wait for its end."""

_NEEDED = (
    "run_connection",
    "index_transaction",
    "prepare_insert_event",
    "_store_asset_event_tags",
    "_store_asset_event",
)


def takes_batches(storage: object) -> TypeGuard[SqliteEventLogStorage]:
    """Tell whether many events can be stored at once: in Dagster's default storage."""
    # imported with the storage; definitions are loaded without SQLAlchemy
    from dagster._core.storage.event_log import SqliteEventLogStorage  # noqa: PLC0415

    return type(storage) is SqliteEventLogStorage and all(hasattr(storage, n) for n in _NEEDED)


def store_batch(storage: SqliteEventLogStorage, entries: Sequence[EventLogEntry]) -> None:
    """Store events about assets, as ``SqliteEventLogStorage.store_event`` stores each of them.

    A process that is killed in between leaves them in the run alone, as Dagster leaves one.

    Parameters
    ----------
    storage
        One that `takes_batches`.
    entries
        In their order.
    """
    for run_id, group in groupby(entries, key=lambda entry: entry.run_id):
        of_run = list(group)
        for first in range(0, len(of_run), MOST):
            _store(storage, run_id, of_run[first : first + MOST])


@contextmanager
def events_in_batches(instance: DagsterInstance) -> Iterator[None]:
    """Keep the events about assets that Dagster stores meanwhile, and store them at the end.

    For the process of a command that creates a run, and has no other thread that stores events.
    """
    storage = instance.event_log_storage
    if not takes_batches(storage):
        yield
        return
    kept: list[EventLogEntry] = []

    def store_event(event: EventLogEntry) -> None:
        if event.is_dagster_event and event.dagster_event_type in ASSET_EVENTS:
            kept.append(event)
        else:
            type(storage).store_event(storage, event)

    vars(storage)["store_event"] = store_event
    try:
        yield
    finally:
        del vars(storage)["store_event"]
        store_batch(storage, kept)


def _store(storage: SqliteEventLogStorage, run_id: str, entries: Sequence[EventLogEntry]) -> None:
    statements = [storage.prepare_insert_event(entry) for entry in entries]
    with storage.run_connection(run_id) as connection:
        for statement in statements:
            connection.execute(statement)
    with storage.index_transaction() as connection:
        ids = [_id_of(connection.execute(statement)) for statement in statements]
        storage._store_asset_event_tags(connection, entries, ids)  # noqa: SLF001 - see above
        # of each asset and kind of event the last one is what stays
        last: dict[Any, tuple[EventLogEntry, int]] = {}
        for entry, event_id in zip(entries, ids, strict=True):
            event = entry.get_dagster_event()
            last[event.asset_key, event.event_type_value] = (entry, event_id)
        for entry, event_id in sorted(last.values(), key=lambda each: each[1]):
            storage._store_asset_event(connection, entry, event_id)  # noqa: SLF001


def _id_of(result: Any) -> int:
    return int(result.inserted_primary_key[0])
