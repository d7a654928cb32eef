"""Hashes of files that were read before, in a file that only grows until a run comes to its end.

Lines of JSON, not a database: it lies on whatever file system the cache folder has, a line that a
kill has cut in two is left out, and losing all of it costs time alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from examlops_dagster.catalog.parquet import Table
from examlops_dagster.values import write_atomically


@dataclass(frozen=True)
class Stamp:
    """What tells that a file is the one that was read.

    Attributes
    ----------
    size
        Bytes.
    modified_ns, changed_ns
        Nanoseconds since 1970 of the last change of the content, and of the inode, which no
        program can set back.
    inode
        Number of the inode.
    """

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @staticmethod
    def of(found: os.stat_result) -> Stamp:
        """Take it from a stat."""
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)

    def is_content_of(self, other: Stamp) -> bool:
        """Tell whether a file was left alone; a new link to it or a new mode changes nothing."""
        mine = (self.size, self.modified_ns, self.inode)
        return mine == (other.size, other.modified_ns, other.inode)


@dataclass(frozen=True)
class Known:
    """What was read of a file.

    Attributes
    ----------
    stamp
        How the file was then.
    digest
        SHA-256 of its bytes, in hexadecimal.
    table
        Of a Parquet file, where pyarrow was there to read it.
    """

    stamp: Stamp
    digest: str
    table: Table | None = None


class HashCache:
    """The known files of one dataset.

    Parameters
    ----------
    folder
        Where the caches are, of all datasets.
    root
        The dataset's path.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._path = (
            folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]}.jsonl"
        )
        self._known: dict[str, Known] = {}
        self._file: IO[str] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Read what is known, and keep what is put from now on."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._load()
            self._file = self._path.open("a", encoding="ascii", buffering=1)
            self._file.write("\n")  # after a line that was cut in two
        except OSError:  # a full or read-only home: then nothing is remembered
            self._file = None
        try:
            yield
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def get(self, name: str, stamp: Stamp) -> Known | None:
        """Give what is known of a file, unless it was touched since."""
        known = self._known.get(name)
        return known if known is not None and known.stamp == stamp else None

    def put(self, name: str, known: Known) -> None:
        """Remember a file, at once."""
        self._known[name] = known
        if self._file is not None:
            try:
                self._file.write(_line(name, known))
            except OSError:
                self._file = None

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the files that are gone, and what the known ones were before."""
        kept = "".join(_line(name, self._known[name]) for name in names if name in self._known)
        if self._file is not None:
            try:
                write_atomically(self._path, kept.encode("ascii"), durable=False)
            except OSError:
                return

    def _load(self) -> None:
        if not self._path.exists():
            return
        with self._path.open(encoding="ascii", errors="replace") as file:
            for line in file:
                try:
                    name, stamp, digest, table = json.loads(line)
                    known = Known(Stamp(*stamp), digest, Table(*table) if table else None)
                except (ValueError, TypeError):
                    continue
                self._known[name] = known


def _line(name: str, known: Known) -> str:
    stamp, table = known.stamp, known.table
    values: list[Any] = [
        name,
        [stamp.size, stamp.modified_ns, stamp.changed_ns, stamp.inode],
        known.digest,
        None if table is None else [table.rows, dict(table.columns), table.error],
    ]
    return json.dumps(values) + "\n"
