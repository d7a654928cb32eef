"""What a node emits to its outlets, and what a consumer reads of its inlets."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from examlops_dagster.core.aliases import Dataset, DatasetAlias, Metadata
from examlops_dagster.errors import UsageError

Outlet = Dataset | DatasetAlias

IMPLIED = ""
"""In place of an alias: a dataset that is itself an outlet."""


@dataclass(frozen=True)
class Emission:
    """One event of one dataset that a successful node emits.

    Attributes
    ----------
    dataset
        Its URI.
    extra
        Facts about this event.
    dataset_extra
        Facts about the dataset.
    aliases
        Names of the aliases through which it was added.
    partition
        Key, where the dataset is a declared source with partitions.
    is_source
        Whether the dataset is a declared source, which it advances.
    """

    dataset: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    dataset_extra: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    partition: str = ""
    is_source: bool = False


@dataclass(frozen=True)
class DatasetEvent:
    """One event of a dataset, as a consumer gets it.

    Attributes
    ----------
    uri, partition
        Of the dataset; the key is empty but for a source with partitions.
    extra
        Facts about this event.
    dataset_extra
        Facts about the dataset.
    aliases
        Through which it was added.
    source, source_partition
        The node that emitted it; empty for one reported from outside.
    run_id
        Dagster run in which it was emitted; empty if there was none.
    at
        Aware UTC datetime.
    version, data_version
        That the event gave to what it was read of: the alias, or the dataset.
    """

    uri: str
    extra: Mapping[str, Any]
    dataset_extra: Mapping[str, Any]
    aliases: tuple[str, ...]
    source: str
    source_partition: str
    run_id: str
    at: datetime
    version: int
    data_version: str
    partition: str = ""


class OutletEvents(Mapping[Any, "OutletAccessor"]):
    """Handed to a function that asks for ``outlet_events``; what is added is emitted if it succeeds.

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
            raise UsageError(_undeclared(self._node, name, self._outlets))
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
        _check(self._node, event, {outlet.name: outlet})
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


def emissions(
    node: str, outlets: Sequence[Outlet], added: Iterable[Metadata]
) -> tuple[Emission, ...]:
    """Say which events a node emits.

    Within one alias the extras of repeated additions of a dataset are merged, a later key wins.
    Across aliases, additions with equal extras are one event that is linked to all of them;
    different extras are different events. A dataset that is itself an outlet gets an event in any
    case, but none of its own besides those that were added through aliases.

    Parameters
    ----------
    node
        Name of the node, for messages.
    outlets
        What it declares.
    added
        In their order.

    Raises
    ------
    UsageError
        For what no outlet takes: an undeclared alias or dataset, a URI that does not match, an
        extra that is no JSON.
    """
    declared = {outlet.name: outlet for outlet in outlets}
    extras: dict[tuple[str, str, str], dict[str, Any]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for event in added:
        _check(node, event, declared)
        if isinstance(event.dataset, Dataset):
            facts.setdefault(event.uri, {}).update(event.dataset.extra)
        for channel in event.aliases or (IMPLIED,):
            key = (event.uri, event.partition, channel)
            extras.setdefault(key, {}).update(event.extra or {})
    added_to = {uri for uri, _, _ in extras}
    for outlet in outlets:
        if isinstance(outlet, Dataset):
            facts[outlet.uri] = {**outlet.extra, **facts.get(outlet.uri, {})}
            if outlet.uri not in added_to:
                extras[outlet.uri, "", IMPLIED] = {}
    found: dict[tuple[str, str, str], Emission] = {}
    for (uri, partition, channel), extra in extras.items():
        key = (uri, partition, json.dumps(extra, sort_keys=True))
        former = found.get(key)
        aliases = former.aliases if former is not None else ()
        if channel:
            aliases = (*aliases, channel)
        found[key] = Emission(uri, extra, facts.get(uri, {}), aliases, partition)
    return tuple(found.values())


def _check(node: str, event: Metadata, declared: Mapping[str, Outlet]) -> None:
    uri: object = event.uri
    if not isinstance(uri, str) or not uri.strip() or not uri.isprintable():
        raise UsageError(f"{node}: {uri!r} is no dataset: its URI is printable text")
    for name in event.aliases:
        alias = declared.get(name)
        if not isinstance(alias, DatasetAlias):
            raise UsageError(_undeclared(node, name, declared))
        if alias.match and not fnmatch.fnmatchcase(uri, alias.match):
            raise UsageError(f"{node}: alias {name} takes {alias.match}, not {uri}")
    if not event.aliases and not isinstance(declared.get(uri), Dataset):
        raise UsageError(_undeclared(node, uri, declared))
    facts = event.dataset.extra if isinstance(event.dataset, Dataset) else {}
    for extra in (event.extra, facts):
        try:
            json.dumps(dict(extra or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{node}: the extra of {uri} cannot be kept as JSON: {error}"
            ) from error


def _undeclared(node: str, name: str, declared: Mapping[str, Outlet]) -> str:
    known = ", ".join(sorted(declared)) or "none"
    return (
        f"{node} has no outlet {name!r}; it has {known} "
        f"→ declare it: outlets=[DatasetAlias({name!r})] or outlets=[Dataset({name!r})]"
    )
