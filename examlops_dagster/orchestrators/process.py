"""A worker as its parent sees it: started, told, listened to, and ended with all its children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from examlops_dagster.errors import LaunchError
from examlops_dagster.orchestrators.calling import how_it_ended, import_root
from examlops_dagster.orchestrators.ending import end_group, end_tree
from examlops_dagster.orchestrators.messages import Call, FunctionCall, Order, Signal, Surroundings
from examlops_dagster.orchestrators.output import OutputForwarder

START_SECONDS = 300.0
"""Limit of the start of a worker, and of the import of a function's module, each."""

_PACKAGE_ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 0.5
_EXIT_SECONDS = 2.0
_DEATH_SECONDS = 30.0
"""For the guard of a worker that died to end what that left behind, and to tell how it died."""


class WorkerDiedError(Exception):
    """The worker ended by itself, or was ended; the text says how."""


class WorkerProcess:
    """A running worker; used by one thread at a time, but for `kill`.

    Raises
    ------
    LaunchError
        When the process cannot be started.
    """

    def __init__(self) -> None:
        self.builds = 0
        self.cancelled = False
        self._killing = threading.Lock()
        self._is_building = False
        self._environment = dict(os.environ)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *(f"-W{option}" for option in sys.warnoptions),
                        "-m",
                        "examlops_dagster.orchestrators.worker",
                        str(theirs.fileno()),
                    ],
                    # -m puts the folder first on sys.path: ours, where no module of the user
                    # stands in for one of the standard library. The first order changes it.
                    cwd=_PACKAGE_ROOT,
                    # Sets pickle in the order of their hashes: the same in every worker.
                    env={"PYTHONHASHSEED": "0", **self._environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                raise LaunchError(
                    f"a worker process could not be started: {error}", transient=True
                ) from error
            self._link: Connection[Any, Any] = Connection(ours.detach())
        self._environment.setdefault("PYTHONHASHSEED", "0")  # so that the first order removes it
        self._output = OutputForwarder(
            _detached(self._process.stdout), _detached(self._process.stderr)
        )

    @property
    def pid(self) -> int:
        """Process id of the worker's guard, and of the process group and session of both."""
        return self._process.pid

    @property
    def last_lines(self) -> str:
        """The end of what the build has written to stderr."""
        return self._output.last_lines

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def start(self, call: Call) -> None:
        """Give the worker a build.

        Raises
        ------
        WorkerDiedError
            When it ended while it was idle.
        LaunchError
            When it does not come up.
        """
        self._output.forget()
        if self.builds == 0:
            self._greet()
        self.builds += 1
        self._is_building = True
        try:
            self._link.send(Order(self._surroundings(call), call))
        except OSError as error:
            raise WorkerDiedError(self._how_it_ended()) from error

    def receive(
        self, timeout_seconds: float | None, pause: Callable[[float], None] | None = None
    ) -> Any:
        """Wait for the next message.

        Parameters
        ----------
        pause
            Called now and then with 0: raises what interrupts the waiting in another thread than
            the main one.

        Raises
        ------
        WorkerDiedError
            When there will be none.
        TimeoutError
            When there is none within ``timeout_seconds``.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        left = _LOOK_SECONDS if timeout_seconds is None else timeout_seconds
        while not self._link.poll(max(0.0, min(left, _LOOK_SECONDS))):
            if left <= 0:
                raise TimeoutError
            if pause is not None:
                pause(0)
            # No end of file: a process that the function forked may hold the connection open.
            if not self.is_alive and not self._link.poll(0):
                raise WorkerDiedError(self._how_it_ended())
            if deadline is not None:
                left = deadline - time.monotonic()
        try:
            return self._link.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._how_it_ended()) from error

    def receive_bytes(self) -> bytes:
        """Take the payload that follows a message.

        Raises
        ------
        WorkerDiedError
            When the worker ended in the middle of it.
        """
        try:
            return self._link.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._how_it_ended()) from error

    def forward_output(self) -> None:
        """Have all that the build wrote on our stdout and stderr."""
        self._output.drain()

    def complete(self) -> None:
        """Note that the build is over, with all its output here."""
        self._output.drain()
        self._is_building = False

    def kill(self, grace_seconds: float) -> None:
        """End the worker and its descendants: SIGTERM, and SIGKILL after ``grace_seconds``."""
        with self._killing:
            if self.is_alive:
                end_tree(self._process, grace_seconds)
            elif self._is_building:  # it ended just now: its id is no other group's yet
                end_group(self.pid, signal.SIGKILL)

    def end(self, grace_seconds: float) -> None:
        """Kill it, and give back what it holds here."""
        try:
            self.kill(grace_seconds)
        finally:
            self._link.close()
            self._output.close()

    def ask_to_exit(self) -> None:
        """Let an idle worker end by itself, with its exit handlers; `finish` waits for it."""
        with contextlib.suppress(OSError):
            self._link.send(None)

    def finish(self, grace_seconds: float) -> None:
        """Wait for a worker that was asked to exit; its guard ends what it leaves."""
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_SECONDS)
        finally:
            self.end(grace_seconds)

    def _greet(self) -> None:
        try:
            greeting = self.receive(START_SECONDS)
        except (WorkerDiedError, TimeoutError) as error:
            self._output.drain()
            why = str(error) or f"it said nothing for {START_SECONDS:g} s"
            raise LaunchError(f"a worker process did not come up: {why}") from error
        if greeting is not Signal.READY:
            raise LaunchError(f"a worker process said {greeting!r} in place of a greeting")

    def _surroundings(self, call: Call) -> Surroundings:
        now = dict(os.environ)
        changes: dict[str, str | None] = {
            name: value for name, value in now.items() if self._environment.get(name) != value
        }
        changes.update(dict.fromkeys(self._environment.keys() - now.keys()))
        self._environment = now
        try:
            folder = str(Path.cwd())
        except OSError:
            folder = None
        path = list(sys.path)
        if isinstance(call, FunctionCall) and call.file and isinstance(call.function, str):
            # who loaded the module may have had its folder on the path only meanwhile
            root = import_root(call.function.partition(":")[0], call.file)
            if root not in path:
                path.append(root)
        return Surroundings(folder, path, changes)

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return "worker closed its connection"
        return f"worker {how_it_ended(code)}"


def _detached(stream: Any) -> int:
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor
