"""Reads the lines in which Slurm's commands speak of jobs; what they mean says ``slurm_text``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SQUEUE_FORMAT = "%i|%T|%N|%S|%e|%V|%r|%j"
SACCT_FORMAT = "JobID,State%30,ExitCode,Submit,Start,End,NodeList,JobName"

_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([^\]]*)\]))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@dataclass(frozen=True)
class Row:
    """One line about a job, or about tasks of an array, from any of Slurm's commands.

    Attributes
    ----------
    job_id
        Of an array, the id of the whole.
    tasks
        Slurm's own numbers; None for a job by itself.
    open_ended
        Slurm cut the list of tasks short ("...").
    exit
        Code and signal, where it is told.
    """

    job_id: str
    tasks: tuple[range, ...] | None
    open_ended: bool
    name: str
    state: str
    reason: str = ""
    exit: tuple[int, int] | None = None
    submitted: str = ""
    started: str = ""
    ended: str = ""
    nodes: str = ""

    def covers(self, task: int | None) -> bool:
        """Say whether it speaks of this task (None: of the job by itself)."""
        if task is None or self.tasks is None:
            return task is None and self.tasks is None
        if any(task in part for part in self.tasks):
            return True
        return self.open_ended and task > max((part[-1] for part in self.tasks), default=-1)


def read_id(text: str) -> tuple[str, tuple[range, ...] | None, bool] | None:
    """Read ``33``, ``33_4`` or ``33_[0-30:3,40%2]``; None for anything else (reframe PR 3707)."""
    found = _ID.fullmatch(text.strip())
    if found is None:
        return None
    job_id, one, many = found.groups()
    if one is not None:
        return job_id, (range(int(one), int(one) + 1),), False
    if many is None:
        return job_id, None, False
    parts = [_RANGE.fullmatch(part) for part in many.split("%")[0].split(",")]
    tasks = tuple(
        range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1))
        for part in parts
        if part
    )
    return job_id, tasks, "..." in many


def read_exit(text: str) -> tuple[int, int] | None:
    """Read ``code:signal``, or the raw wait status that ``squeue -O exit_code`` prints."""
    code, colon, number = text.strip().partition(":")
    if not code.isdecimal() or (colon and not number.isdecimal()):
        return None
    if colon:
        return int(code), int(number)
    status = int(code)
    killed = status & 0x7F
    return (0, killed) if killed else (status >> 8, 0)


def squeue_rows(text: str) -> Iterator[Row]:
    """Read lines of squeue; the name comes last, since it may hold anything (firecrest-v2#148)."""
    for line in text.splitlines():
        fields = line.split("|", 7)
        job = read_id(fields[0])
        if job is None or len(fields) < 8:  # noqa: PLR2004 - the second line of a name
            continue
        _, state, nodes, started, ended, submitted, reason, name = fields
        yield Row(*job, name, state, reason, None, submitted, started, ended, nodes)


def sacct_rows(text: str) -> Iterator[Row]:
    """Read lines of sacct."""
    for line in text.splitlines():
        fields = line.split("|", 7)
        job = read_id(fields[0])
        if job is None or len(fields) < 8:  # noqa: PLR2004
            continue
        _, state, code, submitted, started, ended, nodes, name = fields
        yield Row(*job, name, state, "", read_exit(code), submitted, started, ended, nodes)


_RECORD = re.compile(
    r"JobId=(?P<id>\d+) (?:ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+) )?"
    r".*?JobName=(?P<name>.*?) UserId=.*?JobState=(?P<state>\S+) Reason=(?P<reason>.*?) Dependency="
    r".*?ExitCode=(?P<code>\d+:\d+)",
    re.DOTALL,
)


def scontrol_rows(text: str) -> Iterator[Row]:
    """Read records of ``scontrol -o show job``; an array has one for each task."""
    for found in _RECORD.finditer(text):
        name = f"{found['array']}_{found['task']}" if found["array"] else found["id"]
        job = read_id(name) or read_id(f"{found['array']}_[{found['task']}]")
        if job is not None:
            yield Row(
                *job, found["name"], found["state"], found["reason"], read_exit(found["code"])
            )
