"""The process that stands for a cluster: runs one job of `MockScheduler` to its end.

Started as a script, ``python mock_supervisor.py FOLDER``, in a session of its own, so that it
outlives who submitted. Standard library only: it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GRACE_SECONDS = 5.0
LOOK_SECONDS = 0.02
WAITING_LOOK_SECONDS = 0.5
STATE_FILE = "mock.json"
CANCEL_FILE = "mock-cancel"


class Supervisor:
    """Runs the tasks of one job side by side, each in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = json.loads((folder / STATE_FILE).read_bytes())
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed_at: dict[str, float] = {}
        self.slots: list[Any] = []
        self.looked_at = 0.0

    def run(self) -> None:
        """Wait for a slot, run the tasks, and write down how each of them ended."""
        self.state["pid"] = os.getpid()
        self.write()
        while not self.has_slot():
            for name in self.waiting():
                if self.is_cancelled(name):
                    self.state["tasks"][name].update(state="CANCELLED", ended_at=time.time())
                    self.write()
            if not self.waiting():
                return
            time.sleep(LOOK_SECONDS)
        while self.running or self.waiting():
            self.start_some()
            self.look()
            time.sleep(LOOK_SECONDS)

    def waiting(self) -> list[str]:
        """Give the tasks that have not started."""
        return [name for name, t in self.state["tasks"].items() if t["state"] == "PENDING"]

    def start_some(self) -> None:
        """Start what may run at once; what was cancelled before is never started."""
        is_full = len(self.running) >= self.state["at_once"]
        if is_full and time.time() < self.looked_at + WAITING_LOOK_SECONDS:
            return
        self.looked_at = time.time()
        changed = False
        for name in self.waiting():
            if self.is_cancelled(name):
                self.state["tasks"][name].update(state="CANCELLED", ended_at=time.time())
            elif len(self.running) < self.state["at_once"]:
                self.start(name)
            else:
                continue
            changed = True
        if changed:
            self.write()

    def start(self, name: str) -> None:
        """Start one task; ``name`` is its index, empty for a job by itself."""
        suffix = f".{name}" if name else ""
        environment = {**os.environ, **({"EXAMLOPS_ARRAY_INDEX": name} if name else {})}
        task = self.state["tasks"][name]
        with (
            (self.folder / f"stdout{suffix}.log").open("ab") as stdout,
            (self.folder / f"stderr{suffix}.log").open("ab") as stderr,
        ):
            self.running[name] = subprocess.Popen(
                ["bash", self.state["script"]],  # noqa: S607 - from PATH, as the shebang has it
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        task.update(state="RUNNING", started_at=time.time(), pid=self.running[name].pid)

    def look(self) -> None:
        """Take the ended away, and end what has to end."""
        now = time.time()
        limit = self.state["limit_seconds"]
        for name, process in list(self.running.items()):
            task = self.state["tasks"][name]
            code = process.poll()
            if code is not None:
                del self.running[name]
                kill(process.pid, signal.SIGKILL)  # what it left behind
                task.update(ended_at=now, exit_code=code if code >= 0 else 128 - code)
                task["state"] = task.pop("ending", "COMPLETED" if code == 0 else "FAILED")
                self.write()
                continue
            if "ending" not in task and self.is_cancelled(name):
                task["ending"] = "CANCELLED"
            elif "ending" not in task and limit is not None and now - task["started_at"] > limit:
                task["ending"] = "TIMEOUT"
            if "ending" in task:
                if name not in self.killed_at:
                    self.killed_at[name] = now
                    kill(process.pid, signal.SIGTERM)
                elif now - self.killed_at[name] > GRACE_SECONDS:
                    kill(process.pid, signal.SIGKILL)

    def is_cancelled(self, name: str) -> bool:
        """Whether somebody asked for the end of a task."""
        return (self.folder / f"{CANCEL_FILE}{f'.{name}' if name else ''}").exists()

    def has_slot(self) -> bool:
        """Take one of the slots of the cluster, if it has a number of them."""
        for number in range(self.state["slots"] or 0):
            file = Path(self.state["spool"], f"slot-{number}").open("ab")  # noqa: SIM115 - held
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(file.fileno(), False)
                self.slots.append(file)
                return True
            file.close()
        return not self.state["slots"]

    def write(self) -> None:
        """Write the state, whole or not at all."""
        part = self.folder / f".{STATE_FILE}.part"
        part.write_text(json.dumps(self.state), encoding="utf-8")
        part.replace(self.folder / STATE_FILE)


def kill(session: int, number: signal.Signals) -> None:
    """Send a signal to every process of a session, in whatever process groups they are."""
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), number)
    with contextlib.suppress(OSError):
        os.killpg(session, number)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Supervisor(Path(sys.argv[1])).run()
