"""Follows the log of a job as it grows."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_FORWARDED_BYTES = 1 << 18
_MOST_FORWARDED = 1 << 24
_LONGEST_HELD = 1 << 16
"""Of a line that has no end yet, so that nothing else comes between its parts."""

_writing = threading.Lock()
"""Lines of several logs go to the same place."""


class FollowedLog:
    """Copies a log of the job to our own stdout or stderr as it grows, up to a limit.

    Parameters
    ----------
    path
        The log.
    target
        File descriptor.
    label
        Put before each line, where the logs of several jobs mix; such a log goes by whole lines.
    """

    def __init__(self, path: Path, target: int, label: str = "") -> None:
        self._path = path
        self._target = target
        self._label = f"[{label}] ".encode(errors="replace") if label else b""
        self._offset = 0
        self._held = b""

    def forward(self) -> bool:
        """Copy a piece; whether there may be more."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                piece = file.read(_FORWARDED_BYTES)
        except OSError:
            return False
        if not piece or self._offset > _MOST_FORWARDED:
            return False
        self._offset += len(piece)
        if self._offset > _MOST_FORWARDED:
            piece += f"\n[scheduler] the rest is in {self._path}\n".encode()
        self._write(self._lines(piece) if self._label else piece)
        return True

    def finish(self) -> None:
        """Copy what is left, and a line that has no end."""
        while self.forward():
            pass
        if self._held:
            self._write(self._lines(b"\n"))

    def _lines(self, piece: bytes) -> bytes:
        """Give the lines that are whole, each with the label; the rest is held until its end."""
        lines = (self._held + piece).splitlines(keepends=True)
        self._held = b""
        if lines and not lines[-1].endswith(b"\n") and len(lines[-1]) < _LONGEST_HELD:
            self._held = lines.pop()
        return b"".join(self._label + line for line in lines)

    def _write(self, piece: bytes) -> None:
        with suppress(OSError), _writing:  # a closed stdout of ours is no reason to fail
            while piece:
                piece = piece[os.write(self._target, piece) :]
