"""How an attempt that raised an error ends, and the line by which people know the error."""

from __future__ import annotations

from examlops_dagster.core.records import BuildState
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    ExamlopsError,
)


def state_of(error: BaseException) -> BuildState:
    """Give the state in which an attempt ends that raised ``error``."""
    if isinstance(error, BuildTimeoutError):
        return BuildState.TIMED_OUT
    if isinstance(error, BuildCancelledError) or not isinstance(error, Exception):
        return BuildState.CANCELLED
    return BuildState.FAILED


def last_line(error: BaseException) -> str:
    """Give the line that names an error, as ``exa assets status`` shows it.

    It is the last line of a traceback, and of a longer text the first one: what follows there
    are details (pydantic ends with a link to its documentation).
    """
    if isinstance(error, AssetBuildError):
        return error.reason
    if not isinstance(error, Exception):
        return "interrupted"
    lines = str(error).strip().splitlines()
    if isinstance(error, ExamlopsError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
