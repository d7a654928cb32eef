"""Functions of one run are called one at a time, also where several of its steps have threads.

Dagster's in-process executor never calls two at once, and users rely on it without knowing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class OneAtATime:
    """Lets a function be called: one of a plain asset in its thread, or one of the main thread.

    Parameters
    ----------
    at_rest
        Is called, in any thread, when no thread calls a function or is about to.
    """

    def __init__(self, at_rest: Callable[[], None]) -> None:
        self._at_rest = at_rest
        self._calls = threading.Lock()
        self._counts = threading.Lock()
        self._count = 0

    def expect(self) -> None:
        """Count a thread that is going to call one: the main thread lets it go first."""
        with self._counts:
            self._count += 1

    @contextmanager
    def called(self) -> Iterator[None]:
        """Call the function of a thread that was counted."""
        self._calls.acquire()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Let others be called meanwhile: the function of this thread waits."""
        self._end()
        try:
            yield
        finally:
            self.expect()
            self._calls.acquire()

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Keep the threads from calling one meanwhile; gives whether none of them does."""
        with self._counts:
            holds = not self._count and self._calls.acquire(blocking=False)
        try:
            yield holds
        finally:
            if holds:
                self._calls.release()

    def _end(self) -> None:
        self._calls.release()
        with self._counts:
            self._count -= 1
            rests = not self._count
        if rests:
            self._at_rest()
