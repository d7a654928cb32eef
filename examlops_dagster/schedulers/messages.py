"""Follows a file of Dagster Pipes messages that a job writes elsewhere.

Dagster's own reader deletes the file, dies of a torn or foreign line, and stops at ``closed``
(facts: dagster 1.13.28, dagster#17868). Standard library only.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_VERSION = "__dagster_pipes_version"
_LONGEST_LINE = 1 << 24
_CHUNK_BYTES = 1 << 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes
    ----------
    method
        opened, closed, log, report_asset_materialization, report_asset_check,
        report_custom_message, ...
    params
        Of that method.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exception(self) -> Mapping[str, Any] | None:
        """What a `closed` carries where the program failed."""
        found = self.params.get("exception")
        return found if isinstance(found, dict) else None


class MessageFile:
    """Reads what was added since the last look; survives whatever shared filesystems do.

    A line is taken once its end is there. A line that is no message is skipped, with one warning
    for the file. ``closed`` is held back until `finish`: programs write behind it. A new file
    under the name, a shorter one, or a second ``opened`` is another attempt, and what the former
    one said no longer counts: ``attempt`` tells.

    Parameters
    ----------
    path
        May not exist yet.
    offset
        Bytes that were read before, by another process.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.attempt = 0
        self.offset = offset
        self.opened = False
        self.closed: Message | None = None
        self._inode: int | None = None
        self._rest = b""
        self._warned = False

    def read(self) -> list[Message]:
        """Give the messages that are new; nothing while the file is not there."""
        return self._parsed(self._new_bytes())

    def finish(self) -> list[Message]:
        """Give all that is left, also a last line without an end, and `closed` as the last."""
        found = self.read()
        rest, self._rest = self._rest, b""
        if rest.strip():
            found += self._parsed(rest + b"\n")
        if self.closed is not None:
            found.append(self.closed)
        return found

    def _new_bytes(self) -> bytes:
        pieces: list[bytes] = []
        try:
            # opened anew each time: that is when NFS looks at the server again
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if self._inode not in (None, stat.st_ino) or stat.st_size < self.offset:
                    self._start_again()
                    self.offset, self._rest = 0, b""
                self._inode = stat.st_ino
                file.seek(self.offset)
                while piece := file.read(_CHUNK_BYTES):
                    self.offset += len(piece)
                    pieces.append(piece)
        except FileNotFoundError:
            pass
        except OSError as error:  # a stale handle: the next look opens it anew
            _logger.debug("%s cannot be read now: %s", self.path, error)
        return b"".join(pieces)

    def _parsed(self, new: bytes) -> list[Message]:
        if not new:
            return []
        *lines, self._rest = (self._rest + new).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""
        found: list[Message] = []
        for line in lines:
            message = self._message(line)
            if message is None:
                continue
            if message.method == "opened":
                if self.opened:
                    self._start_again()
                    found.clear()
                self.opened = True
            if message.method == "closed":
                self.closed = message
            else:
                found.append(message)
        return found

    def _message(self, line: bytes) -> Message | None:
        if not line.strip():
            return None
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and _VERSION in found and isinstance(found.get("method"), str):
            params = found.get("params")
            return Message(found["method"], params if isinstance(params, dict) else {})
        if not self._warned:
            self._warned = True
            shown = line[:200].decode(errors="replace")
            _logger.warning("%s holds a line that is no message: %r", self.path, shown)
        return None

    def _start_again(self) -> None:
        self.attempt += 1
        self.opened = False
        self.closed = None
