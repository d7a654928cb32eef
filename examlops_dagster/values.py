"""Where the values of assets are kept: a file for each data version, written atomically."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from examlops_dagster.core.seams import Value
from examlops_dagster.formats import SUFFIXES

KEPT = 2
"""Files kept of one node: the current one, and the one before it that somebody may still read."""

LONGEST_NAME = 200
"""Characters of a folder's name; a longer one is cut, and told apart by a hash."""

SYNCED_TOGETHER = 16
"""Files that are brought to the disk at a time."""

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

    def keep(
        self,
        key: Sequence[str],
        partition: str,
        data_version: str,
        value: Value,
        *,
        durable: bool = True,
    ) -> Path:
        """Write a value, and give its path.

        Parameters
        ----------
        durable
            Whether it has to outlast a power cut at once. Without, nothing may be recorded of it
            before `make_durable`; what is written over is durable in any case.
        """
        folder = self.folder(key, partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{_stem(data_version)}{SUFFIXES[value.format]}"
        write_atomically(path, value.payload, durable=durable or path.exists())
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


def make_durable(paths: Sequence[Path]) -> None:
    """Wait until files are on the disk; together, since each alone waits for the whole journal."""
    if len(paths) < 2:  # noqa: PLR2004 - nothing to do together
        for path in paths:
            _sync(path)
        return
    with ThreadPoolExecutor(SYNCED_TOGETHER) as pool:
        list(pool.map(_sync, paths))


def write_atomically(
    path: Path, payload: bytes, mode: int = 0o600, *, durable: bool = True
) -> None:
    """Write a file that is there whole or not at all, also after a power cut.

    Parameters
    ----------
    mode
        Who may read it, less what the umask takes away.
    durable
        Whether to wait until it is on the disk; without, see `make_durable`.
    """
    name = path.parent / f".{secrets.token_hex(8)}{_PART}"
    handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # a newer build of the same node took it away
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
