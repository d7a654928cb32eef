"""Events of datasets: what a successful node emits, and what a consumer reads."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from examlops_dagster.core.aliases import Dataset, DatasetAlias, Metadata, Outlet
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildResult
from examlops_dagster.errors import ResultError, UsageError

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
        check_taken(node, event, declared)
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


def emitted(node: Node, outlets: Sequence[Outlet], result: BuildResult) -> tuple[Emission, ...]:
    """Say which events a build emits.

    Raises
    ------
    ResultError
        For what `emissions` refuses.
    """
    if not (outlets or result.events):
        return ()
    try:
        return emissions(node.asset, outlets, result.events)
    except UsageError as error:
        raise ResultError(node.asset, str(error), partition=node.partition) from error


def to_source(
    node: Node,
    emission: Emission,
    declarations: Mapping[str, Declaration],
    keys: Callable[[str], Sequence[str]],
) -> Emission:
    """Let an event of a declared source, or of a partition of it, advance that source.

    Parameters
    ----------
    node
        That emits it.
    keys
        Gives the partition keys of an asset that exist.

    Raises
    ------
    ResultError
        If its dataset is built by a function of its own, or has no such partition.
    """
    name, declaration = emission.dataset, declarations.get(emission.dataset)
    problem = ""
    if declaration is None or declaration.is_emitted:
        if not emission.partition:
            return emission
        problem = f"{name} is no declared source, so it has no partitions"
    elif not declaration.is_source:
        problem = f"{name} is built by its own function, so nobody else emits to it"
    elif emission.partition not in keys(name):
        problem = f"{name} has no partition {emission.partition!r}"
    if problem:
        raise ResultError(node.asset, problem, partition=node.partition)
    return replace(emission, is_source=True)


def check_taken(node: str, event: Metadata, declared: Mapping[str, Outlet]) -> None:
    """Raise UsageError for an event that no declared outlet takes."""
    uri: object = event.uri
    if not isinstance(uri, str) or not uri.strip() or not uri.isprintable():
        raise UsageError(f"{node}: {uri!r} is no dataset: its URI is printable text")
    for name in event.aliases:
        alias = declared.get(name)
        if not isinstance(alias, DatasetAlias):
            raise UsageError(no_such_outlet(node, name, declared))
        if alias.match and not fnmatch.fnmatchcase(uri, alias.match):
            raise UsageError(f"{node}: alias {name} takes {alias.match}, not {uri}")
    if not event.aliases and not isinstance(declared.get(uri), Dataset):
        raise UsageError(no_such_outlet(node, uri, declared))
    facts = event.dataset.extra if isinstance(event.dataset, Dataset) else {}
    for extra in (event.extra, facts):
        try:
            json.dumps(dict(extra or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{node}: the extra of {uri} cannot be kept as JSON: {error}"
            ) from error


def no_such_outlet(node: str, name: str, declared: Mapping[str, Outlet]) -> str:
    """Say that a node has no such outlet, and which it has."""
    known = ", ".join(sorted(declared)) or "none"
    return (
        f"{node} has no outlet {name!r}; it has {known} "
        f"→ declare it: outlets=[DatasetAlias({name!r})] or outlets=[Dataset({name!r})]"
    )
