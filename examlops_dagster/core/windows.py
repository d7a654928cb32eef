"""Partition spaces of time: windows of an hour, a day, a week or a month, and their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from zoneinfo import ZoneInfo

_UTC = ZoneInfo("UTC")


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

    def problems(self) -> Iterator[str]:
        """Say all that is wrong with the space."""
        zone = _UTC
        if self.timezone is not None:
            try:
                zone = ZoneInfo(self.timezone)
            except (KeyError, ValueError, OSError):
                yield f"time zone {self.timezone!r} is not an IANA name"
        for text in (self.start,) if self.end is None else (self.start, self.end):
            try:
                _parse(text, zone)
            except (TypeError, ValueError):
                yield f"{text!r} is not a date such as 2024-01-31"

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
    years, month = divmod(start.month, 12)
    return start.replace(year=start.year + years, month=month + 1, day=1)


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
