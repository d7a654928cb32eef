"""Splits a worker in two: one that works, and a small one that ends it when nobody waits for it.

A thread of the working process could not do that: a regular expression or a sum in C keeps the
interpreter's lock for as long as it takes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from typing import NoReturn

_LOOK_MILLISECONDS = 1000
_PR_SET_CHILD_SUBREAPER = 36


def split(link: int) -> None:
    """Return in a child process, which this one guards until its end, and then ends like it.

    When the parent of this process dies, all that runs below it gets SIGKILL at once; when the
    child ends by itself, what it left behind does. After a SIGTERM, what is left may take its
    time: whoever sent that sends SIGKILL when it takes too long.

    Parameters
    ----------
    link
        The worker's end of its socket pair; closed by the system at the other end when the
        parent dies.
    """
    parent = os.getppid()
    _adopt_orphans()
    child = os.fork()  # nothing but imports was done yet: no threads, no locks, no output
    if child != 0:
        _Guard(link, parent, child).stand()


class _Guard:
    def __init__(self, link: int, parent: int, child: int) -> None:
        self._link = link
        self._parent = parent
        self._child = child
        self._status = 0
        self._is_terminated = False

    def stand(self) -> NoReturn:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        watch = select.poll()
        watch.register(self._link, 0)  # nothing but its hang-up
        watch.register(woken, select.POLLIN)
        while self._reap():
            # A process that the parent forked may hold the other end of the link open.
            if os.getppid() != self._parent:
                end_everything()
            for descriptor, _ in watch.poll(_LOOK_MILLISECONDS):
                if descriptor == self._link:
                    end_everything()
                os.read(woken, 512)
        self._end()

    def _reap(self) -> bool:
        """Take the dead away, adopted orphans too; whether there is something left to guard."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return self._child != 0 or self._is_terminated
                if pid == self._child:
                    self._child, self._status = 0, status
        return False

    def _terminate(self, *_: object) -> None:
        self._is_terminated = True

    def _end(self) -> NoReturn:
        _kill_descendants()
        code = os.waitstatus_to_exitcode(self._status)
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError, ValueError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(abs(code))


def end_everything() -> NoReturn:
    """Kill all that runs below this process, in other sessions too, and itself with its group."""
    try:
        _kill_descendants()
    finally:
        os.killpg(0, signal.SIGKILL)
    raise AssertionError


def _kill_descendants() -> None:
    import psutil  # noqa: PLC0415 - needed once, at the end

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _adopt_orphans() -> None:
    """Keep programs that outlive their parents in our tree, so that they can be ended."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 - not in every build of Python

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # prctl(2)
