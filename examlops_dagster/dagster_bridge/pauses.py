"""How a step lets time pass, in the main thread or in one of the threads that wait for jobs.

A signal interrupts the main thread alone. A thread that waits is told by its next pause, which
raises what the main thread would have got.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from dagster import DagsterExecutionInterruptedError

from examlops_dagster.dagster_bridge.one_at_a_time import OneAtATime

BUSY_THREADS = 4
"""How many of the threads that wait may do something else than wait at one time, and how many of
those that have not begun to wait: a thousand that submit at once would overrun the scheduler, and
SQLite lets the later ones fail. Apart, so that a job that ended is not recorded after all others
are submitted."""

PAUSES_A_SECOND = 400
"""Of all threads that wait: each pause ends in a look at files, which others share."""

_SHORT_PAUSE = 0.1
"""Of one whose end is near, which is not made longer."""

_here = threading.local()


class Stop:
    """Tells the steps of one execution that they are interrupted, and whether to end their jobs."""

    def __init__(self) -> None:
        self.is_meant = False
        self.number: int | None = None
        """Of the signal that interrupted; None where it is not known."""
        self._asked = threading.Event()

    @property
    def is_asked(self) -> bool:
        """Whether the steps are interrupted."""
        return self._asked.is_set()

    def ask(self, *, meant: bool, number: int | None = None) -> None:
        """Interrupt the steps; the first one who asks says what for."""
        if not self._asked.is_set():
            self.is_meant = meant
            self.number = number
            self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Wait for it; gives whether the steps are interrupted."""
        return self._asked.wait(seconds)


class Waiter:
    """A thread that runs a step, and mostly waits.

    Parameters
    ----------
    stop
        Interrupts it, once.
    turns
        Are held while it does something; None for a thread that needs none.
    first_turns
        Are held instead until its first pause in which time passes.
    crowd
        Gives how many there are of them.
    functions
        Lets the function of a step that is not ours be called; it takes turns only where that
        waits, in `launching`. None for a step of ours.
    """

    def __init__(
        self,
        stop: Stop,
        turns: threading.Semaphore | None = None,
        first_turns: threading.Semaphore | None = None,
        crowd: Callable[[], int] = lambda: 1,
        functions: OneAtATime | None = None,
    ) -> None:
        self.stop = stop
        self._turns = turns
        self._next_turns = first_turns or turns
        self._crowd = crowd
        self._functions = functions
        if functions is not None:
            functions.expect()
        self._turn: threading.Semaphore | None = None
        self._is_interrupted = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the pauses of this thread be those of this waiter."""
        _here.waiter = self
        try:
            with self._turned() if self._functions is None else self._functions.called():
                yield
        finally:
            _here.waiter = None

    @contextmanager
    def launching(self) -> Iterator[None]:
        """See `launching`."""
        if self._functions is None:
            yield
            return
        with self._functions.interrupted(), self._turned():
            self.pause(0)  # nothing is begun after an interrupt
            yield

    def pause(self, seconds: float) -> None:
        """See `pause`."""
        if self._is_interrupted:  # it is ending its job, which takes time as well
            time.sleep(seconds)
            return
        had_turn = self._turn is not None
        self.give_turn()
        if seconds:
            self._next_turns = self._turns
        if seconds > _SHORT_PAUSE:
            seconds = max(seconds, self._crowd() / PAUSES_A_SECOND)
        if self.stop.wait(seconds):
            self._is_interrupted = True
            raise DagsterExecutionInterruptedError("The step was interrupted while it waited.")
        if had_turn:
            self.take_turn()

    @contextmanager
    def _turned(self) -> Iterator[None]:
        self.take_turn()
        try:
            yield
        finally:
            self.give_turn()

    def take_turn(self) -> None:
        """Wait until few enough others are busy."""
        if self._next_turns is not None and self._turn is None:
            self._next_turns.acquire()
            self._turn = self._next_turns

    def give_turn(self) -> None:
        """Let another one be busy."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()


def pause(seconds: float) -> None:
    """Let time pass in a step.

    Raises
    ------
    DagsterExecutionInterruptedError
        In a thread of an execution that is interrupted; in the main thread the signal does it.
    """
    waiter = _waiter()
    if waiter is None:
        time.sleep(seconds)
    else:
        waiter.pause(seconds)


def stop_here() -> Stop | None:
    """Give what interrupts this thread; None where signals do it."""
    waiter = _waiter()
    return None if waiter is None else waiter.stop


@contextmanager
def long_wait(*, pauses: bool) -> Iterator[None]:
    """Keep no other step from being busy while this one waits.

    Parameters
    ----------
    pauses
        Whether the wait consists of pauses, in which others are busy anyway.
    """
    waiter = _waiter()
    if waiter is None:
        yield
        return
    waiter.pause(0)  # nothing is begun after an interrupt
    if not pauses:
        waiter.give_turn()
    try:
        yield
    finally:
        waiter.take_turn()  # also after an interrupt, which many get at once


@contextmanager
def launching() -> Iterator[None]:
    """Let other functions be called while that of this plain asset waits for a job."""
    waiter = _waiter()
    with nullcontext() if waiter is None else waiter.launching():
        yield


def _waiter() -> Waiter | None:
    found: Waiter | None = getattr(_here, "waiter", None)
    return found
