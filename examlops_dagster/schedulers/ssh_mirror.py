"""Brings what jobs write on another host into their folders here, as it comes.

One command an interval lists the files of all jobs of this process, and a second one, only where
something is new, fetches what is new by offset. The exit file is listed before all else and
fetched after all else: when it is here, so is what the job wrote before it. What was brought is
noted in the folder, so that several processes can go on where another stopped.
"""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path

from filelock import FileLock, Timeout

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.far_end import HERE, FarEnd
from examlops_dagster.schedulers.folder import JobFolder, read_json, write_json
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_files import (
    Brought,
    Listed,
    Wanted,
    listing_script,
    read_listing,
    receive,
    sending_script,
    wanted,
)

MIRROR_FILE = "mirror.json"
INTERVAL_SECONDS = 1.0
_LONGEST_INTERVAL_SECONDS = 30.0
_SHARE = 3
"""Of the time at most a third is spent with asking."""
_FORGET_SECONDS = 30.0
_LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 90.0

_log = logging.getLogger(__name__)


class Mirror:
    """Keeps the folders of jobs up to date, in a thread that ends when nobody asks any more.

    Parameters
    ----------
    runner
        Runs the commands there.
    lock
        File by which processes take turns.
    """

    def __init__(self, runner: SshRunner, lock: Path) -> None:
        self._runner = runner
        self._lock = lock
        self._asked: dict[Path, tuple[Path, float]] = {}
        self._looked: dict[Path, float] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self.trouble = ""
        """Why the last look failed; empty if it did not."""

    def bring(self, here: Path, there: Path) -> None:
        """Have what is new of a folder brought from now on, for a while; takes no time."""
        with self._guard:
            self._asked[here] = (there, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._go_on, name="examlops-mirror", daemon=True
                )
                self._thread.start()

    def is_current(self, here: Path, since: float) -> bool:
        """Tell whether all is here that was there at a time of the monotonic clock."""
        with self._guard:
            return self._looked.get(here, -math.inf) >= since

    def look(self, here: Path, there: Path) -> None:
        """Bring a folder, and wait for it.

        Raises
        ------
        LaunchError
            ``transient=True``: it could not be looked at.
        """
        since = time.monotonic()
        while not self.is_current(here, since):
            self.bring(here, there)
            if time.monotonic() - since > _LOOK_SECONDS:
                raise LaunchError(
                    f"what the job wrote in {there} cannot be looked at: "
                    f"{self.trouble or 'no answer'}",
                    transient=True,
                )
            time.sleep(_POLL_SECONDS)

    def touch(self, there: Path) -> None:
        """Make an empty file there.

        Raises
        ------
        LaunchError
            ``transient=True``: it could not be made.
        """
        folder, file = shlex.quote(str(there.parent)), shlex.quote(str(there))
        reply = self._runner.run(f"[ ! -d {folder} ] || : >> {file}")
        reply.stdout.close()
        if reply.code:
            raise LaunchError(f"{there} cannot be made: {reply.stderr}", transient=True)

    def _go_on(self) -> None:
        while True:
            now = time.monotonic()
            with self._guard:
                self._asked = {
                    here: (there, at)
                    for here, (there, at) in self._asked.items()
                    if now - at <= _FORGET_SECONDS and here.is_dir()
                }
                self._looked = {h: at for h, at in self._looked.items() if h in self._asked}
                if not self._asked:
                    self._thread = None
                    return
                folders = {there: here for here, (there, _) in self._asked.items()}
            time.sleep(self._turn(folders))

    def _turn(self, folders: Mapping[Path, Path]) -> float:
        """Take one look, and give the seconds until the next."""
        started = time.monotonic()
        try:
            with FileLock(self._lock, timeout=_LOCK_SECONDS, mode=0o600):
                started = time.monotonic()
                self._round(folders)
        except Timeout:  # another process brings its own at this moment
            return _POLL_SECONDS
        except LaunchError as error:
            return self._failed(str(error))
        except OSError as error:
            return self._failed(f"what jobs wrote cannot be kept here: {error}")
        with self._guard:
            self._looked.update(dict.fromkeys(folders.values(), started))
        self._failures, self.trouble = 0, ""
        return max(INTERVAL_SECONDS, (_SHARE - 1) * (time.monotonic() - started))

    def _round(self, folders: Mapping[Path, Path]) -> None:
        reply = self._runner.run(listing_script(folders))
        with reply.stdout as file:
            if reply.code:
                raise LaunchError(f"the folders of jobs cannot be listed: {reply.stderr}")
            listed = read_listing(file.read())
        self._fetch(folders, listed)

    def _failed(self, why: str) -> float:
        self._failures += 1
        self.trouble = why
        if self._failures == 1:
            _log.warning("%s; what jobs write comes later", why)
        return min(INTERVAL_SECONDS * 2.0 ** min(self._failures, 10), _LONGEST_INTERVAL_SECONDS)

    def _fetch(self, folders: Mapping[Path, Path], listed: Mapping[Path, Listed]) -> None:
        state: dict[Path, dict[str, Brought]] = {}
        pieces: list[tuple[Path, Wanted]] = []
        size = 0
        for there, found in listed.items():
            if there not in folders:
                continue
            known = state[there] = _read_state(folders[there])
            for name in known.keys() - found.files.keys():  # an attempt that was started again
                (folders[there] / name).unlink(missing_ok=True)
                del known[name]
            new = wanted(found, known)
            size += sum(max(0, found.files[piece.name][1] - piece.offset) for piece in new)
            pieces.extend((there, piece) for piece in new)
        if not pieces:
            return
        reply = self._runner.run(sending_script(pieces), size=size)
        try:
            with reply.stdout as stream:
                for number, (there, piece) in enumerate(pieces):
                    known = state[there]
                    got = receive(stream, number, folders[there], piece, known.get(piece.name))
                    known.pop(piece.name, None)
                    if got is not None:
                        known[piece.name] = got
        finally:
            for there in {there for there, _ in pieces}:
                write_json(
                    folders[there] / MIRROR_FILE,
                    {name: astuple(brought) for name, brought in state[there].items()},
                )


class MirroredFolder(JobFolder):
    """The folder of a job whose filesystem is not ours; see `JobFolder`."""

    def __init__(
        self,
        path: Path,
        there: Path,
        mirror: Mirror,
        index: int | None = None,
        *,
        far_end: FarEnd = HERE,
    ) -> None:
        super().__init__(path, index, there=there, far_end=far_end)
        self._mirror = mirror

    @property
    def has_run(self) -> bool:
        """See JobFolder; an answer that is not to be had is no answer."""
        self.fetch()
        return super().has_run

    def _mark(self, name: str) -> None:
        self._mirror.touch(self.there / name)

    def refresh(self) -> None:
        """See JobFolder."""
        self._mirror.bring(self.path, self.there)

    def fetch(self) -> None:
        """See JobFolder."""
        self._mirror.look(self.path, self.there)

    def is_current(self, since: float) -> bool:
        """See JobFolder."""
        return self._mirror.is_current(self.path, since)


def _read_state(here: Path) -> dict[str, Brought]:
    """Read what was brought before; a file that is gone since is none."""
    found = read_json(here / MIRROR_FILE)
    if not isinstance(found, dict):
        return {}
    return {
        name: Brought(str(inode), int(offset), int(length))
        for name, (inode, offset, length) in found.items()
        if (here / name).exists()
    }
