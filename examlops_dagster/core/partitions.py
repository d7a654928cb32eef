"""Partition spaces, and how a key of a downstream maps to keys of an upstream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import product
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

MAX_DIMENSIONS = 2
"""Dagster's MultiPartitionsDefinition takes no more."""

MULTI_SEPARATOR = "|"
"""Between the keys of two dimensions, as in Dagster's MultiPartitionKey."""

_UTC = ZoneInfo("UTC")
_DATE = r"\d{4}-\d{2}-\d{2}(?:-\d{2}:\d{2})?"


class Unit(Enum):
    """Length of a time window, and the format of its keys."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"

    @property
    def key_format(self) -> str:
        """The strftime format of a key, Dagster's own."""
        return "%Y-%m-%d-%H:%M" if self is Unit.HOURLY else "%Y-%m-%d"


@dataclass(frozen=True)
class StaticSpace:
    """Keys that the declaration lists."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class TimeWindowSpace:
    """One key a time window, from ``start`` on; a window counts once it has ended.

    Attributes
    ----------
    unit
        Length of the window.
    start, end
        ISO dates (or date and hour) in ``timezone``; ``end`` is exclusive, None means for ever.
    timezone
        IANA name; None is UTC.
    """

    unit: Unit
    start: str
    end: str | None = None
    timezone: str | None = None

    def keys_at(self, now: datetime) -> Iterator[str]:
        """Give the keys of all windows that have ended at ``now`` (aware datetime)."""
        limit = _utc(now)  # datetimes of one zone are compared by their wall clock, DST or not
        for start, end in self._windows(self._first()):
            if _utc(end) > limit:
                return
            yield self._key(start)

    def window(self, key: str) -> tuple[datetime, datetime]:
        """Give start and end of a key's window as aware datetimes in the space's zone."""
        zone = ZoneInfo(self.timezone or "UTC")
        try:
            start = datetime.strptime(key, self.unit.key_format).replace(tzinfo=zone)
        except ValueError:
            start = datetime.strptime(key, f"{self.unit.key_format}%z").astimezone(zone)
        return start, _next_window(start, self.unit)

    def overlapping(self, start: datetime, end: datetime) -> Iterator[str]:
        """Give the keys of all windows, ended or not, that share time with ``start`` to ``end``."""
        first, limit = self._first(), _utc(end)
        for begin, _ in self._windows(max(first, _floor(start, first, self.unit), key=_utc)):
            if _utc(begin) >= limit:
                return
            yield self._key(begin)

    def _first(self) -> datetime:
        start = _parse(self.start, ZoneInfo(self.timezone or "UTC"))
        if self.unit is Unit.HOURLY:
            start = _utc(start).astimezone(start.tzinfo)  # it may name an hour that DST skips
        return _align(start, self.unit)

    def _windows(self, start: datetime) -> Iterator[tuple[datetime, datetime]]:
        zone = ZoneInfo(self.timezone or "UTC")
        last = None if self.end is None else _utc(_parse(self.end, zone))
        while True:
            following = _next_window(start, self.unit)
            if last is not None and _utc(following) > last:
                return
            yield start, following
            start = following

    def _key(self, start: datetime) -> str:
        """Give the key of a window; as in Dagster, the hour that DST repeats has its offset."""
        key = start.strftime(self.unit.key_format)
        if self.unit is Unit.HOURLY and start.fold:
            return f"{key}{start:%z}"
        return key


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


@dataclass(frozen=True)
class Mapped:
    """An upstream together with how its keys, or events, are read; made by the functions below."""

    upstream: Any
    kind: Literal["same_key", "all_keys", "keys", "each_event"]
    missing: Literal["wait", "skip"] = "wait"
    function: Callable[[str], Iterable[str]] | None = None


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
    if isinstance(space, StaticSpace):
        yield from _static_problems(space.keys)
    elif isinstance(space, TimeWindowSpace):
        yield from _window_problems(space)
    elif not isinstance(space, DynamicSpace):
        yield f"{space!r} is not made by partitions, daily, hourly, weekly, monthly or dynamic"


def _static_problems(keys: tuple[Any, ...]) -> Iterator[str]:
    if not keys:
        yield "no keys"
    if len(set(keys)) != len(keys):
        yield "a key stands there twice"
    for key in keys:
        if not isinstance(key, str):
            yield f"key {key!r} is not text"
        elif not key or "..." in key or MULTI_SEPARATOR in key or not key.isprintable():
            yield f"key {key!r} is empty, or holds '...', '|' or a control character"


def _window_problems(space: TimeWindowSpace) -> Iterator[str]:
    zone = _UTC
    if space.timezone is not None:
        try:
            zone = ZoneInfo(space.timezone)
        except (KeyError, ValueError, OSError):
            yield f"time zone {space.timezone!r} is not an IANA name"
    for text in (space.start,) if space.end is None else (space.start, space.end):
        try:
            _parse(text, zone)
        except (TypeError, ValueError):
            yield f"{text!r} is not a date such as 2024-01-31"


def _parse(text: str, zone: ZoneInfo) -> datetime:
    for form in ("%Y-%m-%d", "%Y-%m-%d-%H:%M"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=zone)
        except ValueError:
            continue
    raise ValueError(text)


def _align(start: datetime, unit: Unit) -> datetime:
    """Move to the first window that begins at or after ``start``."""
    if unit is Unit.HOURLY:
        floor = start.replace(minute=0)
        return floor if floor == start else floor + timedelta(hours=1)
    floor = start.replace(hour=0, minute=0)
    aligned = floor if floor == start else floor + timedelta(days=1)
    if unit is Unit.WEEKLY:
        return aligned + timedelta(days=(6 - aligned.weekday()) % 7)
    if unit is Unit.MONTHLY and aligned.day != 1:
        return _next_month(aligned)
    return aligned


def _next_window(start: datetime, unit: Unit) -> datetime:
    if unit is Unit.HOURLY:
        # wall-clock addition would repeat or skip an hour at a DST change
        return (_utc(start) + timedelta(hours=1)).astimezone(start.tzinfo)
    if unit is Unit.MONTHLY:
        return _next_month(start)
    return start + timedelta(days=7 if unit is Unit.WEEKLY else 1)


def _next_month(start: datetime) -> datetime:
    year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)  # noqa: PLR2004
    return start.replace(year=year, month=month, day=1)


def _floor(moment: datetime, first: datetime, unit: Unit) -> datetime:
    """Give the start of the window that ``moment`` lies in; ``first`` is the start of one."""
    if unit is Unit.HOURLY:
        hours = (_utc(moment) - _utc(first)) // timedelta(hours=1)
        return (_utc(first) + timedelta(hours=hours)).astimezone(first.tzinfo)
    day = moment.astimezone(first.tzinfo)
    day = day.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if unit is Unit.WEEKLY:
        return day - timedelta(days=(day.weekday() + 1) % 7)
    return day.replace(day=1) if unit is Unit.MONTHLY else day


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(_UTC)
