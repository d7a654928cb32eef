"""Whether ``same_key`` can find a key at all between two partition spaces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from examlops_dagster.core.partitions import (
    DynamicSpace,
    PartitionSpace,
    StaticSpace,
    TimeWindowSpace,
    Unit,
)


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
