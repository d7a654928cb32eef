import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from waiting import PATIENCE_SECONDS, is_alive, wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobRef, JobState, Scheduler, Submission
from examlops_dagster.schedulers.mock import MockScheduler

LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def submit(tmp_path):
    count = 0

    def run(scheduler, text, **more):
        nonlocal count
        count += 1
        folder = tmp_path / f"job {count}"
        folder.mkdir()
        script = folder / "run.sh"
        script.write_text(text)
        given = Submission(f"token{count}", "name", script, folder, **more)
        found = scheduler.submit(given)
        return found if given.array is not None else found[0]

    return run


@pytest.fixture
def mock(tmp_path):
    return MockScheduler({**os.environ, "EXAMLOPS_HPC_WORKDIR": str(tmp_path / "spool")})


def until(mock, ref, word, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while (status := mock.poll([ref])[ref]).state is not JobState[word]:
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def test_it_is_a_scheduler(mock):
    assert isinstance(mock, Scheduler)


def test_a_job_runs_to_its_end_with_logs_and_times(mock, submit, tmp_path):
    ref = submit(mock, "pwd; echo wrong >&2; exit 4")
    status = until(mock, ref, "FAILED")
    assert status.exit_code == 4
    assert status.started_at <= status.ended_at
    assert status.seen_at is not None
    assert (tmp_path / "job 1" / "stdout.log").read_text() == f"{tmp_path / 'job 1'}\n"
    assert (tmp_path / "job 1" / "stderr.log").read_text() == "wrong\n"
    assert until(mock, submit(mock, "true"), "COMPLETED").exit_code == 0


def test_it_outlives_who_submitted_it(mock, submit, tmp_path):
    code = f"""
import os
from pathlib import Path
from examlops_dagster.schedulers.base import Submission
from examlops_dagster.schedulers.mock import MockScheduler
folder = Path({str(tmp_path / "far")!r})
folder.mkdir()
(folder / "run.sh").write_text("sleep 1; echo done")
ref, = MockScheduler(os.environ).submit(Submission("far", "name", folder / "run.sh", folder))
print(ref.job_id, flush=True)
os.killpg(0, 9)
"""
    environment = {**os.environ, "EXAMLOPS_HPC_WORKDIR": str(tmp_path / "spool")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    [ref] = mock.find("far", LONG_AGO)
    assert ref.job_id == done.stdout.strip()
    until(mock, ref, "COMPLETED")
    assert (tmp_path / "far" / "stdout.log").read_text() == "done\n"


def test_a_job_is_found_by_its_token(mock, submit):
    ref = submit(mock, "true")
    [found] = mock.find("token1", ref.submitted_at)
    assert (found.job_id, found.token) == (ref.job_id, "token1")
    assert mock.find("token1", ref.submitted_at + timedelta(minutes=1)) == []
    assert mock.find("other", LONG_AGO) == []


def test_a_cancelled_job_is_gone_with_its_children(mock, submit, tmp_path):
    ref = submit(mock, "sleep 600 & echo $! > child; (trap '' TERM; sleep 0.2); wait")
    child = tmp_path / "job 1" / "child"
    wait_until(lambda: child.exists() and child.read_text())
    mock.cancel([ref])
    until(mock, ref, "CANCELLED")
    pid = int(child.read_text())
    wait_until(lambda: not is_alive(pid))


def test_a_limit_ends_a_job(mock, submit):
    ref = submit(mock, "sleep 600", time_limit_seconds=0.3)
    until(mock, ref, "TIMEOUT")


def test_an_array_has_a_state_and_logs_for_each_task(mock, submit, tmp_path):
    refs = submit(
        mock,
        "echo $EXAMLOPS_ARRAY_INDEX; exit $EXAMLOPS_ARRAY_INDEX",
        array=3,
        submitted=frozenset({2}),
    )
    assert [ref.index for ref in refs] == [0, 1]
    until(mock, refs[0], "COMPLETED")
    until(mock, refs[1], "FAILED")
    assert (tmp_path / "job 1" / "stdout.1.log").read_text() == "1\n"
    assert {ref.index for ref in mock.find("token1", LONG_AGO)} == {0, 1}


def test_one_task_of_an_array_is_cancelled_alone(mock, submit):
    refs = submit(mock, "sleep $((EXAMLOPS_ARRAY_INDEX * 600 + 1))", array=2)
    mock.cancel([refs[1]])
    until(mock, refs[1], "CANCELLED")
    until(mock, refs[0], "COMPLETED")


def test_with_one_slot_jobs_wait_for_each_other(tmp_path, submit):
    environment = {"EXAMLOPS_HPC_WORKDIR": str(tmp_path / "spool"), "EXAMLOPS_MOCK_SLOTS": "1"}
    mock = MockScheduler(environment)
    first = submit(mock, "sleep 600")
    until(mock, first, "RUNNING")
    second, third = submit(mock, "true"), submit(mock, "true")
    assert mock.poll([second])[second].state is JobState.PENDING
    assert mock.poll([second])[second].reason == "Resources"
    mock.cancel([third, first])
    until(mock, third, "CANCELLED")
    until(mock, second, "COMPLETED")


def test_what_is_not_known_says_so(mock, submit):
    ref = JobRef("mock", "99", "token", LONG_AGO)
    assert mock.poll([ref])[ref].state is JobState.UNKNOWN
    mock.cancel([ref])
    known = submit(mock, "true")
    other = JobRef("mock", known.job_id, "another token", LONG_AGO)
    assert mock.poll([other])[other].state is JobState.UNKNOWN


def test_a_job_whose_supervisor_is_killed_is_not_known(mock, submit, tmp_path):
    import json

    ref = submit(mock, "sleep 600")
    until(mock, ref, "RUNNING")
    state = json.loads((tmp_path / "job 1" / "mock.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)
    try:
        status = until(mock, ref, "UNKNOWN")
    finally:
        os.killpg(state["tasks"][""]["pid"], signal.SIGKILL)
    assert "supervisor" in status.reason


def test_ids_are_given_once(mock, submit):
    ids = [submit(mock, "true").job_id for _ in range(5)]
    assert ids == ["1", "2", "3", "4", "5"]


def test_a_folder_that_cannot_be_written_is_refused(mock, tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(LaunchError, match="its process cannot be started") as caught:
        mock.submit(Submission("t", "name", missing / "run.sh", missing))
    assert not caught.value.transient
    assert mock.find("t", LONG_AGO) == []


def test_the_job_gets_the_environment_of_the_submit_command(mock, submit, tmp_path):
    environment = {"PATH": os.environ["PATH"], "ONLY": "this"}
    ref = submit(mock, "env", environment=environment)
    until(mock, ref, "COMPLETED")
    assert "ONLY=this\n" in (tmp_path / "job 1" / "stdout.log").read_text()
