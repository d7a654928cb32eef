"""Asks a scheduler about all jobs of all processes of this user on this host, with one command.

The processes share the answer through a file: whoever finds it too old asks for all, under a
lock, and the others read. There is no thread and no daemon: asking is done by who wants to know,
so nothing is asked when nobody waits. That a job ended is seen first in its exit file; the
scheduler is asked for what only it knows (waiting, held, cancelled, lost).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from filelock import FileLock, Timeout

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus, Scheduler
from examlops_dagster.schedulers.watched import (
    NOT_ASKED,
    Board,
    Entry,
    board_path,
    read_board,
    write_board,
)
from examlops_dagster.settings import HPC_POLL_SECONDS

DEFAULT_POLL_SECONDS = 10.0
FASTEST_POLL_SECONDS = 5.0
LOST_AFTER_SECONDS = 600.0
LONGEST_BACK_OFF_SECONDS = 300.0
_FORGET_SECONDS = 600.0
"""After which a job is not asked for any more that no process wanted to know about."""
_REGISTER_SECONDS = 1.0
_LOCK_SECONDS = 0.05

_log = logging.getLogger(__name__)


class Watcher:
    """Answers what is known of a job; may be used by many threads.

    Parameters
    ----------
    scheduler
        Is asked. One with ``is_free_to_ask = True`` is asked each time, without a file; one with a
        ``connection`` has a file for that.
    environment
        ``EXAMLOPS_HPC_POLL_SECONDS`` (10; never below 5), ``XDG_RUNTIME_DIR``, ``XDG_CACHE_HOME``
        and what names the cluster.
    lost_after_seconds
        Of answers in a row, without any that knows the job, until it is LOST.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        environment: Mapping[str, str] | None = None,
        *,
        lost_after_seconds: float = LOST_AFTER_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        environment = os.environ if environment is None else environment
        self._scheduler = scheduler
        self._free = bool(getattr(scheduler, "is_free_to_ask", False))
        self._interval = poll_seconds(environment)
        self._lost_after = lost_after_seconds
        self._clock = clock
        connection = getattr(scheduler, "connection", ())
        self.path = board_path(scheduler.name, environment, connection)
        self._wanted: dict[JobRef, float] = {}
        self._unregistered: set[JobRef] = set()
        self._board = Board()
        self._stamp: tuple[int, int] | None = None
        self._registered_at = -math.inf
        self._guard = threading.Lock()
        self._refreshing = threading.Lock()

    def status(self, job: JobRef) -> JobStatus:
        """Give the last answer about a job, asking when it is time; ``seen_at`` is its time.

        UNKNOWN without ``seen_at`` stands for "not asked yet" and for "no answer", with the
        scheduler's complaint as the reason.
        """
        return self.statuses([job])[job]

    def statuses(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """Give the same of many jobs, for the price of one."""
        if self._free:
            return self._scheduler.poll(jobs)
        now = self._clock()
        new = is_open = False
        with self._guard:
            for job in jobs:
                self._wanted[job] = now
                known = self._board.jobs.get(job)
                if _is_news(known, now):
                    self._unregistered.add(job)
                new = new or known is None or known.status == NOT_ASKED
                is_open = is_open or known is None or not known.status.state.final
            due = bool(self._unregistered) or self._is_time(now, new=new)
        if is_open and due:
            self._refresh()
        with self._guard:
            board = self._board
        return {job: _last_answer(board, job) for job in jobs}

    def forget(self, job: JobRef) -> None:
        """Stop asking for a job: whoever waited for it knows how it ended."""
        with self._guard:
            self._wanted.pop(job, None)
            self._unregistered.discard(job)

    @property
    def trouble(self) -> str:
        """Why the last command gave no answer; empty if it gave one."""
        return self._board.trouble

    def _refresh(self) -> None:
        """Read what others found, and ask when it is time and no other thread or process does."""
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            self._read()
            now = self._clock()
            if not self._is_time(now) and (
                not self._unregistered or now - self._registered_at < _REGISTER_SECONDS
            ):
                return
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=0o600):
                self._read()
                asks = self._is_time(now)
                self._merge(now)
                if asks:
                    self._ask()
                self._stamp = write_board(self.path, self._board)
        except Timeout:
            pass  # another process asks at this moment
        except OSError as error:
            _log.warning("%s cannot be used (%s): this process asks for itself", self.path, error)
            now = self._clock()
            asks = self._is_time(now)
            self._merge(now)
            if asks:
                self._ask()
        finally:
            self._refreshing.release()

    def _is_time(self, now: float, *, new: bool | None = None) -> bool:
        """Say whether to ask; for a job that is new it need not be the whole interval."""
        board = self._board
        if now >= board.next_at:
            return True
        if board.failures or now - board.asked_at < FASTEST_POLL_SECONDS:
            return False
        if new is None:
            new = bool(self._unregistered) or any(
                entry.status == NOT_ASKED for entry in board.jobs.values()
            )
        return new

    def _read(self) -> None:
        found = read_board(self.path, self._stamp)
        if found is not None:
            board, self._stamp = found
            with self._guard:
                self._board = board
                now = self._clock()
                self._unregistered = {
                    job for job in self._unregistered if _is_news(board.jobs.get(job), now)
                }

    def _merge(self, now: float) -> None:
        """Write down what this process wants to know, and drop what nobody wants any more."""
        with self._guard:
            jobs = dict(self._board.jobs)
            for job, wanted_at in list(self._wanted.items()):
                if now - wanted_at > _FORGET_SECONDS:
                    del self._wanted[job]
                    continue
                jobs[job] = replace(jobs.get(job, Entry()), wanted_at=wanted_at)
            jobs = {j: e for j, e in jobs.items() if now - e.wanted_at <= _FORGET_SECONDS}
            self._unregistered.clear()
            self._registered_at = now
            self._board = replace(self._board, jobs=jobs)

    def _ask(self) -> None:
        """Ask for all jobs that have not ended; less and less often while the command fails."""
        board = self._board
        open_jobs = [job for job, entry in board.jobs.items() if not entry.status.state.final]
        try:
            answers = self._scheduler.poll(open_jobs) if open_jobs else {}
        except LaunchError as error:
            failures = board.failures + 1
            wait = min(self._interval * 2 ** min(failures, 10), LONGEST_BACK_OFF_SECONDS)
            if failures == 1:
                _log.warning("%s; states are those of the last answer", error)
            new = replace(
                board, next_at=self._clock() + wait, failures=failures, trouble=str(error)
            )
        else:
            now = self._clock()
            jobs = dict(board.jobs)
            for job, status in answers.items():
                jobs[job] = self._answered(jobs[job], status, now)
            new = Board(jobs, asked_at=now, next_at=now + self._interval)
        with self._guard:
            self._board = new

    def _answered(self, entry: Entry, status: JobStatus, now: float) -> Entry:
        """Take an answer; counts the time in which answers knew nothing, not that of outages."""
        if status.seen_at is None:
            kept = entry.status if entry.status.seen_at is not None else status
            return replace(entry, status=kept, absent_at=None)
        seen = replace(status, seen_at=datetime.fromtimestamp(now, timezone.utc))
        if status.state is not JobState.UNKNOWN:
            return replace(entry, status=seen, absent_at=None, absent_seconds=0.0)
        absent = entry.absent_seconds
        if entry.absent_at is not None:
            absent += min(now - entry.absent_at, 3 * self._interval)
        if absent >= self._lost_after:
            since = timedelta(seconds=round(absent))
            reason = f"{status.reason}; nothing was heard of it for {since}"
            seen = replace(seen, state=JobState.LOST, reason=reason)
        return replace(entry, status=seen, absent_at=now, absent_seconds=absent)


def _last_answer(board: Board, job: JobRef) -> JobStatus:
    entry = board.jobs.get(job)
    if entry is None or entry.status.seen_at is None:
        why = board.trouble or (entry.status.reason if entry else "")
        return JobStatus(JobState.UNKNOWN, reason=why or "not asked yet")
    return entry.status


def _is_news(entry: Entry | None, now: float) -> bool:
    """Say whether the file has to be told that a job is wanted (still wanted)."""
    return entry is None or now - entry.wanted_at > _FORGET_SECONDS / 2


def poll_seconds(environment: Mapping[str, str]) -> float:
    """Give the interval of ``EXAMLOPS_HPC_POLL_SECONDS``; a bad value is told and not used."""
    text = environment.get(HPC_POLL_SECONDS, "")
    try:
        found = float(text) if text else DEFAULT_POLL_SECONDS
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        _log.warning("EXAMLOPS_HPC_POLL_SECONDS=%s is not a number of seconds", text)
        found = DEFAULT_POLL_SECONDS
    return max(found, FASTEST_POLL_SECONDS)
