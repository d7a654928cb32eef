"""Waits for the end of one job, and judges how it ended.

The exit file is looked at first: it is there a moment after the program's end, without a
question to the scheduler. The scheduler's word then outranks a success (a child killed for
memory, a lost node), and stands in where no exit file was written.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from examlops_dagster.errors import LaunchError
from examlops_dagster.orchestrators.calling import how_it_ended
from examlops_dagster.orchestrators.ends import End, Listener, Patience, Watch
from examlops_dagster.orchestrators.followed import FollowedLog
from examlops_dagster.schedulers.base import SIGNALLED, JobRef, JobState, JobStatus
from examlops_dagster.schedulers.folder import Exit, JobFolder
from examlops_dagster.schedulers.messages import Message, MessageFile

_LONGEST_LOOK = 0.4
_FIRST_LOOK = 0.02
_AT_ITS_LIMIT = "reached its time limit"


class Waiting:
    """The wait for one job: looks that take no time, of which one gives the end.

    Parameters
    ----------
    ref, folder
        The job and its files.
    watch
        Tells what the scheduler says.
    queue_seconds
        Limit of the time in the queue.
    limit_seconds
        Limit of the running time, which the job and the scheduler keep; None for none.
    several_nodes
        Whether it runs on more than the one that writes the exit file.
    names
        Gives the names in the job's folder, where somebody lists it for many jobs at once; such a
        job's logs are passed on at its end, since those of many would mix. None opens files to
        see whether they are there.
    result
        What has to be visible before a success counts.
    label
        Put before each line of the logs, where those of several jobs mix.
    """

    def __init__(
        self,
        ref: JobRef,
        folder: JobFolder,
        watch: Watch,
        listener: Listener,
        *,
        queue_seconds: float | None = None,
        limit_seconds: float | None = None,
        several_nodes: bool = False,
        patience: Patience | None = None,
        names: Callable[[], Container[str]] | None = None,
        result: Path | None = None,
        label: str = "",
    ) -> None:
        self.ref = ref
        self.folder = folder
        self._watch = watch
        self._listener = listener
        self._queue_seconds = queue_seconds
        self._limit_seconds = limit_seconds
        self._several_nodes = several_nodes
        self._patience = patience or Patience()
        self._names = names
        self._result = result
        self.messages = MessageFile(folder.messages)
        self._logs = [FollowedLog(folder.stdout, 1, label), FollowedLog(folder.stderr, 2, label)]
        self._last = JobStatus(JobState.SUBMITTING)
        self._started = time.monotonic()
        self._known_at = self._started
        self._refused_since: float | None = None
        self._running_since: float | None = None
        self._look_seconds = _FIRST_LOOK
        self._exit: Exit | None = None
        self._final: JobStatus | None = None
        self._final_at = 0.0
        self._end: End | None = None
        self._deadline = 0.0
        """Of what is waited for now: the scheduler's word, a file, the rest of Pipes."""

    def until_end(self, pause: Callable[[float], None] = time.sleep) -> End:
        """Wait for the end, with what the job says passed on as it comes.

        Parameters
        ----------
        pause
            Lets time pass, and raises what interrupts the waiting.
        """
        while (end := self.look()) is None:
            pause(self.next_look_seconds)
        return end

    @property
    def next_look_seconds(self) -> float:
        """How long to leave it alone: less where its end is near than where it runs."""
        if self._end is not None or self._final is not None:
            return 0.1
        if self._exit is not None:
            return _FIRST_LOOK if time.monotonic() < self._deadline - 1 else 0.1
        return self._look_seconds

    def look(self) -> End | None:
        """Look once, without waiting for anything; None while it goes on."""
        self.folder.refresh()
        if self._end is None:
            self._end = self._found()
            if self._end is None:
                self._look_seconds = min(self._look_seconds * 1.3, _LONGEST_LOOK)
                return None
            self._deadline = time.monotonic() + self._patience.files
        self._finish()
        return self._proved(self._end)

    def status(self) -> JobStatus:
        """Ask for the status; a scheduler that does not answer knows nothing."""
        if not self.ref.job_id:  # its reply was lost, and the scheduler has forgotten it
            now = datetime.now(timezone.utc)
            return JobStatus(JobState.UNKNOWN, reason="its id is not known", seen_at=now)
        try:
            return self._watch.status(self.ref)
        except LaunchError as error:
            return JobStatus(JobState.UNKNOWN, reason=str(error))

    def _found(self) -> End | None:
        is_current = self._final is None or self.folder.is_current(self._final_at)
        if self._exit is None and self._is_there(self.folder.exit_file):
            self._exit = self.folder.exit(self.ref.token)
            if self._exit is not None:
                self._deadline = time.monotonic() + self._settling_seconds(self._exit)
        if self._exit is None and self._final is not None:
            return self._without_exit_file(self._final) if is_current else None
        status = self._asked()
        self._forward()
        if self._exit is not None:
            return self._settled(self._exit, status)
        if status.state.final:
            self._final, self._final_at = status, time.monotonic()
            completed = status.state is JobState.COMPLETED
            files = self._patience.files
            self._deadline = time.monotonic() + (files if completed else min(2.0, files))
            return self._without_exit_file(status)
        return self._overdue(status)

    def _is_there(self, path: Path) -> bool:
        """Whether a file may be there: a look at thousands of folders costs one listing."""
        return self._names is None or path.name in self._names()

    def _asked(self) -> JobStatus:
        status = self.status()
        now = time.monotonic()
        tells = status.state not in (JobState.UNKNOWN, JobState.COMPLETING)
        if tells or status.seen_at is None:
            self._known_at = now  # no answer says nothing of the job
        if status.state is not JobState.RUNNING:
            self._running_since = None
        elif self._running_since is None:
            self._running_since = now
        asked = status.seen_at is not None or status.state is not JobState.UNKNOWN
        changed = (status.state, status.reason) != (self._last.state, self._last.reason)
        if changed and (asked or self._watch.trouble):
            self._listener.changed(status)
        self._last = status
        if not status.never_starts:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        return status

    def _settling_seconds(self, found: Exit) -> float:
        """How long the scheduler may take for a word that outranks the exit file."""
        if found.is_clean and not self._several_nodes:
            return self._patience.clean_settle
        is_its_own = 0 < found.code <= SIGNALLED and not found.signal and not self._several_nodes
        return 0.0 if is_its_own or found.limit_reached else self._patience.settle

    def _settled(self, found: Exit, status: JobStatus) -> End | None:
        """Judge by the exit file, and by the scheduler where that may know more."""
        if not status.state.final and time.monotonic() < self._deadline:
            return None
        return End(*_judged(found, status), status, found)

    def _without_exit_file(self, status: JobStatus) -> End | None:
        """Wait a while for a file that may not be visible here yet, and take the state."""
        if time.monotonic() < self._deadline:
            if self._names is None:
                with suppress(OSError):  # makes NFS look at the folder again
                    os.listdir(self.folder.path)  # noqa: PTH208
            return None
        if status.state is JobState.COMPLETED:
            reason = f"it left no exit file in {self.folder.path}, so nothing proves its success"
            return End(JobState.FAILED, reason, status)
        return End(status.state, _reason(status), status)

    def _overdue(self, status: JobStatus) -> End | None:
        now, patience = time.monotonic(), self._patience
        if self._refused_since is not None and now - self._refused_since >= patience.refuse:
            return End(JobState.REFUSED, f"it can never start: {status.reason}", status)
        waits = status.state in (JobState.PENDING, JobState.STUCK)
        queued = (time.time() - self.ref.submitted_at.timestamp()) if waits else 0.0
        if self._queue_seconds is not None and queued > self._queue_seconds:
            reason = f"waited in the queue for more than {self._queue_seconds:g} s (queue_time)"
            return End(JobState.TIMEOUT, f"{reason}: {status.reason}", status)
        longest = (self._limit_seconds or math.inf) + patience.overrun
        if self._running_since is not None and now - self._running_since > longest:
            # neither the job nor the scheduler ended it: its start failed half way (flux-core#4195)
            reason = f"shown as running {patience.overrun:g} s after its time limit"
            return End(JobState.TIMEOUT, reason, status)
        if now - self._known_at > patience.lost:
            reason = f"nothing is known of it for {patience.lost:g} s"
            if status.state is JobState.COMPLETING:
                reason = f"it left no exit file, and is ending for {patience.lost:g} s"
            return End(JobState.LOST, f"{reason}: {status.reason}", status)
        return None

    def _proved(self, end: End) -> End | None:
        """Hold a success against what Dagster Pipes says, and against what it left."""
        if end.state is not JobState.COMPLETED:
            return end
        waits = time.monotonic() < self._deadline
        if self.messages.opened:
            if self.messages.closed is None:
                reason = "its program opened Dagster Pipes and never closed it"
                return None if waits else replace(end, state=JobState.FAILED, reason=reason)
            failed = self.messages.closed.exception
            if failed is not None:
                reason = f"{failed.get('message') or failed.get('name') or 'failed'}".strip()
                return replace(end, state=JobState.FAILED, reason=reason)
        if self._result is not None and not self._result.exists():
            reason = f"it left no result in {self.folder.path}"
            return None if waits else replace(end, state=JobState.FAILED, reason=reason)
        return end

    def _forward(self) -> None:
        if self._is_there(self.folder.messages):
            self._pass_on(self.messages.read())
        if self._names is None:
            for log in self._logs:
                log.forward()

    def _finish(self) -> None:
        """Take the last of what the job said."""
        for log in self._logs:
            log.finish()
        self._pass_on([m for m in self.messages.finish() if m.method != "closed"])

    def _pass_on(self, messages: list[Message]) -> None:
        if self._attempt != self.messages.attempt:
            self._attempt = self.messages.attempt
            self._listener.restarted()
        for message in messages:
            self._listener.heard(message)

    _attempt = 0


def _reason(status: JobStatus) -> str:
    """Give why a scheduler ended a job; some leave a time limit to be guessed."""
    return status.reason or (_AT_ITS_LIMIT if status.state is JobState.TIMEOUT else "")


def _judged(found: Exit, status: JobStatus) -> tuple[JobState, str]:
    """Give how a job ended that left an exit file, and why."""
    if status.state.contradicts_success:
        return status.state, _reason(status)
    if found.limit_reached:
        return JobState.TIMEOUT, _AT_ITS_LIMIT
    if found.oom_kills and found.code == 0:
        reason = f"{found.oom_kills} of its processes were killed for memory"
        return JobState.OUT_OF_MEMORY, reason
    if found.code == 0:
        if status.state is JobState.FAILED:
            return JobState.FAILED, status.reason or "the scheduler says so"
        return JobState.COMPLETED, ""
    reason = f"exit code {found.code}"
    if found.code > SIGNALLED:
        reason = f"{how_it_ended(SIGNALLED - found.code)}, {reason}"
    return JobState.FAILED, reason
