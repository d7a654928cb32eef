"""A scheduler without a cluster: real processes that outlive who submitted them.

For trying out, and for tests. Each job has a supervisor process, which keeps its state in
``mock.json`` of the job's folder; the ids lie in a spool folder, ``EXAMLOPS_HPC_WORKDIR``/mock or
that of the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus, Submission
from examlops_dagster.schedulers.folder import cache_folder, read_json
from examlops_dagster.schedulers.mock_supervisor import CANCEL_FILE, STATE_FILE
from examlops_dagster.schedulers.whole_numbers import whole_number
from examlops_dagster.settings import HPC_WORKDIR, MOCK_SLOTS

START_SECONDS = 60.0
"""After which a job whose supervisor never said a word is not known any more."""

_SUPERVISOR = str(Path(__file__).with_name("mock_supervisor.py"))
_DETACH = '"$@" </dev/null >/dev/null 2>&1 &'


class MockScheduler:
    """Runs jobs as processes of this machine.

    Parameters
    ----------
    environment
        ``EXAMLOPS_HPC_WORKDIR``, ``XDG_CACHE_HOME`` and ``EXAMLOPS_MOCK_SLOTS``.
    """

    name = "mock"
    is_free_to_ask = True
    """Its `poll` reads files: nobody has to spare it questions."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        named = environment.get(HPC_WORKDIR)
        root = Path(named).expanduser().absolute() if named else cache_folder(environment)
        self.spool = root / "mock"
        self.slots = whole_number(environment, MOCK_SLOTS, 0)

    def submit(self, submission: Submission) -> list[JobRef]:
        """See Scheduler; resources are taken and do nothing, but for the time limit."""
        submitted_at = datetime.now(timezone.utc)
        self.spool.mkdir(parents=True, exist_ok=True)
        job_id = self._new_id(submission)
        indices: list[int | None] = [None]
        if submission.array is not None:
            indices = [n for n in range(submission.array) if n not in submission.submitted]
        tasks = ["" if index is None else str(index) for index in indices]
        state = {
            "token": submission.token,
            "job_id": job_id,
            "script": str(submission.script),
            "spool": str(self.spool),
            "slots": self.slots,
            "at_once": submission.at_once or 2 * (os.cpu_count() or 1),
            "limit_seconds": submission.time_limit_seconds,
            "submitted_at": time.time(),
            "tasks": {name: {"state": "PENDING"} for name in tasks},
        }
        try:
            (submission.folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
            # through a shell that leaves at once: nobody has to wait for the supervisor
            subprocess.run(
                ["/bin/sh", "-c", _DETACH, "sh", sys.executable, "-I", "-S", _SUPERVISOR,
                 str(submission.folder)],
                env=dict(submission.environment) or None,
                cwd=submission.folder,
                check=True,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            (self.spool / f"{job_id}.json").unlink(missing_ok=True)
            raise LaunchError(f"its process cannot be started: {error}") from error
        ref = JobRef(self.name, job_id, submission.token, submitted_at)
        return [replace(ref, index=index) for index in indices]

    def find(self, token: str, since: datetime) -> list[JobRef]:
        """See Scheduler."""
        for job_id, entry in self._entries():
            if entry.get("token") == token and entry.get("at", 0) >= since.timestamp() - 1:
                at = datetime.fromtimestamp(entry["at"], timezone.utc)
                ref = JobRef(self.name, job_id, token, at)
                state = read_json(Path(entry["folder"]) / STATE_FILE)
                names = list(state["tasks"]) if isinstance(state, dict) else []
                return [replace(ref, index=int(name) if name else None) for name in names]
        return []

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """See Scheduler."""
        now = datetime.now(timezone.utc)
        found = {}
        states: dict[tuple[str, str], Any] = {}
        for job in jobs:
            whole = job.job_id, job.token
            if whole not in states:
                states[whole] = self._state(job)
            found[job] = replace(_status(job, states[whole]), seen_at=now)
        return found

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """See Scheduler."""
        for job in jobs:
            folder = self._folder(job)
            if folder is not None:
                task = "" if job.index is None else f".{job.index}"
                with suppress(OSError):
                    (folder / f"{CANCEL_FILE}{task}").touch()

    def _new_id(self, submission: Submission) -> str:
        number = max((int(job_id) for job_id, _ in self._entries(read=False)), default=0)
        entry = {
            "token": submission.token,
            "folder": str(submission.folder),
            "at": time.time(),
        }
        while True:
            number += 1
            part = self.spool / f".{submission.token}"
            part.write_text(json.dumps(entry), encoding="utf-8")
            try:
                os.link(part, self.spool / f"{number}.json")  # whole, and only if it is free
            except FileExistsError:
                continue
            finally:
                part.unlink()
            return str(number)

    def _entries(self, *, read: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in self.spool.glob("*.json"):
            if path.stem.isdigit():
                found = read_json(path) if read else {}
                if isinstance(found, dict):
                    yield path.stem, found

    def _folder(self, job: JobRef) -> Path | None:
        entry = read_json(self.spool / f"{job.job_id}.json")
        if not isinstance(entry, dict) or entry.get("token") != job.token:
            return None
        return Path(entry["folder"])

    def _state(self, job: JobRef) -> dict[str, Any] | None:
        folder = self._folder(job)
        state = read_json(folder / STATE_FILE) if folder is not None else None
        if not isinstance(state, dict):
            return None
        return {**state, "is_supervised": _is_supervised(state)}


def _status(job: JobRef, state: Mapping[str, Any] | None) -> JobStatus:
    if state is None:
        return JobStatus(JobState.UNKNOWN, reason="no such job")
    task = state["tasks"].get("" if job.index is None else str(job.index))
    if task is None:
        return JobStatus(JobState.UNKNOWN, reason="no such task")
    word = task["state"]
    found = JobState[word]
    reason = ""
    if not found.final and not state["is_supervised"]:
        return JobStatus(JobState.UNKNOWN, word, "its supervisor process is gone")
    if found is JobState.PENDING:
        reason = "Resources" if state["slots"] or job.index is not None else ""
    return JobStatus(
        found,
        word,
        reason,
        exit_code=task.get("exit_code"),
        started_at=_moment(task.get("started_at")),
        ended_at=_moment(task.get("ended_at")),
        nodes="localhost" if "started_at" in task else "",
    )


def _is_supervised(state: Mapping[str, Any]) -> bool:
    pid = state.get("pid")
    if pid is None:
        return time.time() - float(state["submitted_at"]) < START_SECONDS
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _exists(pid)
    except OSError:
        return True
    return os.fsencode(_SUPERVISOR) in words


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
