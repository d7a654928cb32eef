"""Keeps idle workers for the next build."""

from __future__ import annotations

import os
import threading

from examlops_dagster.orchestrators.process import WorkerProcess


class WorkerPool:
    """Workers, each lent to one thread at a time; as many as builds ran at once.

    Parameters
    ----------
    grace_seconds
        Between SIGTERM and SIGKILL for what has to be ended.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._owner = os.getpid()
        self._inherited: list[WorkerProcess] = []

    def take(self) -> WorkerProcess:
        """Lend an idle worker, or a new one.

        Raises
        ------
        LaunchError
            When a new one cannot be started.
        """
        with self._lock:
            self._disown_after_fork()
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                self._busy.add(worker)
                return worker
        worker = WorkerProcess()
        with self._lock:
            self._busy.add(worker)
        return worker

    def give_back(self, worker: WorkerProcess) -> None:
        """Take back a worker that can serve again."""
        with self._lock:
            self._busy.discard(worker)
            if not worker.cancelled:
                self._idle.append(worker)
                return
        worker.end(self._grace_seconds)

    def discard(self, worker: WorkerProcess) -> None:
        """Forget a worker that its borrower is going to end."""
        with self._lock:
            self._busy.discard(worker)

    def close(self) -> None:
        """Let the idle workers exit, and end the others in the middle of their builds."""
        with self._lock:
            self._disown_after_fork()
            idle, self._idle = self._idle, []
            busy = list(self._busy)
            for worker in busy:
                worker.cancelled = True
        for worker in idle:
            worker.ask_to_exit()
        for worker in busy:
            worker.kill(self._grace_seconds)  # its borrower sees the end, and frees the rest
        for worker in idle:
            worker.finish(self._grace_seconds)

    def _disown_after_fork(self) -> None:
        """In a forked child, keep away from workers that are the parent's."""
        if os.getpid() != self._owner:
            self._owner = os.getpid()
            self._inherited += [*self._idle, *self._busy]
            self._idle, self._busy = [], set()
