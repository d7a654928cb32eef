"""Where the values of assets are kept: a file for each data version, written atomically."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from examlops_dagster.core.seams import Value
from examlops_dagster.formats import SUFFIXES

KEPT = 2
"""Files kept of one node: the current one, and the one before it that somebody may still read."""

LONGEST_NAME = 200
"""Characters of a folder's name; a longer one is cut, and told apart by a hash."""

LEFTOVER_SECONDS = 86_400
"""After which a half written file belongs to nobody any more."""


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
        # assets below this name, and its partitions, have folders beside the files
        kept = [p for p in folder.iterdir() if p.suffix in _FORMATS and p.is_file() and p != path]
        for old in sorted(kept, key=_modified, reverse=True)[KEPT - 1 :]:
            old.unlink(missing_ok=True)
        _remove_leftovers(folder)
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
        parts = [_safe(part) for part in key]
        if partition:
            parts.extend(("@", _safe(partition)))
        return self.root.joinpath(*parts)


_PART = ".part"
_FORMATS = {suffix: name for name, suffix in SUFFIXES.items()}


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=_PART)
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
    name = quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")
    if len(name) > LONGEST_NAME:
        return f"{name[:LONGEST_NAME]}%%{hashlib.sha256(part.encode()).hexdigest()[:16]}"
    return name


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left half done."""
    for part in folder.glob(f"*{_PART}"):
        if time.time() - _modified(part) / 1e9 > LEFTOVER_SECONDS:
            part.unlink(missing_ok=True)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
