"""What every scheduler keeps: mock, a real Slurm, and Flux (its fake where there is no real one)."""

import os
from dataclasses import replace
from datetime import timedelta

import pytest
from scheduler_kit import ended, reaches
from waiting import is_alive, wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobState, Scheduler

that_read_resources = pytest.mark.parametrize("scheduler", ["real_slurm", "flux"], indirect=True)
"""All but mock, which takes any."""


def test_it_is_a_scheduler(scheduler):
    assert isinstance(scheduler, Scheduler)


def test_a_program_that_ends_well_is_completed(scheduler, work):
    job = work("echo to-out; echo to-err >&2; pwd > where")
    (ref,) = scheduler.submit(job)
    assert (ref.scheduler, ref.token, ref.index) == (scheduler.name, job.token, None)
    (status,) = ended(scheduler, ref)
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0)
    assert (job.folder / "stdout.log").read_text() == "to-out\n"
    assert (job.folder / "stderr.log").read_text() == "to-err\n"
    assert (job.folder / "where").read_text().strip() == os.path.realpath(job.folder)


@pytest.mark.parametrize(("body", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_a_program_that_ends_badly_is_failed_with_its_code(scheduler, work, body, code):
    (status,) = ended(scheduler, *scheduler.submit(work(body)))
    assert (status.state, status.exit_code) == (JobState.FAILED, code)


def test_its_times_are_told(scheduler, work):
    (ref,) = scheduler.submit(work("sleep 1.2"))
    (status,) = ended(scheduler, ref)
    slack = timedelta(seconds=2)
    assert ref.submitted_at - slack <= status.started_at <= status.ended_at
    assert status.ended_at - ref.submitted_at < timedelta(minutes=14)  # no zone is as near
    assert status.seen_at is not None


def test_it_is_started_once_whatever_it_asks_for(scheduler, work):
    job = work("echo started", resources={"ntasks": 2, "nodes": 2, "cpus_per_task": 2})
    (status,) = ended(scheduler, *scheduler.submit(job))
    assert status.state is JobState.COMPLETED
    assert (job.folder / "stdout.log").read_text().count("started") == 1


def test_its_stdin_is_empty(scheduler, work):
    (status,) = ended(scheduler, *scheduler.submit(work("cat; exit 4")))
    assert status.exit_code == 4


def test_it_gets_the_environment_of_the_submission(scheduler, work):
    value = "a $HOME {{id}} $$ é\n2"
    job = work('printf %s "$GREETING"', environment={**os.environ, "GREETING": value})
    (status,) = ended(scheduler, *scheduler.submit(job))
    assert status.state is JobState.COMPLETED
    assert (job.folder / "stdout.log").read_text() == value


def test_its_folder_may_be_awkward(scheduler, work, awkward_path):
    job = work("echo hello", folder=awkward_path)
    (status,) = ended(scheduler, *scheduler.submit(job))
    assert status.state is JobState.COMPLETED
    assert (awkward_path / "stdout.log").read_text() == "hello\n"


def test_it_is_found_by_its_token_while_it_runs_and_after(scheduler, work):
    job = work("while [ ! -e go ]; do sleep 0.1; done")
    (ref,) = scheduler.submit(job)
    reaches(scheduler, ref, JobState.RUNNING)
    (found,) = scheduler.find(job.token, ref.submitted_at)
    assert (found.job_id, found.token, found.index) == (ref.job_id, ref.token, None)
    (job.folder / "go").touch()
    assert ended(scheduler, ref, found)[1].state is JobState.COMPLETED
    (found,) = scheduler.find(job.token, ref.submitted_at)
    assert found.job_id == ref.job_id


def test_a_token_that_nobody_submitted_finds_nothing(scheduler, work):
    (ref,) = scheduler.submit(work("true"))
    ended(scheduler, ref)
    assert scheduler.find("0123456789abcdef", ref.submitted_at) == []


def test_a_job_of_that_id_with_another_token_is_not_ours(scheduler, work):
    """Ids are used again after a crash of the controller (submitit#1660)."""
    (ref,) = scheduler.submit(work("true"))
    other = replace(ref, token="feedfacefeedface")
    ended(scheduler, ref)
    assert scheduler.poll([other])[other].state is JobState.UNKNOWN


def test_an_unknown_job_is_unknown_and_keeps_no_other(scheduler, work):
    (ref,) = scheduler.submit(work("true"))
    gone = replace(ref, job_id="987654")
    ended(scheduler, ref)
    found = scheduler.poll([gone, ref])
    assert found[gone].state is JobState.UNKNOWN
    assert found[ref].state is JobState.COMPLETED
    assert scheduler.poll([gone])[gone].state is JobState.UNKNOWN


def test_no_jobs_are_no_question(scheduler):
    assert scheduler.poll([]) == {}
    scheduler.cancel([])


def test_a_cancelled_job_is_cancelled_and_its_program_gone(scheduler, work):
    job = work("echo $$ > pid; exec sleep 600")
    (ref,) = scheduler.submit(job)
    reaches(scheduler, ref, JobState.RUNNING)
    pid = wait_until(lambda: _read(job.folder / "pid"))
    scheduler.cancel([ref])
    (status,) = ended(scheduler, ref)
    assert status.state is JobState.CANCELLED
    assert status.exit_code != 0
    wait_until(lambda: not is_alive(pid))


def test_a_program_that_traps_the_signal_is_cancelled_all_the_same(scheduler, work):
    """The exit code of the trap says nothing (facts/slurm.md 2.1, facts/flux.md 4)."""
    job = work("trap 'exit 5' TERM; touch ready; while :; do sleep 0.1; done")
    (ref,) = scheduler.submit(job)
    wait_until((job.folder / "ready").exists)
    reaches(scheduler, ref, JobState.RUNNING)
    scheduler.cancel([ref])
    assert ended(scheduler, ref)[0].state is JobState.CANCELLED


def test_cancelling_what_ended_or_never_was_changes_nothing(scheduler, work):
    (ref,) = scheduler.submit(work("exit 3"))
    ended(scheduler, ref)
    scheduler.cancel([ref, replace(ref, job_id="987654")])
    assert ended(scheduler, ref)[0].state is JobState.FAILED


def test_the_tasks_of_an_array_end_each_on_its_own(scheduler, work):
    job = work('echo "task $index"; [ $index != 2 ] || exit 7', array=4)
    refs = scheduler.submit(job)
    assert [ref.index for ref in refs] == [0, 1, 2, 3]
    found = ended(scheduler, *refs)
    assert [status.exit_code for status in found] == [0, 0, 7, 0]
    assert [status.state is JobState.FAILED for status in found] == [False, False, True, False]
    for index in range(4):
        assert (job.folder / f"stdout.{index}.log").read_text() == f"task {index}\n"
        assert (job.folder / f"stderr.{index}.log").exists()
    again = scheduler.find(job.token, refs[0].submitted_at)
    assert [(ref.job_id, ref.index) for ref in again] == [(r.job_id, r.index) for r in refs]


def test_the_tasks_that_are_in_the_queue_already_are_left_out(scheduler, work):
    job = work('echo "task $index"', array=5, submitted=frozenset({0, 2}))
    refs = scheduler.submit(job)
    assert [ref.index for ref in refs] == [1, 3, 4]
    assert {status.state for status in ended(scheduler, *refs)} == {JobState.COMPLETED}
    assert sorted(path.name for path in job.folder.glob("stdout.*")) == [
        "stdout.1.log",
        "stdout.3.log",
        "stdout.4.log",
    ]


def test_one_task_can_be_cancelled_and_the_others_go_on(scheduler, work):
    job = work("touch ready.$index; while [ ! -e go ]; do sleep 0.1; done", array=3)
    refs = scheduler.submit(job)
    wait_until(lambda: len(list(job.folder.glob("ready.*"))) == 3)
    reaches(scheduler, refs[1], JobState.RUNNING)
    scheduler.cancel([refs[1]])
    assert ended(scheduler, refs[1])[0].state is JobState.CANCELLED
    (job.folder / "go").touch()
    found = ended(scheduler, *refs)
    assert [status.state for status in found] == [
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.COMPLETED,
    ]


@that_read_resources
def test_what_cannot_be_asked_for_is_refused_in_the_schedulers_words(scheduler, work):
    with pytest.raises(LaunchError, match="nosuch") as caught:
        scheduler.submit(work("true", resources={"partition": "nosuch"}))
    assert caught.value.transient is False


@that_read_resources
def test_a_resource_that_is_wrong_is_refused_before_the_scheduler_is_asked(scheduler, work):
    with pytest.raises(LaunchError, match=r"resource nodes=0: write a whole number above 0"):
        scheduler.submit(work("true", resources={"nodes": 0}))


def test_many_jobs_are_asked_about_at_once(scheduler, work):
    refs = [scheduler.submit(work(f"exit {n % 3}"))[0] for n in range(6)]
    assert [status.exit_code for status in ended(scheduler, *refs)] == [0, 1, 2, 0, 1, 2]


def _read(path):
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
