"""Processes that platform.db and runs name, and whether they are still there."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass

SAME_PROCESS_SECONDS = 60.0
"""How far two readings of a process's start may lie apart: they move when the clock is set."""


@dataclass(frozen=True)
class Process:
    """A process of some host, told apart from a later one that was given its id.

    Attributes
    ----------
    started
        Seconds since the epoch; 0 where nobody found out.
    """

    host: str
    pid: int
    started: float

    @staticmethod
    def here(*, brief: bool = False) -> Process:
        """Describe this one; ``brief`` does not pay for finding out when it started."""
        pid = os.getpid()
        return Process(socket.gethostname(), pid, 0.0 if brief else own_start(pid))

    @staticmethod
    def parse(text: str) -> Process:
        """Read what `str` gives."""
        host, pid, started = text.rsplit(":", 2)
        return Process(host, int(pid), float(started))

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}"

    @property
    def is_gone(self) -> bool:
        """Whether it ran on this host, and runs no more."""
        is_here = self.host == socket.gethostname()
        return is_here and not same_start(process_started(self.pid), self.started)


def same_start(one: float, other: float) -> bool:
    """Tell whether two readings of a start, in seconds since the epoch, are of one process."""
    return abs(one - other) <= SAME_PROCESS_SECONDS


@functools.lru_cache(maxsize=1)
def own_start(pid: int) -> float:
    """Give when this process started; a child that was forked has another pid."""
    return process_started(pid)


def process_started(pid: int) -> float:
    """Give when a process started, in seconds since the epoch; 0 if it is gone."""
    import psutil  # noqa: PLC0415 - only where somebody builds

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # killed, and nobody asked for its exit code
            return 0.0
        return float(process.create_time())
    except psutil.Error:
        return 0.0
