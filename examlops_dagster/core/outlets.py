"""How a production function adds events to its outlets, and reads those of its inlets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from examlops_dagster.core.aliases import Dataset, DatasetAlias, Metadata, Outlet
from examlops_dagster.core.emissions import DatasetEvent, check_taken, no_such_outlet
from examlops_dagster.errors import UsageError


class OutletEvents(Mapping[Any, "OutletAccessor"]):
    """Handed to a function that asks for ``outlet_events``; what it adds is emitted if it succeeds.

    Keys are the outlets, or their names.

    Parameters
    ----------
    node
        Name of the node, for messages.
    outlets
        What it declares.
    """

    def __init__(self, node: str, outlets: Sequence[Outlet]) -> None:
        self._node = node
        self._outlets = {outlet.name: outlet for outlet in outlets}
        self._accessors: dict[str, OutletAccessor] = {}
        self.added: list[Metadata] = []

    def __getitem__(self, key: Any) -> OutletAccessor:
        name = key.name if isinstance(key, (Dataset, DatasetAlias)) else key
        if not isinstance(name, str):
            raise TypeError(
                f"outlet_events of {self._node}: {key!r} is neither a Dataset, a DatasetAlias nor "
                "the name of one"
            )
        outlet = self._outlets.get(name)
        if outlet is None:
            raise UsageError(no_such_outlet(self._node, name, self._outlets))
        return self._accessors.setdefault(name, OutletAccessor(self._node, outlet, self.added))

    def __iter__(self) -> Iterator[str]:
        return iter(self._outlets)

    def __len__(self) -> int:
        return len(self._outlets)


class OutletAccessor:
    """One outlet, to which events are added."""

    def __init__(self, node: str, outlet: Outlet, added: list[Metadata]) -> None:
        self._node = node
        self._outlet = outlet
        self._added = added

    def add(
        self,
        dataset: Dataset | str | None = None,
        extra: Mapping[str, Any] | None = None,
        *,
        partition: str = "",
    ) -> None:
        """Add an event; buffered until the node succeeds.

        Parameters
        ----------
        dataset
            What was written; may be left out where the outlet is a dataset.
        extra
            Facts about this event.
        partition
            Key, where the dataset is a declared source with partitions.

        Raises
        ------
        UsageError
            If the outlet does not take the dataset, or it is none.
        """
        outlet = self._outlet
        if isinstance(outlet, DatasetAlias):
            event = Metadata("" if dataset is None else dataset, extra, outlet.name, partition)
        else:
            event = Metadata(outlet if dataset is None else dataset, extra, (), partition)
            if event.uri != outlet.uri:
                raise UsageError(
                    f"{self._node}: the outlet {outlet.uri} takes no event of {event.uri} "
                    "→ add it to an alias"
                )
        check_taken(self._node, event, {outlet.name: outlet})
        self._added.append(event)


class InletEvents(Mapping[Any, Sequence[DatasetEvent]]):
    """Handed to a function that asks for ``inlet_events``: what is new since its last success.

    Keys are the datasets and aliases of ``deps``, ``inputs`` and ``inlets``, or their names. Of an
    inlet that is no upstream it holds the latest events.

    Parameters
    ----------
    events
        By name, oldest first.
    """

    def __init__(self, node: str, events: Mapping[str, Sequence[DatasetEvent]]) -> None:
        self._node = node
        self._events = {name: tuple(found) for name, found in events.items()}

    def __getitem__(self, key: Any) -> Sequence[DatasetEvent]:
        name = key.name if isinstance(key, (Dataset, DatasetAlias)) else key
        found = self._events.get(name)
        if found is None:
            known = ", ".join(sorted(self._events)) or "none"
            raise UsageError(
                f"{self._node} has no inlet {name!r}; it has {known} → name it in deps or inlets"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)
