"""How eagerly a node is kept up to date: always, by hand, or by a schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from croniter import croniter

CRON_FIELDS = 5

_RANDOM = re.compile(r"(?i)(?:^|\s)[hr](?:\s|\(|/|$)")
_ANY_DAY = datetime(2000, 1, 1, tzinfo=timezone.utc)


class FreshnessKind(Enum):
    """The two kinds of freshness that take no argument."""

    ALWAYS = "always"
    MANUAL = "manual"

    def __str__(self) -> str:
        return self.value


Always = FreshnessKind.ALWAYS
Manual = FreshnessKind.MANUAL


@dataclass(frozen=True)
class Schedule:
    """Refresh a node when a tick of a cron expression has passed since its last success.

    Attributes
    ----------
    cron
        Five fields. Seconds are refused: Dagster's schedules go no finer than a minute.
    timezone
        IANA name; None takes ``EXAMLOPS_TIMEZONE``, else the local zone.
    rebuild
        ``if_stale``: a tick lets a stale node run. ``always``: the tick itself makes it stale.
    """

    cron: str
    timezone: str | None = None
    rebuild: Literal["if_stale", "always"] = "if_stale"

    def problem(self) -> str | None:
        """Say what is wrong with the schedule, or return None."""
        found = _cron_problem(self.cron)
        if found is not None:
            return found
        if self.timezone is not None and not is_zone(self.timezone):
            return f"time zone {self.timezone!r} is not an IANA name such as Europe/Berlin"
        if self.rebuild not in ("if_stale", "always"):
            return f"rebuild={self.rebuild!r} is neither 'if_stale' nor 'always'"
        return None

    def latest_tick(self, now: datetime, zone: str) -> datetime:
        """Give the last tick at or before ``now``.

        Parameters
        ----------
        now
            Aware datetime.
        zone
            IANA name to use where the schedule names none.

        Returns
        -------
        datetime
            Aware UTC datetime.
        """
        return _tick(self.cron, self.timezone or zone, now, step="previous")

    def next_tick(self, now: datetime, zone: str) -> datetime:
        """Give the first tick after ``now`` as an aware UTC datetime."""
        return _tick(self.cron, self.timezone or zone, now, step="next")

    def __str__(self) -> str:
        return f"schedule {self.cron}"


Freshness: TypeAlias = FreshnessKind | Schedule


def _cron_problem(cron: str) -> str | None:
    from croniter import (  # noqa: PLC0415 - 40 ms that only schedules should pay
        CroniterBadDateError,
        croniter,
    )

    fields = cron.split()
    if len(fields) > CRON_FIELDS:
        return (
            f"cron {cron!r} has {len(fields)} fields; give five (minute hour day month "
            "weekday), since Dagster's schedules go no finer than a minute"
        )
    if len(fields) != CRON_FIELDS and not cron.startswith("@"):
        return f"cron {cron!r} has {len(fields)} of five fields"
    if _RANDOM.search(cron) or not croniter.is_valid(cron):
        return f"cron {cron!r} cannot be read"
    try:
        croniter(cron, _ANY_DAY).get_next()
    except CroniterBadDateError:
        return f"cron {cron!r} names a day that never comes"
    return None


@lru_cache(maxsize=256)
def is_zone(name: str) -> bool:
    """Tell whether ``name`` is a time zone of the IANA database."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@lru_cache(maxsize=4096)
def _tick(cron: str, zone: str, now: datetime, step: Literal["previous", "next"]) -> datetime:
    from croniter import croniter  # noqa: PLC0415 - 40 ms that only schedules should pay

    local = now.astimezone(ZoneInfo(zone))
    minute = local.replace(second=0, microsecond=0)
    ticks = croniter(cron, local, ret_type=datetime)
    every_hour = ticks.expanded[1] == ["*"]
    if step == "previous" and croniter.match(cron, minute):
        tick = minute
    else:
        tick = _following(ticks, step)
    while not every_hour and _comes_again(tick):
        tick = _following(ticks, step)
    return tick.astimezone(timezone.utc)


def _following(ticks: croniter[Any], step: Literal["previous", "next"]) -> datetime:
    found: datetime = ticks.get_next(datetime) if step == "next" else ticks.get_prev(datetime)
    return found


def _comes_again(local: datetime) -> bool:
    """Tell whether DST repeats this time of day later; as in Dagster, the tick is then that one."""
    later = local.replace(fold=1)
    return local.astimezone(timezone.utc) < later.astimezone(timezone.utc)
