"""A job that its submitter left is taken over or adopted; an interrupt decides whether it goes on."""

import os
import signal
import threading
from dataclasses import replace

import job_functions as functions
import pytest
from job_requests import IMPATIENT, Scripted, job_request, leave_exit, run_scripted, status
from waiting import wait_until

from examlops_dagster.errors import (
    AssetBuildError,
)
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


def test_a_job_that_still_runs_is_taken_over(mock, tmp_path):
    arguments = {"folder": str(tmp_path)}
    told = []

    class Died(BaseException):
        pass

    def dies(text):
        if "RUNNING" in text:
            raise Died

    first = SchedulerOrchestrator(
        mock.jobs, mock.scheduler, mock.environment, patience=IMPATIENT, progress=dies
    )
    with pytest.raises(Died):
        first.run(job_request(functions.talks, arguments, fingerprint="f"))

    def lets_it_end(text):
        told.append(text)
        if "taking over job 1" in text:
            (tmp_path / "go on").touch()

    second = SchedulerOrchestrator(
        mock.jobs, mock.scheduler, mock.environment, patience=IMPATIENT, progress=lets_it_end
    )
    result = second.run(job_request(functions.talks, arguments, fingerprint="f"))
    assert decode(result.value) == "talked"
    assert result.provenance["hpc_job_id"] == "1"
    assert len(mock.folders) == 1
    assert len(list(tmp_path.glob("started-*"))) == 1
    assert any("taking over job 1" in text for text in told)


def test_a_job_that_ended_meanwhile_is_adopted(mock):
    scripted = Scripted(status("RUNNING"))

    class Died(BaseException):
        pass

    def dies(submission):
        leave_exit(submission)
        raise Died

    scripted.on_submit = dies
    with pytest.raises(Died):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("COMPLETED"), found=[["55"]])
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "55"
    assert after.submissions == []


def test_a_failure_that_nobody_saw_is_told_once(mock):
    scripted = Scripted(status("FAILED"), submit=[KeyError("died")])
    scripted.on_submit = lambda submission: leave_exit(submission, 1, result=False)
    with pytest.raises(KeyError):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("FAILED"), found=[["55"]])
    with pytest.raises(AssetBuildError, match="job 55 on slurm ended FAILED"):
        run_scripted(mock, after, fingerprint="f")
    after.on_submit = leave_exit
    after.statuses = [status("COMPLETED")]
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "101"


def test_what_was_cancelled_meanwhile_is_submitted_again(mock):
    scripted = Scripted(status("CANCELLED"), submit=[KeyError("died")])
    with pytest.raises(KeyError):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("CANCELLED"), status("COMPLETED"), found=[["55"]])
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "101"


@pytest.mark.parametrize(("number", "cancelled"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_ctrl_c_cancels_and_sees_it_gone_and_a_sigterm_leaves_it(mock, tmp_path, number, cancelled):
    class Interrupted(BaseException):
        pass

    def interrupt(*_):
        raise Interrupted

    former = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}

    def send():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        wait_until(lambda: mock.jobs.only.state == "RUNNING")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            mock.run(functions.talks, {"folder": str(tmp_path)}, fingerprint="f")
    finally:
        for n, handler in former.items():
            signal.signal(n, handler)
        thread.join()
    row = mock.jobs.only
    [ref] = mock.scheduler.find(row.token, row.submitted_at)
    state = mock.scheduler.poll([ref])[ref].state.word
    if cancelled:
        assert (state, row.state) == ("CANCELLED", "CANCELLED")
    else:
        assert (state, row.state) == ("RUNNING", "RUNNING")
        (tmp_path / "go on").touch()
        mock.run(functions.talks, {"folder": str(tmp_path)}, fingerprint="f")
        assert len(mock.folders) == 1


def test_the_request_decides_what_an_interrupt_means(mock, tmp_path):
    asked = []

    def meant(number):
        asked.append(number)
        return False

    def interrupt(text):
        if "RUNNING" in text:
            raise KeyboardInterrupt

    orchestrator = SchedulerOrchestrator(
        mock.jobs, mock.scheduler, mock.environment, patience=IMPATIENT, progress=interrupt
    )
    request = job_request(functions.talks, {"folder": str(tmp_path)})
    with pytest.raises(KeyboardInterrupt):
        orchestrator.run(replace(request, ends_job=meant))
    assert asked == [None]
    assert mock.jobs.only.state == "RUNNING"
    row = mock.jobs.only
    [ref] = mock.scheduler.find(row.token, row.submitted_at)
    (tmp_path / "go on").touch()
    wait_until(lambda: mock.scheduler.poll([ref])[ref].state.final)
