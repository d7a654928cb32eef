"""The contract of a scheduler, and the states of a job with their facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

SIGNALLED = 128
"""Exit codes above it say by which signal a program was ended; so a shell counts."""


class FailureClass(Enum):
    """Whose fault an end without success is; each has its own budget."""

    USER = "user"
    """The program failed: the asset's own retries decide."""
    LIMIT = "limit"
    """A limit of time or memory was reached: the same request would reach it again."""
    INFRASTRUCTURE = "infrastructure"
    """The cluster failed: ``EXAMLOPS_HPC_INFRA_RETRIES`` further attempts."""


class JobState(Enum):
    """What is known of a job; the facts of a state stand on its member.

    The values are what users read and what ``hpc_jobs`` stores.
    """

    SUBMITTING = ("SUBMITTING", False, None)
    """The token is on disk; whether the scheduler took the job is not known yet."""
    PENDING = ("PENDING", False, None)
    STUCK = ("STUCK", False, None)
    """Waits for a person: held, requeued and held, special exit."""
    RUNNING = ("RUNNING", False, None)
    SUSPENDED = ("SUSPENDED", False, None)
    COMPLETING = ("COMPLETING", False, None)
    """The program ended; how, is not known yet."""
    UNKNOWN = ("UNKNOWN", False, None)
    """The scheduler did not answer, or does not know the job: no evidence of anything."""
    COMPLETED = ("COMPLETED", True, None)
    FAILED = ("FAILED", True, FailureClass.USER)
    CANCELLED = ("CANCELLED", True, None)
    TIMEOUT = ("TIMEOUT", True, FailureClass.LIMIT)
    OUT_OF_MEMORY = ("OUT_OF_MEMORY", True, FailureClass.LIMIT)
    DEADLINE = ("DEADLINE", True, FailureClass.LIMIT)
    NODE_FAIL = ("NODE_FAIL", True, FailureClass.INFRASTRUCTURE)
    BOOT_FAIL = ("BOOT_FAIL", True, FailureClass.INFRASTRUCTURE)
    PREEMPTED = ("PREEMPTED", True, FailureClass.INFRASTRUCTURE)
    REFUSED = ("REFUSED", True, FailureClass.USER)
    """The scheduler did not take the job, or can never start it."""
    LOST = ("LOST", True, None)
    """Nothing was heard of it until the deadline; it may still run, so nothing is tried again."""

    def __init__(self, word: str, final: bool, failure: FailureClass | None) -> None:
        self.word = word
        self.final = final
        self.failure = failure

    @property
    def contradicts_success(self) -> bool:
        """Whether it outranks an exit code of 0 (a child killed for memory, a lost node)."""
        return self.final and self not in (JobState.COMPLETED, JobState.FAILED)

    @property
    def blames_node(self) -> bool:
        """Whether the same request should go to another node."""
        return self in (JobState.NODE_FAIL, JobState.BOOT_FAIL)


@dataclass(frozen=True)
class JobRef:
    """Identifies a job: ids repeat after a controller crash, so the id alone does not.

    Attributes
    ----------
    scheduler
        Name of the backend.
    job_id
        As the scheduler gave it; of a task of a Slurm array, the id of the whole.
    token
        Ours, on disk before the submit; part of the job's name.
    submitted_at
        Aware UTC datetime, by our clock, before the submit.
    cluster
        Name of the cluster, where the scheduler tells it.
    index
        Of one task of an array, as the submission counts; None for a job by itself.
    offset
        Of the part of an array that had to be split: the scheduler's own number of the task is
        ``index - offset``.
    """

    scheduler: str
    job_id: str
    token: str
    submitted_at: datetime
    cluster: str = ""
    index: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class JobStatus:
    """What one look at a job showed.

    Attributes
    ----------
    native
        The scheduler's own word, for messages.
    reason
        Why it waits, or ended so, in the scheduler's words; empty if it says nothing.
    never_starts
        The scheduler leaves it waiting for ever (facts of the backend).
    exit_code
        Of the program; None where it is not known.
    started_at, ended_at
        Aware UTC datetimes, where known.
    nodes
        Where it runs or ran, as the scheduler writes it; of a job that a node failed, that node
        alone where the scheduler tells it.
    seen_at
        Aware UTC datetime of the answer; None where nobody answered yet.
    """

    state: JobState
    native: str = ""
    reason: str = ""
    never_starts: bool = False
    exit_code: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: str = ""
    seen_at: datetime | None = None


@dataclass(frozen=True)
class Submission:
    """One submit.

    Attributes
    ----------
    token
        On disk already.
    name
        Of the job: what `job_name` gives.
    script
        Absolute path of run.sh, on a filesystem that the nodes share.
    folder
        Working directory of the job; stdout and stderr go to ``stdout.log`` and ``stderr.log``
        in it (``stdout.<index>.log`` ... for an array).
    resources
        The portable vocabulary of core.checks.RESOURCES, validated, and what
        schedulers.resources.avoiding adds.
    time_limit_seconds
        Limit of the running time that the job enforces; the scheduler's is the outer bound. None
        takes the partition's own.
    array
        Number of tasks, indexed from 0; None for one job. A task finds its number in the
        variables of script.INDEX_VARIABLES, and in EXAMLOPS_ARRAY_OFFSET what to add to it.
    at_once
        How many tasks of an array may run at a time, where the scheduler can limit that.
    submitted
        Indices of an array that are left out: `find` gave them after a lost reply.
    environment
        What the submit command gets; empty for that of this process.
    own_variables
        Of it, what was given for this job alone, and goes along to another host too.
    """

    token: str
    name: str
    script: Path
    folder: Path
    resources: Mapping[str, Any] = field(default_factory=dict)
    time_limit_seconds: float | None = None
    array: int | None = None
    at_once: int | None = None
    submitted: frozenset[int] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    own_variables: Mapping[str, str] = field(default_factory=dict)


TOKEN_LETTERS = 8
"""Of the token in a job's name, by which a lost reply is looked up."""

_UNPLAIN = re.compile(r"[^A-Za-z0-9_.-]+")
_ASSET_LETTERS = 100


def job_name(asset: str, token: str) -> str:
    """Give ``asset-<name>-<token8>``, plain characters only: names are text in many tools."""
    plain = _UNPLAIN.sub("_", asset)[:_ASSET_LETTERS]
    return f"asset-{plain}-{token[:TOKEN_LETTERS]}"


def is_ours(name: str, token: str) -> bool:
    """Say whether a job's name ends in the token (and the offset of a part of an array)."""
    return offset_in(name, token) is not None


def offset_in(name: str, token: str) -> int | None:
    """Read the offset that a part of an array has behind the token; None for another's job."""
    found = re.search(rf"-{re.escape(token[:TOKEN_LETTERS])}(?:\.(\d+))?$", name)
    return int(found[1] or 0) if found else None


@runtime_checkable
class Scheduler(Protocol):
    """Submits, asks and cancels; a backend builds argv and parses text.

    Every method runs commands under a time limit. A command that fails to answer raises
    LaunchError with ``transient=True``; that is never taken for an answer about a job.
    """

    name: str

    def submit(self, submission: Submission) -> list[JobRef]:
        """Submit once, and give the job; of an array one JobRef a task, by index.

        Raises
        ------
        LaunchError
            ``transient=False``: the scheduler refused it, with its words. ``transient=True``:
            whether it was taken is not known; ask `find` before anything else.
        """
        ...

    def find(self, token: str, since: datetime) -> list[JobRef]:
        """Look a submit up by its token, also among ended jobs; of an array one JobRef a task.

        Empty where the scheduler knows none. It forgets ended jobs, so the caller looks for
        traces of a run in the job's folder before it takes that for "never submitted".

        Raises
        ------
        LaunchError
            ``transient=True``: the scheduler could not answer.
        """
        ...

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """Ask about many jobs with one command; what is not known is UNKNOWN.

        Every job that was asked for is in the answer. A job of that id which is not ours is none.

        Raises
        ------
        LaunchError
            ``transient=True``: the scheduler could not answer, which says nothing of the jobs.
        """
        ...

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """Ask for the end of many jobs with few commands; whether they ended, `poll` tells.

        Raises
        ------
        LaunchError
            ``transient=True``: the request did not get through. ``transient=False``: refused.
        """
        ...
