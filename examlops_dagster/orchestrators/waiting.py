"""Waits for the end of one job, and judges how it ended.

The exit file is looked at first: it is there a moment after the program's end, without a
question to the scheduler. The scheduler's word then outranks a success (a child killed for
memory, a lost node), and stands in where no exit file was written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone

from examlops_dagster.errors import LaunchError
from examlops_dagster.orchestrators.calling import how_it_ended
from examlops_dagster.orchestrators.ends import End, Listener, Patience, Watch
from examlops_dagster.orchestrators.followed import FollowedLog
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus
from examlops_dagster.schedulers.folder import Exit, JobFolder
from examlops_dagster.schedulers.messages import Message, MessageFile

_LONGEST_LOOK = 1.0
_FIRST_LOOK = 0.02
_SIGNALLED = 128


class Waiting:
    """The wait for one job.

    Parameters
    ----------
    ref, folder
        The job and its files.
    watch
        Tells what the scheduler says.
    queue_seconds
        Limit of the time in the queue.
    several_nodes
        Whether it runs on more than the one that writes the exit file.
    pause
        Lets time pass, and raises what interrupts the waiting.
    """

    def __init__(
        self,
        ref: JobRef,
        folder: JobFolder,
        watch: Watch,
        listener: Listener,
        *,
        queue_seconds: float | None = None,
        several_nodes: bool = False,
        patience: Patience | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.ref = ref
        self.folder = folder
        self._watch = watch
        self._listener = listener
        self._queue_seconds = queue_seconds
        self._several_nodes = several_nodes
        self._pause = pause
        self._patience = patience or Patience()
        self.messages = MessageFile(folder.messages)
        self._logs = [FollowedLog(folder.stdout, 1), FollowedLog(folder.stderr, 2)]
        self._last = JobStatus(JobState.SUBMITTING)
        self._started = time.monotonic()
        self._known_at = self._started
        self._refused_since: float | None = None

    def until_end(self) -> End:
        """Wait for the end, with what the job says passed on as it comes."""
        look = _FIRST_LOOK
        while True:
            found = self._look()
            if found is not None:
                self._finish()
                return self._proved(found)
            self._pause(look)
            look = min(look * 1.3, _LONGEST_LOOK)

    def status(self) -> JobStatus:
        """Ask for the status; a scheduler that does not answer knows nothing."""
        if not self.ref.job_id:  # its reply was lost, and the scheduler has forgotten it
            now = datetime.now(timezone.utc)
            return JobStatus(JobState.UNKNOWN, reason="its id is not known", seen_at=now)
        try:
            return self._watch.status(self.ref)
        except LaunchError as error:
            return JobStatus(JobState.UNKNOWN, reason=str(error))

    def _look(self) -> End | None:
        found = self.folder.exit(self.ref.token)
        status = self._asked()
        self._forward()
        if found is not None:
            return self._settled(found)
        if status.state.final:
            return self._without_exit_file(status)
        return self._overdue(status)

    def _asked(self) -> JobStatus:
        status = self.status()
        now = time.monotonic()
        if status.state is not JobState.UNKNOWN or status.seen_at is None:
            self._known_at = now  # no answer says nothing of the job
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

    def _settled(self, found: Exit) -> End:
        """Judge by the exit file, and by the scheduler where that may know more."""
        seconds = 0.0
        if found.is_clean and not self._several_nodes:
            seconds = self._patience.clean_settle
        elif found.code == 0 or found.code > _SIGNALLED:
            seconds = self._patience.settle
        deadline = time.monotonic() + seconds
        status = self._asked()
        while not status.state.final and time.monotonic() < deadline:
            self._pause(_FIRST_LOOK if time.monotonic() < deadline - 1 else 0.1)
            status = self._asked()
        if status.state.contradicts_success:
            return End(status.state, status.reason, status, found)
        if found.limit_reached:
            return End(JobState.TIMEOUT, "reached its time limit", status, found)
        if found.oom_kills and found.code == 0:
            reason = f"{found.oom_kills} of its processes were killed for memory"
            return End(JobState.OUT_OF_MEMORY, reason, status, found)
        if found.code == 0:
            if status.state is JobState.FAILED:
                return End(JobState.FAILED, status.reason or "the scheduler says so", status, found)
            return End(JobState.COMPLETED, "", status, found)
        reason = f"exit code {found.code}"
        if found.code > _SIGNALLED:
            reason = f"{how_it_ended(_SIGNALLED - found.code)}, {reason}"
        return End(JobState.FAILED, reason, status, found)

    def _without_exit_file(self, status: JobStatus) -> End:
        """Wait a while for a file that may not be visible here yet, and take the state."""
        patience = self._patience
        wait = patience.files if status.state is JobState.COMPLETED else min(2.0, patience.files)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            with suppress(OSError):  # makes NFS look at the folder again
                os.listdir(self.folder.path)  # noqa: PTH208
            found = self.folder.exit(self.ref.token)
            if found is not None:
                return self._settled(found)
            self._pause(0.05)
        if status.state is JobState.COMPLETED:
            reason = f"it left no exit file in {self.folder.path}, so nothing proves its success"
            return End(JobState.FAILED, reason, status)
        return End(status.state, status.reason, status)

    def _overdue(self, status: JobStatus) -> End | None:
        now, patience = time.monotonic(), self._patience
        if self._refused_since is not None and now - self._refused_since >= patience.refuse:
            return End(JobState.REFUSED, f"it can never start: {status.reason}", status)
        waits = status.state in (JobState.PENDING, JobState.STUCK)
        queued = (time.time() - self.ref.submitted_at.timestamp()) if waits else 0.0
        if self._queue_seconds is not None and queued > self._queue_seconds:
            reason = f"waited in the queue for more than {self._queue_seconds:g} s (queue_time)"
            return End(JobState.TIMEOUT, f"{reason}: {status.reason}", status)
        if now - self._known_at > patience.lost:
            reason = f"nothing is known of it for {patience.lost:g} s"
            return End(JobState.LOST, f"{reason}: {status.reason}", status)
        return None

    def _proved(self, end: End) -> End:
        """Hold a success against what Dagster Pipes says."""
        if end.state is not JobState.COMPLETED or not self.messages.opened:
            return end
        deadline = time.monotonic() + self._patience.files
        while self.messages.closed is None and time.monotonic() < deadline:
            self._pause(0.1)
            self._finish()
        if self.messages.closed is None:
            reason = "its program opened Dagster Pipes and never closed it"
            return End(JobState.FAILED, reason, end.status, end.exit)
        failed = self.messages.closed.exception
        if failed is not None:
            reason = f"{failed.get('message') or failed.get('name') or 'failed'}".strip()
            return End(JobState.FAILED, reason, end.status, end.exit)
        return end

    def _forward(self) -> None:
        self._pass_on(self.messages.read())
        for log in self._logs:
            log.forward()

    def _finish(self) -> None:
        """Take the last of what the job said."""
        for log in self._logs:
            while log.forward():
                pass
        self._pass_on([m for m in self.messages.finish() if m.method != "closed"])

    def _pass_on(self, messages: list[Message]) -> None:
        if self._attempt != self.messages.attempt:
            self._attempt = self.messages.attempt
            self._listener.restarted()
        for message in messages:
            self._listener.heard(message)

    _attempt = 0
