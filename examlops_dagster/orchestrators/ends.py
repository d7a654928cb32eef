"""How long to wait for a job, who hears of it meanwhile, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus
from examlops_dagster.schedulers.folder import Exit
from examlops_dagster.schedulers.messages import Message


@dataclass(frozen=True)
class Patience:
    """How long to wait for what, in seconds.

    Attributes
    ----------
    settle
        For the scheduler's final word, once the exit file is there and leaves a doubt: a signal,
        a kill for memory, several nodes.
    clean_settle
        The same, where the exit file leaves none: no question is asked only for it.
    files
        For files of a job that the scheduler calls completed: shared filesystems keep what they
        know of a folder for up to a minute.
    refuse
        Before a request that can never start is refused.
    lost
        While nothing is known of a job.
    overrun
        Beyond its time limit, for a job that is still shown as running and left no exit file.
    cancel
        For a cancelled job to be gone.
    again
        Before what the cluster failed is submitted again, doubled each time: a bad node would
        eat all tries within a minute (toil#5452).
    """

    settle: float = 30.0
    clean_settle: float = 0.2
    files: float = 60.0
    refuse: float = 10.0
    lost: float = 900.0
    overrun: float = 300.0
    cancel: float = 60.0
    again: float = 10.0


@dataclass(frozen=True)
class End:
    """How a job ended.

    Attributes
    ----------
    state
        Final.
    reason
        In a few words; may be empty.
    status
        The scheduler's last word.
    exit
        What run.sh wrote; None if it could not.
    """

    state: JobState
    reason: str
    status: JobStatus
    exit: Exit | None = None

    @property
    def exit_code(self) -> int | None:
        """Of the program."""
        return self.exit.code if self.exit is not None else self.status.exit_code

    @property
    def leaves_job(self) -> bool:
        """Whether we gave it up while the scheduler still has it: it has to be cancelled."""
        given_up = self.state in (JobState.REFUSED, JobState.TIMEOUT)
        return given_up and not self.status.state.final


class Watch(Protocol):
    """Tells the state of jobs, with few questions to the scheduler."""

    @property
    def trouble(self) -> str:
        """Why the scheduler gives no answer; empty if it does."""
        ...

    def status(self, job: JobRef) -> JobStatus:
        """Give the latest that is known of a job."""
        ...

    def statuses(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """Give the same of many jobs, with one look."""
        ...

    def forget(self, job: JobRef) -> None:
        """Stop asking about a job that has ended."""
        ...


@dataclass
class Listener:
    """What hears of a job while it is waited for.

    Attributes
    ----------
    changed
        Gets every change of the status.
    heard
        Gets every message of Dagster Pipes.
    restarted
        Is called where messages of a former attempt no longer count.
    """

    changed: Callable[[JobStatus], None]
    heard: Callable[[Message], None]
    restarted: Callable[[], None]
