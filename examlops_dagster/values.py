"""Where the values of assets are kept: a file for each data version, written atomically."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from examlops_dagster.core.seams import Value
from examlops_dagster.formats import SUFFIXES

KEPT = 2
"""Files kept of one node: the current one, and the one before it that somebody may still read."""


class FileValues:
    """Values in files below one folder.

    A file is named for its data version, so that a value can never be read as that of another
    version, also after a process was killed between writing it and recording it.

    Parameters
    ----------
    root
        The folder; made when the first value is kept.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def keep(self, key: Sequence[str], partition: str, data_version: str, value: Value) -> Path:
        """Write a value, and give its path."""
        folder = self.folder(key, partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{_stem(data_version)}{SUFFIXES[value.format]}"
        write_atomically(path, value.payload)
        for old in sorted(folder.iterdir(), key=_modified, reverse=True)[KEPT:]:
            if old.is_file() and old != path:
                old.unlink(missing_ok=True)
        return path

    def path(self, key: Sequence[str], partition: str, data_version: str | None) -> Path | None:
        """Give the file of a data version, or the newest for None; None where there is none."""
        folder = self.folder(key, partition)
        pattern = "*" if data_version is None else f"{_stem(data_version)}.*"
        found = [p for p in folder.glob(pattern) if p.suffix in _FORMATS and p.is_file()]
        return max(found, key=_modified, default=None)

    def load(self, key: Sequence[str], partition: str, data_version: str | None) -> Value | None:
        """Read the value of a data version, or the newest for None; None where there is none."""
        path = self.path(key, partition, data_version)
        if path is None:
            return None
        try:
            return Value(_FORMATS[path.suffix], path.read_bytes())
        except FileNotFoundError:  # a build took it away between the two lines
            return None

    def folder(self, key: Sequence[str], partition: str) -> Path:
        """Give the folder of a node; names cannot leave the root."""
        parts = [_safe(part) for part in (*key, "@", partition) if part]
        if not partition:
            parts.pop()
        return self.root.joinpath(*parts)


_FORMATS = {suffix: name for name, suffix in SUFFIXES.items()}


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _stem(data_version: str) -> str:
    return hashlib.sha256(data_version.encode()).hexdigest()[:16]


def _safe(part: str) -> str:
    return quote(part, safe="@") if part.strip(".") else part.replace(".", "%2E")


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
