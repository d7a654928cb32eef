"""Dagster Pipes in a job: opened and closed around the call, with ``dagster_pipes`` alone."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class JobPipes:
    """Dagster Pipes, where the submitter asked for it and the node has it."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self.failed = ""
        self._context: Any = None

    def __enter__(self) -> Self:
        if "DAGSTER_PIPES_CONTEXT" in os.environ:
            try:
                pipes = importlib.import_module("dagster_pipes")
                self._context = pipes.open_dagster_pipes()
            except Exception as error:  # noqa: BLE001 - the build is worth more than its messages
                self._complain(f"without Dagster Pipes ({type(error).__name__}: {error})")
        return self

    def __exit__(self, *_: object) -> None:
        if self._context is None:
            return
        exception: dict[str, Any] | None = None
        if self.failed:
            exception = {
                "message": self.failed,
                "stack": [],
                "name": self.failed.partition(":")[0],
                "cause": None,
                "context": None,
            }
        with contextlib.suppress(Exception):  # the function may have closed it
            self._context.close(exception)
