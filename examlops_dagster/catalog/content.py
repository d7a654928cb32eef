"""What a dataset holds: its files, each by name, size and hash, and one hash over all of them.

A revision is the SHA-256 over the files in the order of their names' bytes. Times, owners, modes
and empty folders are no content. A link counts as what it leads to, under its own name, since that
is what a reader of the dataset gets.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from examlops_dagster.catalog.hash_cache import HashCache, Known, Stamp
from examlops_dagster.catalog.parquet import Table, is_parquet, merged_columns, read_table
from examlops_dagster.errors import DatasetError

CHUNK_BYTES = 4 << 20
FORM = b"examlops revision 1\n"

RACY_SECONDS = 2.0
"""A file that was written less than this before it was looked at may be written again within the
same tick of its clock; some file systems keep whole seconds, FAT two."""


class Meter(Protocol):
    """Is told how far a long piece of work has come."""

    def begin(self, what: str, total: int) -> None:
        """Start a piece of work of ``total`` bytes."""

    def add(self, amount: int) -> None:
        """Count bytes that are done."""


class Silent:
    """Tells nobody."""

    def begin(self, what: str, total: int) -> None:
        """See Meter."""

    def add(self, amount: int) -> None:
        """See Meter."""


@dataclass(frozen=True)
class File:
    """One file of a dataset.

    Attributes
    ----------
    name
        Relative to the dataset's folder, with ``/``; bytes that are no UTF-8 as `os.fsdecode`
        gives them.
    size
        Bytes.
    digest
        SHA-256 of its bytes, in hexadecimal.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Content:
    """All that a dataset holds.

    Attributes
    ----------
    files
        In the order of their names' bytes.
    columns
        Names and types of the columns of its Parquet files; None where none was read. Not part of
        the revision, which must be the same where pyarrow is not installed.
    row_count
        Rows of its Parquet files; None where one of them was not read.
    notes
        What a person should know, such as Parquet files that cannot be read.
    """

    files: tuple[File, ...]
    columns: Mapping[str, str] | None = None
    row_count: int | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def revision(self) -> str:
        """The hash over names, sizes and bytes, in hexadecimal."""
        total = hashlib.sha256(FORM)
        for file in self.files:
            name = os.fsencode(file.name)
            total.update(b"%d:%s,%d,%s\n" % (len(name), name, file.size, file.digest.encode()))
        return total.hexdigest()

    @property
    def byte_count(self) -> int:
        """Size of all files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def schema_hash(self) -> str | None:
        """SHA-256 of the columns, in hexadecimal; None where they are not known."""
        if self.columns is None:
            return None
        return hashlib.sha256(json.dumps(list(self.columns.items())).encode()).hexdigest()

    def dump(self) -> str:
        """Write it as JSON, in ASCII: names may hold bytes that no text has."""
        return json.dumps(
            {
                "form": 1,
                "revision": self.revision,
                "files": [[f.name, f.size, f.digest] for f in self.files],
                "columns": None if self.columns is None else dict(self.columns),
                "row_count": self.row_count,
            }
        )

    @staticmethod
    def load(text: str) -> Content:
        """Read what `dump` wrote.

        Raises
        ------
        DatasetError
            If it is something else, or was changed since.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            files = tuple(File(str(n), int(s), str(d)) for n, s, d in found["files"])
            content = Content(files, found["columns"], found["row_count"])
            whole = content.revision == found["revision"]
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"a manifest cannot be read: {error!r}") from error
        if not whole:
            raise DatasetError(
                f"the manifest of {found['revision']} lists the files of {content.revision}: "
                "it was changed after it was written"
            )
        return content


def read_content(root: Path, cache: HashCache, meter: Meter | None = None) -> Content:
    """Hash every file below a folder, or one file.

    What a former run has hashed and nobody touched since is taken from the cache, so an
    interrupted run continues where it was. The memory in use grows with the number of files, not
    with their size.

    Raises
    ------
    DatasetError
        If there is nothing, a file cannot be read, or files change meanwhile.
    """
    meter = meter or Silent()
    before = scan(root)
    if not before:
        raise DatasetError(
            f"{root} holds no file → a revision needs content; is it the right path?"
        )
    meter.begin("hashing", sum(found.size for found in before.values()))
    files: list[File] = []
    tables: list[Table | None] = []
    with cache.opened():
        for name, found in before.items():
            known = cache.get(name, found) or _hashed(root, name, found, cache, meter)
            files.append(File(name, found.size, known.digest))
            if is_parquet(name):
                tables.append(known.table)
        _compare(root, before)
        cache.keep_only(before)
    read = [table for table in tables if table is not None and not table.error]
    notes = [f"{table.error}" for table in tables if table is not None and table.error]
    if any(table is None for table in tables):
        notes.append(
            "schema and rows of the Parquet files were not read "
            "→ pip install 'examlops-dagster[parquet]'"
        )
    return Content(
        tuple(files),
        merged_columns(read) if read else None,
        sum(table.rows for table in read) if read and len(read) == len(tables) else None,
        tuple(notes),
    )


def scan(root: Path) -> dict[str, Stamp]:
    """List the files of a dataset in the order of their names' bytes.

    Raises
    ------
    DatasetError
        If the path or a link in it leads nowhere, links go in a circle, or there is something
        that is neither a file nor a folder.
    """
    try:
        top = root.stat()
        if not stat.S_ISDIR(top.st_mode):
            _see_regular(str(root), top)
            return {root.name: Stamp.of(top)}
        found = dict(_walk(root, top))
    except FileNotFoundError as error:
        broken = Path(error.filename).is_symlink()
        what = "is a link that leads nowhere" if broken else "does not exist"
        raise DatasetError(f"{error.filename} {what}") from error
    except OSError as error:
        raise DatasetError(f"{error.filename} cannot be read: {error.strerror}") from error
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def _walk(root: Path, top: os.stat_result) -> Iterator[tuple[str, Stamp]]:
    waiting = [("", frozenset({(top.st_dev, top.st_ino)}))]
    while waiting:
        folder, above = waiting.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}{entry.name}"
                found = Path(entry.path).stat()
                if not stat.S_ISDIR(found.st_mode):
                    _see_regular(entry.path, found)
                    yield name, Stamp.of(found)
                    continue
                here = (found.st_dev, found.st_ino)
                if here in above:
                    raise DatasetError(f"{entry.path} leads back to a folder above it")
                waiting.append((f"{name}/", above | {here}))


def _see_regular(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise DatasetError(f"{path} is neither a file nor a folder, so it has no content to hash")


def _hashed(root: Path, name: str, expected: Stamp, cache: HashCache, meter: Meter) -> Known:
    seen_at = time.time()
    path = file_path(root, name)
    digest = hashlib.sha256()
    table: Table | None = None
    try:
        with path.open("rb") as file:
            _same(path, expected, os.fstat(file.fileno()))
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                meter.add(len(chunk))
            if is_parquet(name):
                table = read_table(path, file)
            _same(path, expected, os.fstat(file.fileno()))
        _same(path, expected, path.stat())
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise _changed(path) from error
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    known = Known(expected, digest.hexdigest(), table)
    if seen_at - expected.modified_ns / 1e9 > RACY_SECONDS:
        cache.put(name, known)
    return known


def file_path(root: Path, name: str) -> Path:
    """Give the path of a file of a dataset, which may be a folder or that one file."""
    return root / name if root.is_dir() else root


def _same(path: Path, expected: Stamp, found: os.stat_result) -> None:
    if not expected.is_content_of(Stamp.of(found)):
        raise _changed(path)


def _compare(root: Path, before: Mapping[str, Stamp]) -> None:
    """See that the files are those of the beginning: a revision is a state that there was."""
    after = scan(root)
    for name in {**before, **after}:
        if name not in before or name not in after or not before[name].is_content_of(after[name]):
            raise _changed(file_path(root, name))


def _changed(path: Path) -> DatasetError:
    return DatasetError(
        f"{path} changed while it was read, so there is no one content to record "
        "→ take the snapshot when nothing writes there; what was hashed so far is kept"
    )
