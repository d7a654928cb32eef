"""How a key of a downstream maps to keys of an upstream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from examlops_dagster.core.partitions import DynamicSpace, PartitionSpace, StaticSpace
from examlops_dagster.core.windows import TimeWindowSpace, Unit


@dataclass(frozen=True)
class Mapped:
    """An upstream together with how its keys, or events, are read; made by the functions below."""

    upstream: Any
    kind: Literal["same_key", "all_keys", "keys", "each_event"]
    missing: Literal["wait", "skip"] = "wait"
    function: Callable[[str], Iterable[str]] | None = None


def same_key(upstream: Any) -> Mapped:
    """Read of the upstream the partition with the same key."""
    return Mapped(upstream, "same_key")


def all_keys(upstream: Any, missing: Literal["wait", "skip"] = "wait") -> Mapped:
    """Read all partitions of the upstream; ``skip`` those never built instead of waiting."""
    return Mapped(upstream, "all_keys", missing)


def keys(upstream: Any, function: Callable[[str], Iterable[str]]) -> Mapped:
    """Read the partitions of the upstream that ``function`` names for a key of the downstream."""
    return Mapped(upstream, "keys", "wait", function)


def each_event(upstream: Any) -> Mapped:
    """Build once for each event of a dataset or alias, in order, not once for all that are new."""
    return Mapped(upstream, "each_event")


@dataclass(frozen=True)
class SharedKeys:
    """The keys of an upstream, by the dimensions that it shares with a downstream.

    Made once for all keys of the downstream: to look through 10,000 for each of 10,000 takes
    half a minute.

    Attributes
    ----------
    names
        Of the dimensions that both have, with equal spaces; empty if there is none.
    found
        Keys of the upstream by their part in each of these.
    """

    names: tuple[str, ...]
    found: Mapping[tuple[str, ...], Sequence[str]]

    @staticmethod
    def of(
        downstream: PartitionSpace, upstream: PartitionSpace, existing: Iterable[str]
    ) -> SharedKeys:
        """Index the upstream's keys that exist."""
        theirs = dict(upstream.dimensions)
        names = tuple(name for name, space in downstream.dimensions if theirs.get(name) == space)
        found: dict[tuple[str, ...], list[str]] = {}
        for key in existing if names else ():
            parts = upstream.split(key)
            found.setdefault(tuple(parts[name] for name in names), []).append(key)
        return SharedKeys(names, found)


def upstream_keys(
    key: str,
    mapped: Mapped | None,
    downstream: PartitionSpace | None,
    upstream: PartitionSpace | None,
    existing: Sequence[str],
    shared: SharedKeys | None = None,
) -> Sequence[str]:
    """Give the keys of the upstream that a key of the downstream reads.

    Parameters
    ----------
    key
        Key of the downstream; empty where it has no partitions.
    mapped
        The declared mapping; None takes the usual one (same key in the same space or on shared
        dimensions, overlapping windows between spaces of time, all keys otherwise).
    downstream, upstream
        Their partition spaces.
    existing
        The upstream's keys that exist now. Between spaces of time a window that has not ended
        yet is named too, so that the downstream waits for it.
    shared
        The index of ``existing`` for these two spaces, where many keys are asked for.
    """
    if upstream is None:
        return ("",)
    if mapped is not None and mapped.kind == "keys" and mapped.function is not None:
        found = mapped.function(key)
        return (found,) if isinstance(found, str) else tuple(found)
    if mapped is not None and mapped.kind == "all_keys":
        return existing
    if downstream is None:
        return existing
    if downstream == upstream or (mapped is not None and mapped.kind == "same_key"):
        return (key,)
    shared = shared or SharedKeys.of(downstream, upstream, existing)
    return _usual_keys(key, downstream, upstream, existing, shared)


def _usual_keys(
    key: str,
    downstream: PartitionSpace,
    upstream: PartitionSpace,
    existing: Sequence[str],
    shared: SharedKeys,
) -> Sequence[str]:
    if shared.names:
        wanted = downstream.split(key)
        return shared.found.get(tuple(wanted[name] for name in shared.names), ())
    if len(downstream.dimensions) == len(upstream.dimensions) == 1:
        [(_, mine)], [(_, other)] = downstream.dimensions, upstream.dimensions
        if isinstance(mine, TimeWindowSpace) and isinstance(other, TimeWindowSpace):
            return list(other.overlapping(*mine.window(key)))
    return existing


def same_key_problem(downstream: PartitionSpace, upstream: PartitionSpace) -> str | None:
    """Say why partitions would wait for ever for the one with the same key; None if they do not."""
    own = [space for _, space in downstream.dimensions]
    theirs = [space for _, space in upstream.dimensions]
    if len(own) == len(theirs) and all(map(_may_find, own, theirs)):
        return None
    return (
        f"same_key between keys of {_described(downstream)} and those of {_described(upstream)}, "
        "which do not match"
    )


def _may_find(own: Any, theirs: Any) -> bool:
    """Whether keys of a dimension may be found in another; those of dynamic ones are not known."""
    if own == theirs:
        return True
    if isinstance(own, StaticSpace) and isinstance(theirs, StaticSpace):
        return not set(own.keys).isdisjoint(theirs.keys)
    if isinstance(own, TimeWindowSpace) and isinstance(theirs, TimeWindowSpace):
        # a month may read its first day, but most days are not the first of a month
        first_day = theirs.unit is Unit.DAILY and own.unit in (Unit.WEEKLY, Unit.MONTHLY)
        return own.unit is theirs.unit or first_day
    for listed, windows in ((own, theirs), (theirs, own)):
        if isinstance(listed, StaticSpace) and isinstance(windows, TimeWindowSpace):
            return any(_is_key(key, windows.unit) for key in listed.keys)
    return True


def _is_key(key: Any, unit: Unit) -> bool:
    try:
        datetime.strptime(key, unit.key_format)  # noqa: DTZ007 - only its form matters
    except (TypeError, ValueError):
        return False
    return True


def _described(space: PartitionSpace) -> str:
    return " and ".join(f"{name} ({_kind_of(each)})" for name, each in space.dimensions)


def _kind_of(space: Any) -> str:
    if isinstance(space, TimeWindowSpace):
        return space.unit.value
    if isinstance(space, DynamicSpace):
        return "dynamic"
    keys = getattr(space, "keys", ())
    return f"{', '.join(map(str, keys[:3]))}{', ...' if len(keys) > 3 else ''}"  # noqa: PLR2004
