"""One question an interval for all jobs of all processes of this user on this host."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from filelock import FileLock
from scheduler_kit import a_job
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobState, JobStatus
from examlops_dagster.schedulers.watched import board_path, read_board
from examlops_dagster.schedulers.watcher import Watcher, poll_seconds

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
RUNNING = JobStatus(JobState.RUNNING, "RUNNING", seen_at=NOW, nodes="node1", started_at=NOW)
ABSENT = JobStatus(JobState.UNKNOWN, reason="Slurm does not know the job", seen_at=NOW)


class Asked:
    """A scheduler that counts its questions."""

    name = "slurm"

    def __init__(self, status=RUNNING):
        self.status = status
        self.polls = []

    def poll(self, jobs):
        self.polls.append(list(jobs))
        if isinstance(self.status, Exception):
            raise self.status
        return dict.fromkeys(jobs, self.status)


class Seconds:
    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def make(tmp_path, seconds):
    def make(scheduler, **settings):
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), **settings.pop("environment", {})}
        return Watcher(scheduler, environment, clock=seconds, **settings)

    return make


def test_the_first_question_is_asked_at_once_and_the_answer_kept(make, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    found = watcher.status(a_job())
    assert found == replace(RUNNING, seen_at=datetime.fromtimestamp(seconds.now, timezone.utc))
    seconds.now += 9.9
    assert watcher.status(a_job()).state is JobState.RUNNING
    assert len(scheduler.polls) == 1
    seconds.now += 0.2
    watcher.status(a_job())
    assert len(scheduler.polls) == 2


def test_a_thousand_jobs_are_one_question_an_interval(make, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    jobs = [a_job(str(n)) for n in range(1000)]
    for _ in range(60):
        for job in jobs:
            watcher.status(job)
        seconds.now += 1
    assert len(scheduler.polls) <= 8
    assert set(map(len, scheduler.polls[2:])) == {1000}


def test_processes_share_one_answer(make, seconds):
    first, second = Asked(), Asked()
    one, two = make(first), make(second)
    assert one.status(a_job("1")).state is JobState.RUNNING
    assert two.status(a_job("2")) == JobStatus(JobState.UNKNOWN, reason="not asked yet")
    for _ in range(60):
        seconds.now += 1
        one.status(a_job("1"))
        assert two.status(a_job("1")).state is JobState.RUNNING
        two.status(a_job("2"))
    assert two.status(a_job("2")).state is JobState.RUNNING
    polls = [*first.polls, *second.polls]
    assert len(polls) <= 8
    assert any({job.job_id for job in poll} == {"1", "2"} for poll in polls)


def test_threads_share_one_answer(make):
    scheduler = Asked()
    watcher = make(scheduler)
    threads = [
        threading.Thread(target=lambda n=n: [watcher.status(a_job(str(n))) for _ in range(20)])
        for n in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scheduler.polls) == 1


def test_a_new_job_does_not_wait_for_the_whole_interval(make, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    watcher.status(a_job("1"))
    seconds.now += 1
    assert watcher.status(a_job("2")).reason == "not asked yet"
    seconds.now += 4.1
    assert watcher.status(a_job("2")).state is JobState.RUNNING
    assert len(scheduler.polls) == 2


def test_a_job_that_ended_is_not_asked_for_again(make, seconds):
    scheduler = Asked(JobStatus(JobState.COMPLETED, exit_code=0, seen_at=NOW))
    watcher = make(scheduler)
    for _ in range(3):
        assert watcher.status(a_job()).exit_code == 0
        seconds.now += 20
    assert len(scheduler.polls) == 1


def test_a_command_that_fails_keeps_the_states_and_is_asked_less_often(make, seconds, caplog):
    scheduler = Asked()
    watcher = make(scheduler)
    watcher.status(a_job())
    scheduler.status = LaunchError("squeue is down", transient=True)
    begin = seconds.now
    for _ in range(1200):
        seconds.now += 1
        found = watcher.status(a_job())
    assert found.state is JobState.RUNNING
    assert found.seen_at.timestamp() == begin
    assert watcher.trouble == "squeue is down"
    assert len(scheduler.polls) < 10
    assert caplog.text.count("squeue is down") == 1
    scheduler.status = RUNNING
    seconds.now += 300
    assert watcher.status(a_job()).seen_at.timestamp() == seconds.now
    assert watcher.trouble == ""


def test_without_any_answer_the_complaint_is_the_reason(make):
    watcher = make(Asked(LaunchError("squeue is down", transient=True)))
    found = watcher.status(a_job())
    assert (found.state, found.reason, found.seen_at) == (JobState.UNKNOWN, "squeue is down", None)


def test_a_job_that_no_answer_knows_is_lost_after_the_deadline(make, seconds):
    """UNKNOWN for ever (submitit, snakemake), or success after five looks (dagster-slurm)."""
    watcher = make(Asked(ABSENT))
    states = []
    for _ in range(70):
        states.append(watcher.status(a_job()).state)
        seconds.now += 10
    assert states.index(JobState.LOST) == 60
    assert "nothing was heard of it for 0:10:00" in watcher.status(a_job()).reason


def test_being_seen_again_starts_the_deadline_anew(make, seconds):
    scheduler = Asked(ABSENT)
    watcher = make(scheduler, lost_after_seconds=100)
    for step in range(30):
        scheduler.status = RUNNING if step == 8 else ABSENT
        state = watcher.status(a_job()).state
        if state is JobState.LOST:
            break
        seconds.now += 10
    assert step == 19


@pytest.mark.parametrize(
    "outage",
    [LaunchError("down", transient=True), JobStatus(JobState.UNKNOWN, reason="sacct is down")],
)
def test_an_outage_is_not_counted_as_absence(make, seconds, outage):
    scheduler = Asked(ABSENT)
    watcher = make(scheduler)
    watcher.status(a_job())
    scheduler.status = outage
    for _ in range(100):
        seconds.now += 20
        assert watcher.status(a_job()).state is JobState.UNKNOWN
    scheduler.status = ABSENT
    seconds.now += 300
    assert watcher.status(a_job()).state is JobState.UNKNOWN


def test_jobs_that_nobody_wants_are_dropped(make, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    watcher.status(a_job("1"))
    watcher.forget(a_job("1"))
    for _ in range(70):
        seconds.now += 10
        watcher.status(a_job("2"))
    assert [job.job_id for job in scheduler.polls[-1]] == ["2"]


def test_another_process_that_asks_is_not_waited_for(make, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    watcher.status(a_job())
    seconds.now += 20
    with FileLock(watcher.path.with_suffix(".lock")):
        assert watcher.status(a_job()).state is JobState.RUNNING
    assert len(scheduler.polls) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "jobs": [1]}'])
def test_a_damaged_file_is_written_anew(make, text, seconds):
    scheduler = Asked()
    watcher = make(scheduler)
    watcher.path.parent.mkdir(parents=True)
    watcher.path.write_text(text)
    assert watcher.status(a_job()).state is JobState.RUNNING
    assert read_board(watcher.path, None)[0].jobs.keys() == {a_job()}


def test_without_a_place_for_the_file_each_process_asks(tmp_path, seconds):
    blocked = tmp_path / "file"
    blocked.touch()
    watcher = Watcher(Asked(), {"XDG_CACHE_HOME": str(blocked)}, clock=seconds)
    assert watcher.status(a_job()).state is JobState.RUNNING


def test_what_is_written_comes_back(make):
    status = JobStatus(JobState.FAILED, "FAILED", "why", True, 3, NOW, NOW, "node[1-2]", NOW)
    job = a_job("7", index=1004, offset=1000, cluster="gpu")
    watcher = make(Asked(status))
    found = watcher.status(job)
    board, _ = read_board(watcher.path, None)
    assert board.jobs[job].status == found == replace(status, seen_at=found.seen_at)
    assert watcher.path.stat().st_mode & 0o077 == 0
    assert watcher.path.parent.stat().st_mode & 0o077 == 0


def test_a_scheduler_that_is_free_to_ask_is_asked_each_time(make):
    scheduler = Asked()
    scheduler.is_free_to_ask = True
    watcher = make(scheduler)
    for _ in range(3):
        watcher.status(a_job())
    assert len(scheduler.polls) == 3
    assert not watcher.path.exists()


def test_each_cluster_has_its_own_file(tmp_path):
    base = {"XDG_RUNTIME_DIR": str(tmp_path)}
    paths = {
        board_path("slurm", base),
        board_path("flux", base),
        board_path("slurm", {**base, "SLURM_CONF": "/other"}),
        board_path("slurm", {"XDG_CACHE_HOME": str(tmp_path)}),  # the first one again
    }
    assert len(paths) == 3
    assert all(path.is_relative_to(tmp_path) for path in paths)


def over_ssh(environment):
    from examlops_dagster.schedulers.flux import FluxScheduler
    from examlops_dagster.schedulers.ssh import SshRunner
    from examlops_dagster.schedulers.ssh_scheduler import SshScheduler
    from examlops_dagster.schedulers.ssh_settings import ssh_settings

    runner = SshRunner(ssh_settings(environment), environment)
    return SshScheduler(FluxScheduler(runner), runner, environment)


def test_each_connection_has_its_own_file(tmp_path):
    base = {
        "XDG_RUNTIME_DIR": str(tmp_path),
        "EXAMLOPS_ASSET_JOB_DIR": str(tmp_path / "jobs"),
        "EXAMLOPS_HPC_SSH_HOST": "gateway",
    }
    others = [
        {"EXAMLOPS_HPC_SSH_HOST": "another"},
        {"EXAMLOPS_HPC_SSH_PORT": "2201"},
        {"EXAMLOPS_HPC_SSH_PORT": "2202"},
        {"EXAMLOPS_HPC_SSH_USER": "me"},
        {"EXAMLOPS_HPC_SSH_KEY": "/of/another"},
    ]
    paths = {
        Watcher(over_ssh(environment), environment).path
        for environment in [base, *({**base, **other} for other in others)]
    }
    assert len(paths) == 6
    same = {**base, "FLUX_URI": "of this host", "EXAMLOPS_HPC_FORWARD_ENV": "WANDB_*"}
    assert Watcher(over_ssh(same), same).path in paths
    unused = {**base, "EXAMLOPS_HPC_TRANSPORT": "local"}  # no connection: that of this host
    assert Watcher(Asked(), unused).path == board_path("slurm", {"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "expected"), [("", 10), ("30", 30), ("1", 5), ("x", 10), ("nan", 10), ("-3", 5)]
)
def test_the_interval_is_never_below_5_seconds(text, expected):
    assert poll_seconds({"EXAMLOPS_HPC_POLL_SECONDS": text}) == expected


def test_two_real_processes_ask_once(tmp_path):
    log = tmp_path / "log"
    code = f"""
import select, sys, time
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
from scheduler_kit import a_job
from test_scheduler_watcher import RUNNING
from examlops_dagster.schedulers.watcher import Watcher
class Logged:
    name = "slurm"
    def poll(self, jobs):
        with open({str(log)!r}, "a") as file:
            file.write(" ".join(sorted(job.job_id for job in jobs)) + "\\n")
        return dict.fromkeys(jobs, RUNNING)
watcher = Watcher(Logged())
print("ready", flush=True)
sys.stdin.readline()
while watcher.status(a_job(sys.argv[1])).state.word != "RUNNING":
    time.sleep(0.1)
print("told", flush=True)
while select.select([sys.stdin], [], [], 0.1) == ([], [], []):
    watcher.status(a_job(sys.argv[1]))
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, number],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in "12"
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout.readline() == "told\n"
    wait_until(lambda: "1 2" in log.read_text().splitlines())
    lines, elapsed = log.read_text().splitlines(), time.monotonic() - began
    for process in processes:
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    assert len(lines) <= 2 + elapsed / 5  # one question in five seconds, of whichever process


def test_many_jobs_are_looked_at_together_with_one_question(make):
    scheduler = Asked()
    jobs = [a_job(str(n)) for n in range(100)]
    found = make(scheduler).statuses(jobs)
    assert list(found) == jobs
    assert {status.state for status in found.values()} == {JobState.RUNNING}
    assert len(scheduler.polls) == 1
