"""What Flux's answers mean: ids, states, results, exceptions. Measured with flux-core 0.88.0."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import SIGNALLED, JobState, JobStatus

_log = logging.getLogger(__name__)

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_F58 = re.compile(rf"[ƒf]([{_BASE58}]+)")
_NO_ANSWER = re.compile(
    r"unable to connect|flux_open|connection (refused|reset)|no route to host|timed out"
    r"|resource temporarily unavailable|broken pipe|host is unreachable",
    re.IGNORECASE,
)
_ACTIVE = {
    "DEPEND": JobState.PENDING,
    "PRIORITY": JobState.PENDING,
    "SCHED": JobState.PENDING,
    "RUN": JobState.RUNNING,
    "CLEANUP": JobState.COMPLETING,
}
_RESULTS = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
}
_CANNOT_START = ("alloc", "dependency")
"""Exceptions of a request that cannot be met: Flux takes it, and ends it at once."""
_NODE_FAILED = re.compile(
    r"node failure on|shell exited with unkillable processes on|job shell exec error on"
    r"|sdexec constraint check failed on|\w+ service is not loaded on"
)
"""How the note of an exception ``exec`` begins where the node, not the program, is to blame.

Measured: node failure. The others are those of job-exec in flux-core 0.88.0.
"""
_BY_NODE = re.compile(r"\bon (?:broker )?(\S+) \((?:shell )?ranks? [0-9,\[\]-]+\)")
BROKER_LINE = re.compile(r"\w{3} [ \d]?\d [\d:.]+ \S+ \d{4} broker\.\w+\[\d+\]: ")
"""How the broker of a nested instance begins what it adds to stderr of a job."""
_warned: set[str] = set()


def read_id(text: str) -> str | None:
    """Give the decimal form of an id in f58 (``ƒ…``, ``f…``), decimal or hex; None for no id.

    The ƒ breaks in the C locale (flux-core#3199), so the decimal form is what is kept.
    """
    word = text.strip()
    if word.isdecimal():
        return str(int(word))
    if re.fullmatch(r"0x[0-9a-fA-F]+", word):
        return str(int(word, 16))
    found = _F58.fullmatch(word)
    if found is None:
        return None
    number = 0
    for letter in found[1]:
        number = number * 58 + _BASE58.index(letter)
    return str(number)


def is_no_answer(text: str) -> bool:
    """Say whether a complaint means that the instance was not reached; rc 1 means many things."""
    return not text.strip() or _NO_ANSWER.search(text) is not None


def read_jobs(text: str) -> list[dict[str, Any]]:
    """Read ``flux jobs --json``: a list of jobs, or one job by itself.

    Raises
    ------
    LaunchError
        ``transient=True``: it is no JSON of Flux.
    """
    if not text.strip():
        return []
    try:
        found = json.loads(text)
    except ValueError as error:
        raise LaunchError(f"flux jobs printed no JSON: {error}", transient=True) from error
    jobs = (
        found.get("jobs", [found] if "id" in found else None) if isinstance(found, dict) else None
    )
    if not isinstance(jobs, list):
        raise LaunchError("flux jobs printed JSON without jobs", transient=True)
    return [job for job in jobs if isinstance(job, dict) and "id" in job]


def status_of(job: Mapping[str, Any], now: datetime) -> JobStatus:
    """Say what Flux tells of a job.

    The result decides, not the exit code, which a trap of the program changes (nextflow#5736),
    and an exception only with severity 0: but a job that lost a node which it could do without
    (those of a nested instance beyond the first), and failed, failed for that.
    """
    word, state, reason = _state(job)
    raised = _exception(job)
    nodes = str(job.get("nodelist") or "")
    if state is JobState.FAILED:
        state = _failure(raised)
    if state.blames_node:
        named = _BY_NODE.search(str(raised.get("note")))
        nodes = named[1] if named else nodes
    elif raised.get("severity") != 0:
        raised = {}
    if raised:
        said = (str(raised.get("type") or ""), str(raised.get("note") or "").strip())
        reason = ": ".join(filter(None, said))
    return JobStatus(
        state,
        native=word,
        reason=reason,
        never_starts=state is JobState.REFUSED,
        exit_code=_exit_code(job, state),
        started_at=_time(job.get("t_run")),
        ended_at=_time(job.get("t_inactive")) if state.final else None,
        nodes=nodes,
        seen_at=now,
    )


def _state(job: Mapping[str, Any]) -> tuple[str, JobState, str]:
    """Give Flux's word, our state and why it waits, of which the default scheduler says nothing."""
    inactive = job.get("state") == "INACTIVE"
    word = str(job.get("result" if inactive else "state") or job.get("state") or "")
    state = (_RESULTS if inactive else _ACTIVE).get(word)
    if state is None:
        if word not in _warned:
            _warned.add(word)
            _log.warning("Flux shows a state that is not known here: %r", word)
        return word, JobState.UNKNOWN, f"Flux's state {word!r} is not known here"
    if state is JobState.PENDING:
        waits = ", ".join(map(str, job.get("dependencies") or ()))
        if job.get("urgency") == 0:
            return word, JobState.STUCK, "held"
        return word, state, f"depends: {waits}" if waits else ""
    return word, state, ""


def _failure(raised: Mapping[str, Any]) -> JobState:
    """Say what a job that Flux calls FAILED failed of."""
    kind, is_fatal = raised.get("type"), raised.get("severity") == 0
    if kind == "node-failure":
        return JobState.NODE_FAIL
    if is_fatal and kind in _CANNOT_START:
        return JobState.REFUSED
    if is_fatal and kind == "exec" and _NODE_FAILED.match(str(raised.get("note"))):
        return JobState.NODE_FAIL
    if is_fatal and kind == "prolog":
        return JobState.BOOT_FAIL
    return JobState.FAILED


def _exception(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found = job.get("exception")
    return found if isinstance(found, Mapping) and found.get("occurred") else {}


def _exit_code(job: Mapping[str, Any], state: JobState) -> int | None:
    """Give the program's exit code; without a wait status it never ran, whatever is claimed."""
    if state is JobState.COMPLETED:
        return 0
    code = job.get("returncode")
    if state is not JobState.FAILED or not isinstance(code, int) or not code:
        return None
    return SIGNALLED - code if code < 0 else code


def _time(value: object) -> datetime | None:
    return datetime.fromtimestamp(value, timezone.utc) if isinstance(value, (int, float)) else None
