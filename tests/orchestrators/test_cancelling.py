"""Jobs of many threads, cancelled with few commands."""

import threading
import time
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from job_requests import Scripted, status
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.orchestrators import cancelling as cancelling_module
from examlops_dagster.orchestrators.cancelling import Cancelling
from examlops_dagster.orchestrators.submitting import cancel_all
from examlops_dagster.schedulers.base import JobRef, JobState


class Counting(Scripted):
    """Counts the commands, and takes its time for each."""

    def __init__(self, *statuses):
        super().__init__(*statuses)
        self.commands = []

    def cancel(self, jobs):
        self.commands.append(len(jobs))
        time.sleep(0.2)
        super().cancel(jobs)


def job(n):
    return JobRef("slurm", str(n), f"{n:032x}", datetime.now(timezone.utc))


def test_a_hundred_threads_take_few_commands():
    scheduler = Counting(status("RUNNING"))
    cancelling = Cancelling(scheduler, cancel_all)
    found = {}

    together = threading.Barrier(100)

    def cancel(n):
        together.wait(PATIENCE_SECONDS)
        found[n] = cancelling.cancel(job(n), PATIENCE_SECONDS)

    threads = [threading.Thread(target=cancel, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert {found[n].state for n in range(100)} == {JobState.CANCELLED}
    assert sum(scheduler.commands) == 100
    assert len(scheduler.commands) <= 10


def test_one_by_itself_is_cancelled_soon():
    scheduler = Counting(status("RUNNING"))
    started = time.monotonic()
    assert Cancelling(scheduler, cancel_all).cancel(job(1), 600).state is JobState.CANCELLED
    assert time.monotonic() - started < 300


def test_what_does_not_go_is_told_after_its_time():
    scheduler = Scripted(LaunchError("no answer", transient=True))
    scheduler.cancel = lambda jobs: None
    found = Cancelling(scheduler, cancel_all).cancel(job(1), 0.3)
    assert not found.state.final


def test_a_failure_reaches_all_who_wait(monkeypatch):
    def broken(*_):
        raise ValueError("broken")

    cancelling = Cancelling(Scripted(), broken)
    ends = []
    follower = threading.Thread(target=lambda: ends.append(cancelling.cancel(job(2), 1).state))

    def gather(_):
        follower.start()
        wait_until(lambda: len(cancelling._open.jobs) == 2)

    monkeypatch.setattr(cancelling_module, "time", SimpleNamespace(sleep=gather))
    with pytest.raises(ValueError, match="broken"):
        cancelling.cancel(job(1), 1)
    follower.join(PATIENCE_SECONDS)
    assert ends == [JobState.UNKNOWN]
