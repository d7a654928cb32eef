"""Partition spaces: the keys of an asset, in one dimension or two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, TypeAlias

from examlops_dagster.core.windows import TimeWindowSpace, Unit

MAX_DIMENSIONS = 2
"""Dagster's MultiPartitionsDefinition takes no more."""

MULTI_SEPARATOR = "|"
"""Between the keys of two dimensions, as in Dagster's MultiPartitionKey."""

_DATE = r"\d{4}-\d{2}-\d{2}(?:-\d{2}:\d{2})?"


@dataclass(frozen=True)
class StaticSpace:
    """Keys that the declaration lists."""

    keys: tuple[str, ...]

    def problems(self) -> Iterator[str]:
        """Say all that is wrong with the space; a caller may have given anything."""
        keys: tuple[Any, ...] = self.keys
        if not keys:
            yield "no keys"
        if len(set(keys)) != len(keys):
            yield "a key stands there twice"
        for key in keys:
            if not isinstance(key, str):
                yield f"key {key!r} is not text"
            elif not key or "..." in key or MULTI_SEPARATOR in key or not key.isprintable():
                yield f"key {key!r} is empty, or holds '...', '|' or a control character"


@dataclass(frozen=True)
class DynamicSpace:
    """Keys that are added while the platform runs, kept by Dagster under ``name``."""

    name: str


Dimension: TypeAlias = StaticSpace | TimeWindowSpace | DynamicSpace


@dataclass(frozen=True)
class PartitionSpace:
    """One or two named dimensions; a key of two joins theirs in the order of the names.

    That order is Dagster's; `of` brings dimensions into it.
    """

    dimensions: tuple[tuple[str, Dimension], ...]

    @staticmethod
    def of(dimensions: Mapping[str, Dimension]) -> PartitionSpace:
        """Make a space of named dimensions."""
        return PartitionSpace(tuple(sorted(dimensions.items())))

    def keys(self, now: datetime, dynamic: Mapping[str, Sequence[str]]) -> list[str]:
        """Give all keys that exist at ``now``.

        Parameters
        ----------
        now
            Aware datetime.
        dynamic
            Keys of each dynamic space, by its name.
        """
        each = [list(_dimension_keys(space, now, dynamic)) for _, space in self.dimensions]
        if len(each) == 1:
            return each[0]
        return [MULTI_SEPARATOR.join(parts) for parts in product(*each)]

    def split(self, key: str) -> dict[str, str]:
        """Give the key of each dimension."""
        names = [name for name, _ in self.dimensions]
        if len(names) == 1:
            return {names[0]: key}
        return dict(zip(names, key.split(MULTI_SEPARATOR, 1), strict=True))

    def windows(self, key: str) -> list[tuple[datetime, datetime]]:
        """Give start and end of a key's window in each dimension of time."""
        keys = self.split(key)
        return [
            space.window(keys[name])
            for name, space in self.dimensions
            if isinstance(space, TimeWindowSpace)
        ]

    def problems(self) -> list[str]:
        """Say all that is wrong with the space."""
        found: list[str] = []
        if len(self.dimensions) > MAX_DIMENSIONS:
            found.append(
                f"{len(self.dimensions)} partition dimensions; Dagster takes {MAX_DIMENSIONS}"
            )
        for name, space in self.dimensions:
            if not name.isidentifier():
                found.append(f"partition dimension {name!r} is not a parameter name")
            found.extend(f"partition dimension {name!r}: {p}" for p in _dimension_problems(space))
        return found


def partitions(keys: Iterable[str]) -> StaticSpace:
    """Declare a partition space by its keys."""
    return StaticSpace(tuple(keys))


def hourly(start: str, end: str | None = None, timezone: str | None = None) -> TimeWindowSpace:
    """Declare one partition an hour from ``start`` (``YYYY-MM-DD`` or ``YYYY-MM-DD-HH:MM``)."""
    return TimeWindowSpace(Unit.HOURLY, start, end, timezone)


def daily(start: str, end: str | None = None, timezone: str | None = None) -> TimeWindowSpace:
    """Declare one partition a day from ``start`` (``YYYY-MM-DD``); ``end`` is exclusive."""
    return TimeWindowSpace(Unit.DAILY, start, end, timezone)


def weekly(start: str, end: str | None = None, timezone: str | None = None) -> TimeWindowSpace:
    """Declare one partition a week, from Sunday to Sunday as in Dagster."""
    return TimeWindowSpace(Unit.WEEKLY, start, end, timezone)


def monthly(start: str, end: str | None = None, timezone: str | None = None) -> TimeWindowSpace:
    """Declare one partition a month."""
    return TimeWindowSpace(Unit.MONTHLY, start, end, timezone)


def dynamic(name: str) -> DynamicSpace:
    """Declare a space whose keys are added while the platform runs."""
    return DynamicSpace(name)


def parse_space(text: str) -> PartitionSpace:
    """Read a space from text: ``[NAME=]UNIT:START[:END]`` or ``[NAME=]static:KEY,KEY``.

    Raises
    ------
    ValueError
        With what is wrong and what is allowed.
    """
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        name, rest = "partition", text
    unit, colon, argument = rest.partition(":")
    space: Dimension
    if unit == "static" and colon:
        space = StaticSpace(tuple(argument.split(",")))
    elif unit == "dynamic" and argument:
        space = DynamicSpace(argument)
    elif unit in {u.value for u in Unit} and argument:
        # the hour of a start holds a colon too
        dates = re.fullmatch(rf"({_DATE})(?::({_DATE}))?", argument)
        start, end = dates.groups() if dates else (argument, None)
        space = TimeWindowSpace(Unit(unit), start, end)
    else:
        raise ValueError(
            f"partitions {text!r} are not of the form daily:2024-01-01, hourly:, weekly:, "
            "monthly:, static:a,b or dynamic:NAME"
        )
    found = PartitionSpace(((name, space),))
    problems = found.problems()
    if problems:
        raise ValueError("; ".join(problems))
    return found


def _dimension_keys(
    space: Dimension, now: datetime, dynamic: Mapping[str, Sequence[str]]
) -> Iterable[str]:
    if isinstance(space, StaticSpace):
        return space.keys
    if isinstance(space, TimeWindowSpace):
        return space.keys_at(now)
    return dynamic.get(space.name, ())


def _dimension_problems(space: Any) -> Iterator[str]:
    """Say what is wrong with a dimension; a caller may have given anything."""
    if isinstance(space, (StaticSpace, TimeWindowSpace)):
        yield from space.problems()
    elif not isinstance(space, DynamicSpace):
        yield f"{space!r} is not made by partitions, daily, hourly, weekly, monthly or dynamic"
