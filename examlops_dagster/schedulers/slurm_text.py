"""What Slurm's words mean: states, reasons, exit codes, refusals.

Sources: SchedMD's job_state_codes page, what Slurm 22.05 really answers, and the public reports
of launchers that read it wrongly (named where they matter).
"""

from __future__ import annotations

import logging
import re
from datetime import datetime, timezone

from examlops_dagster.schedulers.base import SIGNALLED, JobState, JobStatus
from examlops_dagster.schedulers.slurm_rows import Row

_log = logging.getLogger(__name__)

STATES = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "POWER_UP_NODE": JobState.PENDING,
    "EXPEDITING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETING": JobState.COMPLETING,
    "STAGE_OUT": JobState.COMPLETING,
    "UPDATE_DB": JobState.COMPLETING,
    "LAUNCH_FAILED": JobState.COMPLETING,
    "RECONFIG_FAIL": JobState.COMPLETING,
    "REQUEUE_HOLD": JobState.STUCK,
    "SPECIAL_EXIT": JobState.STUCK,
    "RESV_DEL_HOLD": JobState.STUCK,
    "REVOKED": JobState.UNKNOWN,
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.DEADLINE,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "CANCELLED": JobState.CANCELLED,
    "BOOT_FAIL": JobState.BOOT_FAIL,
    "NODE_FAIL": JobState.NODE_FAIL,
    "PREEMPTED": JobState.PREEMPTED,
}
"""REVOKED means that a sibling in a federation runs elsewhere. LAUNCH_FAILED is a flag until the
base state is final, which is often "requeued and held"."""

_HELD = frozenset(
    {
        "jobhelduser", "jobheldadmin", "jobholdmaxrequeue", "job requeued in held state",
        "launch failed requeued held", "reservationdeleted",
    }
)  # fmt: skip
"""A person has to release it (burrmill#15: it shows as PENDING)."""

_NEVER = frozenset(
    {
        "DependencyNeverSatisfied", "BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit",
        "PartitionConfig", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed",
    }
)  # fmt: skip
_NEVER_PATTERN = re.compile(r"(QOSMaxWall|AssocMaxWall)\w*|(QOS|Assoc)Max\w*PerJob(Limit)?")
"""Not in it, since they clear: ReqNodeNotAvail (reframe#1049), DOWN nodes, PartitionDown."""

CANNOT_OPEN_OUTPUT = 53

_SUBMITTED = re.compile(r"Submitted batch job (\d+)(?: on cluster (\S+))?")
_PARSABLE = re.compile(r"(\d+)(?:;(\S+))?")
_NO_ANSWER = re.compile(
    r"unable to contact|socket timed out|timed out|connection (refused|reset)|connect failure"
    r"|communication connection|authentication error|munge|zero bytes were transmitted"
    r"|transport endpoint|temporarily unable|resource temporarily unavailable|broken pipe"
    r"|standby|unexpected message|configuration source|process configuration file"
    r"|no route to host|network is unreachable|interrupted system call|slurm_persist_conn",
    re.IGNORECASE,
)
_warned: set[str] = set()


def read_submit(stdout: str) -> tuple[str, str] | None:
    """Find job id and cluster in what sbatch, or a site's wrapper of it, printed.

    Banner lines may come first, ``--parsable`` may be ignored (dask-jobqueue#209, #227), and the
    cluster's name is no id (snakemake-executor-plugin-slurm#121).
    """
    said = _SUBMITTED.search(stdout)
    if said:
        return said[1], said[2] or ""
    for line in reversed(stdout.splitlines()):
        plain = _PARSABLE.fullmatch(line.strip())
        if plain:
            return plain[1], plain[2] or ""
    return None


def is_no_answer(text: str) -> bool:
    """Say whether a complaint means that the controller or the database was not reached."""
    return not text.strip() or _NO_ANSWER.search(text) is not None


def read_time(text: str) -> datetime | None:
    """Read a time that was printed with TZ=UTC; None for N/A, Unknown and the like."""
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def read_word(text: str) -> str:
    """Give the state in ``CANCELLED by 0``, ``OUT_OF_ME+`` and the like (galaxy PR 6007)."""
    words = text.split()
    word = words[0] if words else ""
    if word.endswith("+"):
        whole = [known for known in STATES if known.startswith(word[:-1])]
        return whole[0] if len(whole) == 1 else word[:-1]
    return word


def status_of(row: Row, now: datetime) -> JobStatus:
    """Say what a row means, by itself."""
    word = read_word(row.state)
    state = STATES.get(word)
    reason = "" if row.reason in ("None", "(null)") else row.reason.strip()
    if state is None:
        if word not in _warned:
            _warned.add(word)
            _log.warning("Slurm shows a state that is not known here: %s (%s)", word, row.state)
        state, reason = JobState.UNKNOWN, f"Slurm's state {word!r} is not known here"
    elif word == "REVOKED":
        reason = "it runs on another cluster of the federation"
    never = False
    if state is JobState.PENDING:
        first = reason.split(",")[0].strip()
        if reason.replace("_", " ").lower() in _HELD:
            state = JobState.STUCK
        never = first in _NEVER or _NEVER_PATTERN.fullmatch(first) is not None
    elif state is JobState.CANCELLED:
        reason = " ".join(filter(None, (reason, *row.state.split()[1:])))
    elif state is JobState.COMPLETED and row.exit not in (None, (0, 0)):
        state = JobState.FAILED  # success only with 0:0
    code = _exit_code(state, row.exit)
    if state is JobState.FAILED:
        reason = _explained(reason, row.exit)
    ran = state.final or state in (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)
    return JobStatus(
        state,
        native=word,
        reason=reason,
        never_starts=never,
        exit_code=code,
        started_at=read_time(row.started) if ran else None,
        ended_at=read_time(row.ended) if state.final else None,
        nodes="" if row.nodes in ("None assigned", "(null)") else row.nodes,
        seen_at=now,
    )


def _exit_code(state: JobState, ended: tuple[int, int] | None) -> int | None:
    """Give the program's exit code; TIMEOUT and CANCELLED carry 0:0, which says nothing."""
    if state is JobState.COMPLETED:
        return 0
    if ended is None or ended == (0, 0) or state is not JobState.FAILED:
        return None
    code, killed = ended
    if killed == CANNOT_OPEN_OUTPUT:
        return None
    return SIGNALLED + killed if killed else code


def _explained(reason: str, ended: tuple[int, int] | None) -> str:
    if ended is None:
        return reason
    code, killed = ended
    if killed == CANNOT_OPEN_OUTPUT:
        said = (
            "it was not started: the node could not open its folder or the files of its output "
            "(exit code 0:53); is the folder on a filesystem that the nodes share?"
        )
    elif killed:
        said = f"it was killed by signal {killed} (memory is a frequent cause)"
    else:
        said = f"exit code {code}"
    return f"{reason}: {said}" if reason else said
