"""Dagster Pipes in a job: opened and closed around the call, with ``dagster_pipes`` alone."""

from __future__ import annotations

import contextlib
import importlib
import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_DEEPEST = 20
"""Exceptions in a chain that are told."""


class JobPipes:
    """Dagster Pipes, where the submitter asked for it and the node has it.

    Parameters
    ----------
    complain
        Told why it is not opened.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._context: Any = None
        self._failed: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        try:
            self._context = self._opened()
        except Exception as error:  # noqa: BLE001 - the build is worth more than its messages
            self._complain(f"without Dagster Pipes ({type(error).__name__}: {error})")
        return self

    def _opened(self) -> Any:
        if "DAGSTER_PIPES_CONTEXT" not in os.environ:
            return None
        return importlib.import_module("dagster_pipes").open_dagster_pipes()

    def failed(self, error: BaseException, reason: str) -> None:
        """Have an exception told when it is closed; ``reason`` stands for one without words."""
        try:
            found = traceback.TracebackException.from_exception(error)
            self._failed = _as_told(found, type(error).__name__)
        except Exception:  # noqa: BLE001 - its class is the user's
            self._failed = {"name": type(error).__name__, "message": reason, "stack": []}
            self._failed.update(cause=None, context=None)

    def __exit__(self, *_: object) -> None:
        if self._context is None:
            return
        with contextlib.suppress(Exception):  # the function may have closed it
            self._context.close(self._failed)


def _as_told(
    error: traceback.TracebackException, name: str | None, deepest: int = _DEEPEST
) -> dict[str, Any]:
    """Give an exception as the protocol has it: `dagster_pipes.PipesException`."""
    below = deepest - 1

    def chained(other: traceback.TracebackException | None) -> dict[str, Any] | None:
        return _as_told(other, None, below) if other is not None and below else None

    message = "".join(error.format_exception_only())
    cause = chained(error.__cause__)
    hidden = cause is not None or error.__suppress_context__
    return {
        "message": message,
        "stack": error.stack.format(),
        "name": name or message.strip().rpartition("\n")[2].partition(":")[0],
        "cause": cause,
        "context": None if hidden else chained(error.__context__),
    }
