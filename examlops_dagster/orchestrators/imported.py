"""Remembers which of the user's source files a worker has imported, to see when one is edited."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_STDLIB = f"{Path(os.__file__).parent}/"


class ImportedFiles:
    """The files that this process imported, installed libraries apart, and as of when."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._seen = set(sys.modules)

    def are_stale(self) -> bool:
        """Whether a file was edited since it was imported."""
        return any(_modified(path) != when for path, when in self._known.items())

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is imported meanwhile."""
        started = time.time_ns()
        count = len(sys.modules)
        try:
            yield
        finally:
            if len(sys.modules) != count:
                self._note(started)

    def _note(self, started: int) -> None:
        for name in set(sys.modules) - self._seen:
            self._seen.add(name)
            path = getattr(sys.modules.get(name), "__file__", None)
            if isinstance(path, str) and not _is_library(path):
                modified = _modified(path)
                # Edited while the build ran: which of the two was imported is not known.
                self._known[path] = modified if modified <= started else -1


def _is_library(path: str) -> bool:
    return path.startswith(_STDLIB) or "/site-packages/" in path or "/dist-packages/" in path


def _modified(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
