"""Events of datasets and aliases in memory: for tests and notebooks, gone with the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from examlops_dagster.core.emissions import DatasetEvent, Emission
from examlops_dagster.core.inlets import NEWEST
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.memory import MemoryLedger


class MemoryOutlets:
    """Keeps events in lists, and records in a MemoryLedger.

    Parameters
    ----------
    ledger
        Where datasets and aliases get their versions.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, ledger: MemoryLedger, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._events: dict[tuple[str, bool], list[tuple[str, DatasetEvent]]] = {}

    def emit(self, source: Node, build_id: str, emissions: Sequence[Emission]) -> None:
        """See Outbox."""
        for number, emission in enumerate(emissions):
            event_id = f"{build_id}.{number}"
            self._add(Node(emission.dataset, emission.partition), False, source, event_id, emission)
            for alias in emission.aliases:
                self._add(Node(alias), True, source, event_id, emission)

    def events(
        self,
        name: str,
        *,
        alias: bool,
        after: int = 0,
        until: int = NEWEST,
        limit: int | None = None,
    ) -> list[DatasetEvent]:
        """See EventsLog."""
        kept = self._events.get((name, alias), [])
        found = [event for _, event in kept if after < event.version <= until]
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def last_batch(self, name: str, *, alias: bool, until: int) -> list[DatasetEvent]:
        """See EventsLog."""
        kept = [e for e in self._events.get((name, alias), []) if e[1].version <= until]
        return [event for build_id, event in kept if build_id == kept[-1][0]]

    def first_after(self, name: str, *, alias: bool, after: int) -> tuple[int, str] | None:
        """See EventsLog."""
        found = self.events(name, alias=alias, after=after)
        return (found[0].version, found[0].data_version) if found else None

    def _add(
        self, node: Node, alias: bool, source: Node, event_id: str, emission: Emission
    ) -> None:
        record = self._ledger.report(node, event_id)
        event = DatasetEvent(
            emission.dataset,
            emission.extra,
            emission.dataset_extra,
            emission.aliases,
            source.asset,
            source.partition,
            "",
            self._clock(),
            record.version,
            event_id,
            emission.partition,
        )
        build_id = event_id.rpartition(".")[0]
        self._events.setdefault((node.asset, alias), []).append((build_id, event))
