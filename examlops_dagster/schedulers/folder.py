"""The folder of one job: where its files are, and how they are read while it runs elsewhere.

::

    run.sh                what the job was asked to run
    submit.json           the intent: token, asset, resources; written before the submit
    in/                   arguments of the call, values with their serializer
    out/                  what the function returned, or why it did not
    stdout.log stderr.log messages.jsonl outlets.jsonl exit.json told.json

Of a task of an array the names end in its index: ``in.3/``, ``exit.3.json``. Standard library
only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from examlops_dagster.schedulers.far_end import HERE, FarEnd
from examlops_dagster.settings import ASSET_JOB_DIR, HPC_REMOTE_WORKDIR
from examlops_dagster.values import write_atomically

TAIL_LINES = 20
_TAIL_BYTES = 1 << 16


def job_root(environment: Mapping[str, str]) -> Path:
    """Give the folder in which the folders of jobs are; shared with the nodes."""
    named = environment.get(HPC_REMOTE_WORKDIR) or environment.get(ASSET_JOB_DIR)
    if named:
        return Path(named).expanduser().absolute()
    return cache_folder(environment) / "asset-jobs"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Give the folder of this package below ``XDG_CACHE_HOME``."""
    home = environment.get("XDG_CACHE_HOME")
    root = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return root / "examlops"


@dataclass(frozen=True)
class Exit:
    """What run.sh wrote at its end.

    Attributes
    ----------
    code
        Of the program, as a shell counts: 128 and more for a signal.
    signal
        Name of the signal that the script itself got; empty for none.
    limit_reached
        Whether it was ended at its time limit.
    time
        Aware UTC datetime by the node's clock; None if it could not be read.
    host
        Name of the node.
    oom_kills
        Processes in its cgroup that were killed for memory meanwhile.
    """

    code: int
    signal: str = ""
    limit_reached: bool = False
    time: datetime | None = None
    host: str = ""
    oom_kills: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing speaks against a success, whatever the scheduler may still say."""
        return self.code == 0 and not self.signal and not self.oom_kills


class JobFolder:
    """The files of one job, or of one task of an array.

    Parameters
    ----------
    path
        Absolute.
    index
        Of a task of an array.
    there
        Where the job sees it; None for the same path.
    far_end
        To which it is submitted.
    """

    def __init__(
        self,
        path: Path,
        index: int | None = None,
        *,
        there: Path | None = None,
        far_end: FarEnd = HERE,
    ) -> None:
        self.path = path
        self.there = path if there is None else there
        self.far_end = far_end
        self._task = "" if index is None else f".{index}"

    @property
    def seen_there(self) -> JobFolder:
        """The same as the job sees it."""
        found = JobFolder(self.there)
        found._task = self._task
        return found

    def refresh(self) -> None:
        """Have what the job writes brought here, if its filesystem is not ours; takes no time."""

    def fetch(self) -> None:
        """Bring what the job wrote so far, and wait for it.

        Raises
        ------
        LaunchError
            The other host cannot be reached.
        """

    def is_current(self, since: float) -> bool:  # noqa: ARG002 - of folders that are copied
        """Tell whether all is here that was there at a time of the monotonic clock."""
        return True

    @property
    def is_task(self) -> bool:
        """Whether it is of a task, which shares it with others."""
        return bool(self._task)

    @property
    def script(self) -> Path:
        """The script that the scheduler starts."""
        return self.path / "run.sh"

    @property
    def intent(self) -> Path:
        """What was going to be submitted."""
        return self.path / "submit.json"

    @property
    def inputs(self) -> Path:
        """Folder of the arguments."""
        return self.path / f"in{self._task}"

    @property
    def outputs(self) -> Path:
        """Folder of the result."""
        return self.path / f"out{self._task}"

    @property
    def messages(self) -> Path:
        """File of Dagster Pipes messages."""
        return self.path / f"messages{self._task}.jsonl"

    @property
    def outlets(self) -> Path:
        """File to which programs append the datasets that they wrote, one JSON object a line."""
        return self.path / f"outlets{self._task}.jsonl"

    @property
    def told(self) -> Path:
        """File of how much of the messages the run that waits was told."""
        return self.path / f"told{self._task}.json"

    @property
    def stdout(self) -> Path:
        """Log of stdout."""
        return self.path / f"stdout{self._task}.log"

    @property
    def stderr(self) -> Path:
        """Log of stderr."""
        return self.path / f"stderr{self._task}.log"

    @property
    def exit_file(self) -> Path:
        """The record that the script writes at its end."""
        return self.path / f"exit{self._task}.json"

    @property
    def has_run(self) -> bool:
        """Whether there are traces of a start, whatever the scheduler still knows."""
        traces = (self.exit_file, self.outputs, self.messages, self.stdout)
        return any(path.exists() for path in traces)

    def withdraw(self) -> bool:
        """Keep a job that was given up from running its program, should it still come.

        A submit goes on without the process that asked for it: a killed one leaves its ``sbatch``.
        The script leaves a trace before it looks for this mark, so one of the two is seen.

        Returns
        -------
        bool
            Whether it has not started by now.

        Raises
        ------
        LaunchError
            The other host cannot be reached.
        """
        self._mark(f"withdrawn{self._task}")
        return not self.has_run

    def _mark(self, name: str) -> None:
        with suppress(OSError):  # of a folder that is gone: its script is as well
            (self.path / name).touch()

    def make(self) -> None:
        """Make the folder, for this user alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700)
        self.path.chmod(0o700)  # whatever the umask is

    def exit(self, token: str) -> Exit | None:
        """Read the exit record; None while there is none of this token."""
        found = read_json(self.exit_file)
        if not isinstance(found, dict) or found.get("token") != token:
            return None
        code = found.get("code")
        if not isinstance(code, int):
            return None
        try:
            time = datetime.fromisoformat(str(found.get("time")).replace("Z", "+00:00"))
        except ValueError:
            time = None
        return Exit(
            code,
            str(found.get("signal") or ""),
            bool(found.get("limit_reached")),
            time,
            str(found.get("host") or ""),
            int(found.get("oom_kills") or 0),
        )

    def last_lines(self, lines: int = TAIL_LINES) -> str:
        """Give the ends of stdout and stderr, each under its name; empty if there are none."""
        parts = []
        for path in (self.stdout, self.stderr):
            text = tail(path, lines)
            if text:
                parts.append(f"last lines of {path.name}:\n{text}")
        return "\n".join(parts)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a JSON file, whole or not at all; ``durable`` waits until it is on the disk."""
    # indented for who reads it, but for those of which each of a thousand tasks has one
    text = json.dumps(value, indent=1 if durable else None)
    write_atomically(path, text.encode(), durable=durable)


def read_json(path: Path) -> Any:
    """Read a JSON file; None where there is none, or none that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Give the last lines of a log, at most 64 KiB; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])
