"""The files that a job writes, as they are told and sent by another host: texts out, bytes in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from examlops_dagster.errors import LaunchError

LONGEST_LOG_BYTES = 1 << 24
"""Of a log that is brought as it grows; of the rest only the end comes, after the job."""
_LOG_END_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20

_OURS = re.compile(
    r"((stdout|stderr)(\.\d+)?\.log|(messages|outlets)(\.\d+)?\.jsonl|exit(\.\d+)?\.json"
    r"|out(\.\d+)?/[^./][^/]*)",
    re.DOTALL,
)
_EXIT = re.compile(r"exit(\.\d+)?\.json")
_LOG = re.compile(r"(stdout|stderr)(\.\d+)?\.log")


@dataclass(frozen=True)
class Brought:
    """What is here of a file.

    Attributes
    ----------
    inode
        Of the file there; another one is another file.
    offset
        Up to where it was read there.
    length
        Of the file here.
    """

    inode: str
    offset: int
    length: int


@dataclass(frozen=True)
class Listed:
    """The files of one folder: inode and size by name.

    Attributes
    ----------
    ended
        Names of exit files that were there before anything else was looked at.
    """

    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Wanted:
    """A piece of a file.

    Attributes
    ----------
    name
        In the folder.
    offset, limit
        Where it begins, and how many bytes at most; -1 for all.
    """

    name: str
    inode: str
    offset: int
    limit: int = -1


def listing_script(folders: Iterable[Path]) -> str:
    """Give the script that lists the files of many folders: two commands, whatever their number."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    return (
        f"set -- {names}\n"
        "find \"$@\" -maxdepth 1 -printf 'E\\0%d\\0%H\\0%P\\0' 2>/dev/null\n"
        "[ $? -lt 127 ] || exit 1\n"
        "find \"$@\" -mindepth 1 -maxdepth 2 -path '*/in*' -prune "
        "-o -type f -printf 'F\\0%H\\0%i\\0%s\\0%P\\0' 2>/dev/null\n"
        "[ $? -lt 127 ]"  # 1: a folder is not there
    )


def read_listing(text: bytes) -> dict[Path, Listed]:
    """Read what `listing_script` printed, by folder; one that is not there is left out."""
    fields = iter(text.decode(errors="surrogateescape").split("\0"))
    files: dict[str, dict[str, tuple[str, int]]] = {}
    ended: dict[str, set[str]] = {}
    for kind in fields:
        if kind == "E":
            depth, folder, name = next(fields), next(fields), next(fields)
            if depth == "0":
                files.setdefault(folder, {})
            elif _EXIT.fullmatch(name):
                ended.setdefault(folder, set()).add(name)
        elif kind == "F":
            folder, inode, size, name = (next(fields) for _ in range(4))
            if folder in files and _OURS.fullmatch(name):
                files[folder][name] = (inode, int(size))
    return {Path(f): Listed(found, frozenset(ended.get(f, ()))) for f, found in files.items()}


def wanted(listed: Listed, brought: Mapping[str, Brought]) -> list[Wanted]:
    """Say what has to be fetched; exit files are the last.

    An exit file that is new is a reason to look into every file: what the filesystem there tells
    of their sizes may be older than it.
    """
    new_ends = {
        name
        for name in listed.ended & listed.files.keys()
        if name not in brought or brought[name].inode != listed.files[name][0]
    }
    found = []
    for name, (inode, size) in listed.files.items():
        if _EXIT.fullmatch(name):
            continue
        known = brought.get(name)
        offset = known.offset if known is not None and known.inode == inode else 0
        if known is not None and size < known.offset and known.inode == inode:
            offset = 0
        if _LOG.fullmatch(name):
            piece = _of_log(name, inode, offset, size, over=bool(new_ends))
        else:
            piece = Wanted(name, inode, offset)
        is_new = known is None or known.inode != inode or size != known.offset
        if piece is not None and (is_new or new_ends):
            found.append(piece)
    return found + [Wanted(name, listed.files[name][0], 0) for name in sorted(new_ends)]


def _of_log(name: str, inode: str, offset: int, size: int, *, over: bool) -> Wanted | None:
    if over:
        end = size - _LOG_END_BYTES if size > LONGEST_LOG_BYTES else 0
        return Wanted(name, inode, max(offset, end))
    if offset >= LONGEST_LOG_BYTES:
        return None
    return Wanted(name, inode, offset, LONGEST_LOG_BYTES - offset)


def sending_script(pieces: Iterable[tuple[Path, Wanted]]) -> str:
    """Give the script that sends pieces, each after a line with its number and length."""
    lines = [
        "send() {",
        '  size=$(stat -Lc %s -- "$2" 2>/dev/null) || size=-1',
        "  n=$(( size - $3 ))",
        '  if [ "$4" -ge 0 ] && [ "$n" -gt "$4" ]; then n=$4; fi',
        '  if [ "$size" -lt "$3" ]; then n=-1; fi',
        '  printf "%d %d\\n" "$1" "$n"',
        '  if [ "$n" -gt 0 ]; then tail -c "+$(( $3 + 1 ))" -- "$2" | head -c "$n"; fi',
        '  printf "\\n"',
        "}",
    ]
    for number, (folder, piece) in enumerate(pieces):
        path = shlex.quote(str(folder / piece.name))
        lines.append(f"send {number} {path} {piece.offset} {piece.limit}")
    return "\n".join([*lines, "exit 0"])


def receive(
    stream: BinaryIO, number: int, here: Path, piece: Wanted, known: Brought | None
) -> Brought | None:
    """Take the next piece from a stream into a file here.

    Returns
    -------
    Brought | None
        What is here of it now; None where there is nothing any more.

    Raises
    ------
    LaunchError
        The stream is not what was asked for.
    """
    head = stream.readline().split()
    if len(head) != 2 or head[0] != b"%d" % number:  # noqa: PLR2004
        raise LaunchError(f"{piece.name} was not sent as it was asked for", transient=True)
    count = int(head[1])
    found = None if count < 0 else _write(stream, count, here / piece.name, piece, known)
    if stream.read(1) != b"\n":
        raise LaunchError(f"{piece.name} was cut while it was sent", transient=True)
    return found


def _write(
    stream: BinaryIO, count: int, path: Path, piece: Wanted, known: Brought | None
) -> Brought:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    length = known.length if known is not None and known.inode == piece.inode else 0
    if piece.offset == 0 or known is None:
        target = path.parent / f".{path.name}.part"
        with target.open("wb") as file:
            length = _copy(stream, file, count)
        target.replace(path)
        return Brought(piece.inode, piece.offset + count, length)
    with path.open("r+b") as file:
        file.truncate(length)  # what a process that was killed had begun to add
        file.seek(length)
        if piece.offset > known.offset:
            length += file.write(
                f"\n[{piece.offset - known.offset} bytes are only in the log there]\n".encode()
            )
        length += _copy(stream, file, count)
    return Brought(piece.inode, piece.offset + count, length)


def _copy(stream: BinaryIO, file: BinaryIO, count: int) -> int:
    left = count
    while left:
        chunk = stream.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise LaunchError("the connection ended while a file was sent", transient=True)
        file.write(chunk)
        left -= len(chunk)
    return count
