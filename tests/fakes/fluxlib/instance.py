"""The state of a fake instance: a folder with one file for each job."""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from pathlib import Path

from fluxlib import placing

HOSTS = ("node1", "node2")
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class NoInstanceError(Exception):
    """Nothing is reachable."""


class Instance:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.jobs_folder = self.folder / "jobs"

    @classmethod
    def connect(cls):
        folder = os.environ.get("FAKE_FLUX")
        if not folder or not Path(folder).is_dir():
            raise NoInstanceError
        found = cls(folder)
        found.jobs_folder.mkdir(exist_ok=True)
        return found

    @contextlib.contextmanager
    def lock(self):
        with (self.folder / "lock").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def new_ids(self, count):
        """Ids are milliseconds since the birth of the instance, so another one repeats them."""
        birth = self.folder / "birth"
        if not birth.exists():
            write(birth, str(time.time() - 0.5))
        with self.lock():
            last = self.folder / "last"
            number = int((time.time() - float(birth.read_text())) * 1000) << 24
            number = max(number, int(last.read_text()) + (1 << 10) if last.exists() else 0)
            ids = [number + (n << 10) for n in range(count)]
            write(last, str(ids[-1]))
        return ids

    def path(self, job_id, suffix=".json"):
        return self.jobs_folder / f"{job_id}{suffix}"

    def load(self, job_id):
        try:
            return json.loads(self.path(job_id).read_text())
        except (OSError, ValueError):
            return None

    def save(self, job):
        write(self.path(job["id"]), json.dumps(job))

    def all(self):
        ids = sorted((int(p.stem) for p in self.jobs_folder.glob("*.json")), reverse=True)
        return [job for job in map(self.load, ids) if job is not None]

    def order(self, job_id, **what):
        """Tell the supervisor of a job to do something."""
        with self.lock(), self.path(job_id, ".orders").open("a") as file:
            file.write(json.dumps(what) + "\n")

    def orders(self, job_id):
        path = self.path(job_id, ".orders")
        if not path.exists():
            return []
        with self.lock():
            lines = path.read_text().splitlines()
            path.unlink()
        return [json.loads(line) for line in lines]

    def lost(self):
        """Give the ranks whose hosts a test has written into the file `lost`."""
        path = self.folder / "lost"
        names = path.read_text().split() if path.exists() else []
        return {rank for rank, host in enumerate(HOSTS) if host in names}

    def take(self, asked):
        """Take cores and GPUs of nodes, if they are free."""
        with self.lock():
            free, lost = self.free(), self.lost()
            room = placing.place(asked, {r: has for r, has in free.items() if r not in lost})
            if room is not None:
                left = {r: _less(has, room.get(r, ((), ()))) for r, has in free.items()}
                write(self.folder / "free", json.dumps(left))
            return room

    def give_back(self, room):
        with self.lock():
            free = self.free()
            for rank, has in room.items():
                free[int(rank)] = [sorted(a + b) for a, b in zip(free[int(rank)], has, strict=True)]
            write(self.folder / "free", json.dumps(free))

    def free(self):
        path = self.folder / "free"
        if path.exists():
            return {int(rank): has for rank, has in json.loads(path.read_text()).items()}
        return {rank: placing.whole_node() for rank in range(len(HOSTS))}


def _less(has, taken):
    return [[n for n in a if n not in b] for a, b in zip(has, taken, strict=True)]


def write(path, text):
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)


def event(job, name, now=None, **context):
    now = time.time() if now is None else now
    entry = {"timestamp": now, "name": name}
    if context:
        entry["context"] = context
    job["events"].append(entry)
    return now


def ascii_ids():
    locale = next(
        (os.environ[n] for n in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(n)), "C.UTF-8"
    )
    return locale in ("C", "POSIX") or os.environ.get("FLUX_F58_FORCE_ASCII") == "1"


def f58(number, *, plain=None):
    text = "" if number else "1"
    while number:
        number, digit = divmod(number, 58)
        text = BASE58[digit] + text
    return ("f" if (ascii_ids() if plain is None else plain) else "ƒ") + text


def read_id(text):
    """Give the number of an id in any form, or None."""
    try:
        if text.startswith("0x"):
            return int(text, 16)
        if text.isdecimal():
            return int(text)
        if text[:1] in ("f", "ƒ") and len(text) > 1:
            number = 0
            for letter in text[1:]:
                number = number * 58 + BASE58.index(letter)
            return number
    except ValueError:
        pass
    return None
