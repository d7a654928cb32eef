"""Forwards what a worker writes to this process's own stdout and stderr, as it comes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import selectors
import struct
import termios
import threading

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 1 << 13
_DRAIN_SECONDS = 1.0


class OutputForwarder:
    """Copies two pipes to file descriptors 1 and 2, in a thread.

    The descriptors are looked at anew for each piece, since Dagster's log capture puts files in
    their place while a step runs.

    Parameters
    ----------
    stdout, stderr
        Reading ends of the worker's pipes; closed by `close`.
    """

    def __init__(self, stdout: int, stderr: int) -> None:
        self._targets = {stdout: 1, stderr: 2}
        self._lock = threading.Lock()
        self._tail = bytearray()
        self._stop_reading, self._stop_writing = os.pipe()
        for pipe in self._targets:
            os.set_blocking(pipe, False)
        self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)
        self._thread.start()

    @property
    def last_lines(self) -> str:
        """The end of what came on stderr since `forget`, at most 8 KiB."""
        return self._tail.decode(errors="replace")

    def forget(self) -> None:
        """Start the last lines anew."""
        self._tail.clear()

    def drain(self, timeout_seconds: float | None = None) -> None:
        """Forward all that the worker has written until now.

        What a process has written is in the pipe when its write returns. So, after the worker
        has said over another way that it is done, what the pipes hold is the rest.

        Parameters
        ----------
        timeout_seconds
            How long to wait for a reader of our own output that is slow; None waits.
        """
        if self._lock.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds):
            try:
                for pipe in self._targets:
                    waiting = _bytes_in(pipe)
                    while waiting > 0 and (count := self._forward(pipe, waiting)):
                        waiting -= count
            finally:
                self._lock.release()

    def close(self) -> None:
        """Forward what is left, and close the pipes; the worker has ended."""
        os.write(self._stop_writing, b".")
        self._thread.join(_DRAIN_SECONDS)
        if self._thread.is_alive():
            return  # stuck in a write to our own output, which would block us as well
        self.drain()
        for descriptor in (*self._targets, self._stop_reading, self._stop_writing):
            os.close(descriptor)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in (*self._targets, self._stop_reading):
                selector.register(pipe, selectors.EVENT_READ)
            while True:
                ready = [key.fd for key, _ in selector.select()]
                if self._stop_reading in ready:
                    return
                for pipe in ready:
                    with self._lock:
                        if self._forward(pipe, _CHUNK_BYTES) == 0:
                            selector.unregister(pipe)

    def _forward(self, pipe: int, most: int) -> int | None:
        """Forward one piece; 0 at the end of the pipe, None when there is nothing now."""
        try:
            piece = os.read(pipe, min(most, _CHUNK_BYTES))
        except BlockingIOError:
            return None
        target = self._targets[pipe]
        if target == 2:  # noqa: PLR2004 - stderr
            self._tail += piece
            del self._tail[:-_TAIL_BYTES]
        _write(target, piece)
        return len(piece)


def _bytes_in(pipe: int) -> int:
    answer = fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0))
    count: int = struct.unpack("i", answer)[0]
    return count


def _write(target: int, piece: bytes) -> None:
    # A closed or broken stdout of ours is no reason for a build to fail.
    with contextlib.suppress(OSError):
        while piece:
            try:
                piece = piece[os.write(target, piece) :]
            except BlockingIOError:
                select.select([], [target], [])
