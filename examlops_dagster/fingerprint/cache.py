"""Outlines of files, kept in memory and in a folder between processes."""

from __future__ import annotations

import hashlib
import linecache
import marshal
import os
import sys
import time
from pathlib import Path
from typing import Any

from examlops_dagster.fingerprint.outline import FORMAT, Outline, digest_of
from examlops_dagster.fingerprint.outliner import outline_of

_SETTLED_NS = 2_000_000_000
"""A file younger than this may yet change within one tick of its clock: it is not cached."""


class Outlines:
    """The outlines of files, each read once in the life of this object.

    Parameters
    ----------
    folder
        Where outlines are kept between processes; None keeps none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = os.fspath(folder) if folder is not None else None
        self._files: dict[str, tuple[tuple[int, int], Outline | None] | None] = {}
        self._texts: dict[tuple[str, str], Outline | None] = {}

    def of_file(self, path: str) -> Outline | None:
        """Give the outline of a file as it was when it was first asked for."""
        if path not in self._files:
            self._files[path] = self._read(path)
        known = self._files[path]
        return known[1] if known is not None else None

    def of_text(self, name: str, module_globals: dict[str, Any]) -> Outline | None:
        """Give the outline of what ``linecache`` holds: a notebook's cell, a file in a zip."""
        text = "".join(linecache.getlines(name, module_globals))
        if not text:
            return None
        if (name, text) not in self._texts:
            self._texts[name, text] = outline_of(text)
        return self._texts[name, text]

    def is_older(self, path: str) -> bool:
        """Whether a file has changed since its outline was first asked for."""
        self.of_file(path)
        known = self._files[path]
        return known is not None and known[0] != _stamp(path)

    def forget(self, path: str) -> None:
        """Read a file anew when it is next asked for."""
        self._files.pop(path, None)

    def _read(self, path: str) -> tuple[tuple[int, int], Outline | None] | None:
        stamp = _stamp(path)
        if stamp is None:
            return None
        key = (FORMAT, sys.version_info[:2], stamp)
        kept = self._kept(path)
        cached = _cached(kept, key)
        if cached is not None:
            return stamp, cached
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a Path costs more than the outline
                source = file.read()
        except OSError:
            return None
        outline = outline_of(source)
        if outline is not None and time.time_ns() - stamp[0] > _SETTLED_NS:
            _keep(kept, key, outline)
        return stamp, outline

    def _kept(self, path: str) -> str | None:
        if self._folder is None:
            return None
        name = hashlib.sha256(os.path.abspath(path).encode("utf-8", "surrogateescape"))  # noqa: PTH100
        tag = f"{sys.version_info[0]}{sys.version_info[1]}"
        return f"{self._folder}{os.sep}{name.hexdigest()[:32]}.{tag}.outline"


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs more than the call
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size


def _cached(path: str | None, key: tuple[Any, ...]) -> Outline | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a Path costs more than the outline
            checksum, data = file.read(16), file.read()
    except OSError:
        return None
    if digest_of(data) != checksum:  # marshal trusts what it reads: no torn file may reach it
        return None
    found, parts = marshal.loads(data)  # noqa: S302 - written by us, as the checksum says
    return Outline(parts) if found == key else None


def _keep(path: str | None, key: tuple[Any, ...], outline: Outline) -> None:
    if path is None:
        return
    data = marshal.dumps((tuple(key), outline.parts))
    ours = f"{path}.{os.getpid()}.{time.time_ns()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(ours, "wb") as file:  # noqa: PTH123
            file.write(digest_of(data) + data)
        os.replace(ours, path)  # noqa: PTH105
    except OSError:
        return  # the outline is made anew next time
