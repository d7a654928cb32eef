"""Which signal interrupts a run, and whether it is meant for what the run builds.

Dagster's exception tells neither: it is the same for Ctrl-C, for Terminate, and for a server that
is stopped.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.storage.tags import GRPC_INFO_TAG

from examlops_dagster.ledger.tags import PROCESS_TAG

_INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM})


def is_meant(
    instance: DagsterInstance, run_id: str, tags: Mapping[str, str], number: int | None
) -> bool:
    """Tell whether an interrupt asks for the end of what is built: Terminate, or Ctrl-C of ``exa``.

    A run that Dagster launched gets the same signals when Dagster itself is stopped.

    Parameters
    ----------
    run_id, tags
        Of the run.
    number
        Of the signal; None where it is not known.
    """
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is DagsterRunStatus.CANCELING:
        return True
    return PROCESS_TAG in tags and number == signal.SIGINT


def is_here(tags: Mapping[str, str]) -> bool:
    """Tell whether a run is part of this process, as in a notebook, and not launched by Dagster."""
    return GRPC_INFO_TAG not in tags


class Signals:
    """Notes the signals of this process, whoever handles them.

    Handlers do not do for it: Dagster sets others while user code runs, and forgets what it noted
    when it sets them back.

    Attributes
    ----------
    number
        Of the last one that interrupts and was seen; None if there was none.
    """

    def __init__(self, descriptor: int | None) -> None:
        self.number: int | None = None
        self._descriptor = descriptor

    def see(self) -> bool:
        """Tell whether one that interrupts came since the last call."""
        if self._descriptor is None:
            return False
        try:
            numbers = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return False
        found = next((number for number in reversed(numbers) if number in _INTERRUPTS), None)
        if found is not None:
            self.number = found
        return found is not None


@contextmanager
def noted_signals() -> Iterator[Signals]:
    """Note signals meanwhile; they reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield Signals(None)
        return
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    former = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield Signals(read)
    finally:
        signal.set_wakeup_fd(former)
        os.close(read)
        os.close(write)
