"""Which lines of a job its run was told already, by a process that is gone."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from examlops_dagster.schedulers.folder import read_json, write_json

_SAVE_SECONDS = 1.0


class Told:
    """Counts the lines that a job logged, over the processes of one run that wait for it.

    A process that takes a job over reads its messages from the first, since results count
    again. A line that the same run has is not told to it twice, but for those of the last second
    before a kill; another run is told all of them.

    Parameters
    ----------
    path
        Where the count is kept, in the folder of the job.
    messages
        The file of the messages: in a new one they are those of another attempt.
    run_id
        Of the run that is told; empty for none, which is told all.
    """

    def __init__(self, path: Path, messages: Path, run_id: str) -> None:
        self._path = path
        self._messages = messages
        self._run_id = run_id
        self._count = 0
        self._saved = 0
        self._saved_at = time.monotonic()
        found = read_json(path) if run_id else None
        before = found if isinstance(found, dict) else {}
        same = before.get("run_id") == run_id and before.get("file") == self._file()
        count = before.get("count")
        self._before = count if same and isinstance(count, int) else 0

    def again(self) -> None:
        """Count anew: the messages are those of another attempt."""
        self._count = self._before = 0

    def has(self) -> bool:
        """Count the next line, and tell whether the run has it."""
        self._count += 1
        if self._count <= self._before:
            return True
        if self._run_id and time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save()
        return False

    def save(self) -> None:
        """Keep the count, for who takes the job over."""
        self._saved_at = time.monotonic()
        if not self._run_id or self._count in (0, self._saved):
            return
        self._saved = self._count
        count = {"run_id": self._run_id, "file": self._file(), "count": self._count}
        with suppress(OSError):
            write_json(self._path, count, durable=False)

    def _file(self) -> int | None:
        try:
            return self._messages.stat().st_ino
        except OSError:
            return None
