"""Follows the log of a job as it grows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FORWARDED_BYTES = 1 << 18
_MOST_FORWARDED = 1 << 24


class FollowedLog:
    """Copies a log of the job to our own stdout or stderr as it grows, up to a limit."""

    def __init__(self, path: Path, target: int) -> None:
        self._path = path
        self._target = target
        self._offset = 0

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
        with suppress(OSError):  # a closed stdout of ours is no reason to fail
            while piece:
                piece = piece[os.write(self._target, piece) :]
        return True
