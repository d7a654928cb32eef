"""The clock of rooms that are given none. ``core`` has no clock: there ``now`` is an argument."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> datetime:
    """Give the time as an aware UTC datetime."""
    return datetime.now(timezone.utc)
