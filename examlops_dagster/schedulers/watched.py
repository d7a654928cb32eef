"""The file in which the processes of one host keep what a scheduler said of their jobs."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus
from examlops_dagster.schedulers.folder import cache_folder
from examlops_dagster.values import write_atomically

NOT_ASKED = JobStatus(JobState.UNKNOWN)
_FORMAT = 1
_CLUSTER_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "FLUX_URI")
"""That decide whom the commands of this host ask; over SSH those of the other host do."""


@dataclass(frozen=True)
class Entry:
    """What is known of one job.

    Attributes
    ----------
    wanted_at
        When a process last wanted to know, in seconds since the epoch.
    absent_at
        When the last answer knew nothing of it; None if the last one did.
    absent_seconds
        For how long no answer knew it.
    """

    status: JobStatus = NOT_ASKED
    wanted_at: float = 0.0
    absent_at: float | None = None
    absent_seconds: float = 0.0


@dataclass(frozen=True)
class Board:
    """All that the processes share; times in seconds since the epoch.

    Attributes
    ----------
    next_at
        Before which nobody asks again.
    failures
        Commands in a row that gave no answer.
    trouble
        What the last of them said; empty after an answer.
    """

    jobs: Mapping[JobRef, Entry] = field(default_factory=dict)
    asked_at: float = 0.0
    next_at: float = 0.0
    failures: int = 0
    trouble: str = ""


def board_path(
    scheduler: str, environment: Mapping[str, str], connection: Sequence[str] = ()
) -> Path:
    """Give the file that the processes of this user on this host share for one cluster.

    Parameters
    ----------
    connection
        All that makes up the one over which the cluster is reached; empty for none.
    """
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    root = (
        Path(runtime) / "examlops"
        if runtime and Path(runtime).is_dir()
        else cache_folder(environment)
    )
    named = connection or [environment.get(name, "") for name in _CLUSTER_VARIABLES]
    cluster = "\0".join(["ssh" if connection else "here", *named])
    digest = hashlib.sha256(cluster.encode(errors="surrogateescape")).hexdigest()[:12]
    return root / "watch" / f"{socket.gethostname()}-{os.getuid()}-{scheduler}-{digest}.json"


def read_board(path: Path, stamp: tuple[int, int] | None) -> tuple[Board, tuple[int, int]] | None:
    """Read the file; None where it is not there, damaged, or the one that was read before."""
    try:
        found = path.stat()
        new = (found.st_mtime_ns, found.st_ino)
        if new == stamp:
            return None
        text = json.loads(path.read_bytes())
        if text.get("format") != _FORMAT:
            return None
        jobs = {_job(item["job"]): _entry(item) for item in text["jobs"]}
        return Board(
            jobs, text["asked_at"], text["next_at"], text["failures"], text["trouble"]
        ), new
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_board(path: Path, board: Board) -> tuple[int, int] | None:
    """Write the file, whole or not at all; gives what `read_board` knows it by."""
    text = {
        "format": _FORMAT,
        "asked_at": board.asked_at,
        "next_at": board.next_at,
        "failures": board.failures,
        "trouble": board.trouble,
        "jobs": [_written(job, entry) for job, entry in board.jobs.items()],
    }
    write_atomically(path, json.dumps(text, separators=(",", ":")).encode())
    found = path.stat()
    return found.st_mtime_ns, found.st_ino


def _written(job: JobRef, entry: Entry) -> dict[str, Any]:
    status = entry.status
    return {
        "job": [job.scheduler, job.job_id, job.token, job.submitted_at.isoformat(), job.cluster,
                job.index, job.offset],
        "state": status.state.word,
        "native": status.native,
        "reason": status.reason,
        "never_starts": status.never_starts,
        "exit_code": status.exit_code,
        "times": [_iso(status.started_at), _iso(status.ended_at), _iso(status.seen_at)],
        "nodes": status.nodes,
        "wanted_at": entry.wanted_at,
        "absent_at": entry.absent_at,
        "absent_seconds": entry.absent_seconds,
    }  # fmt: skip


def _job(item: list[Any]) -> JobRef:
    scheduler, job_id, token, submitted_at, cluster, index, offset = item
    when = datetime.fromisoformat(submitted_at)
    return JobRef(scheduler, job_id, token, when, cluster, index, offset)


def _entry(item: Mapping[str, Any]) -> Entry:
    started, ended, seen = (datetime.fromisoformat(t) if t else None for t in item["times"])
    status = JobStatus(
        _STATES[item["state"]],
        item["native"],
        item["reason"],
        item["never_starts"],
        item["exit_code"],
        started,
        ended,
        item["nodes"],
        seen,
    )
    return Entry(status, item["wanted_at"], item["absent_at"], item["absent_seconds"])


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


_STATES = {state.word: state for state in JobState}
