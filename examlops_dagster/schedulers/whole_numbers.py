"""Whole numbers that variables of the environment hold."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

_log = logging.getLogger(__name__)


def whole_number(
    environment: Mapping[str, str], variable: str, default: int, *, least: int = 0
) -> int:
    """Give the number in a variable; a bad value is told, once a process, and not used.

    Parameters
    ----------
    default
        Of a variable that is unset, empty or no such number.
    least
        The smallest number that is taken.
    """
    text = environment.get(variable, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)
    _tell(variable, text, default, least)
    return default


@functools.lru_cache(maxsize=64)
def _tell(variable: str, text: str, default: int, least: int) -> None:
    """Say what is wrong; a thousand keys of an array read the same variable."""
    what = f"is no whole number from {least} on"
    _log.warning("%s=%s %s; it is not used, %s holds", variable, text, what, default or "none")
