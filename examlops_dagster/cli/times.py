"""How times are shown in tables and messages: all alike, in the zone of who reads them."""

from __future__ import annotations

from datetime import datetime


def local_time(moment: datetime | str) -> str:
    """Show a time to the second, by the clock of this machine.

    JSON has times with their zone.

    Parameters
    ----------
    moment
        Aware, or such a one as ISO text.
    """
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
