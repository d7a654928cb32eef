"""A submit that outlives who asked for it, and jobs that cannot be written down or looked up."""

import subprocess
from dataclasses import replace

import job_functions as functions
import pytest
from array_requests import ScriptedArray, by_key, end_all, end_task, key_requests
from job_requests import MemoryJobs, Scripted, job_request, leave_exit, run_scripted, status

from examlops_dagster.errors import AssetBuildError, LaunchError, StoreError
from examlops_dagster.schedulers.folder import JobFolder

LOST = LaunchError("Socket timed out", transient=True)


class Died(BaseException):
    pass


def start(folder, **variables):
    """Do what a scheduler does to which the submit comes at last."""
    return subprocess.run(
        ["bash", folder / "run.sh"], cwd=folder, capture_output=True, text=True, check=False,
        timeout=60, env={"PATH": "/usr/bin:/bin", **variables},
    )  # fmt: skip


def test_a_job_that_comes_after_it_was_given_up_runs_nothing(mock):
    """sbatch goes on where its caller is killed, and the next request looks it up before it came."""
    dies = Scripted(status("RUNNING"), submit=[Died()])
    with pytest.raises(Died):
        run_scripted(mock, dies, fingerprint="f")
    late = dies.submissions[0].folder
    after = Scripted(status("COMPLETED"), found=[[]])
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "101"
    done = start(late)
    assert (done.returncode, done.stderr) == (
        0,
        "this job was given up before it started: nothing is run\n",
    )
    assert not JobFolder(late).has_run
    assert start(after.submissions[0].folder).stderr != done.stderr


def test_one_that_began_while_it_was_given_up_is_taken_over(mock):
    dies = Scripted(status("RUNNING"), submit=[Died()])
    with pytest.raises(Died):
        run_scripted(mock, dies, fingerprint="f")
    [submission] = dies.submissions
    after = Scripted(status("COMPLETED"), found=[[], ["77"]])
    withdraw = JobFolder.withdraw

    def begins(folder):
        folder.stdout.touch()
        leave_exit(submission)
        return withdraw(folder)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(JobFolder, "withdraw", begins)
        result = run_scripted(mock, after, fingerprint="f")
    assert result.provenance["hpc_job_id"] == "77"
    assert after.submissions == []


def test_a_submit_without_any_answer_runs_nothing_when_it_comes_later(mock):
    scripted = Scripted(status("UNKNOWN"), submit=[LOST] * 4, found=[[]] * 4)
    with pytest.raises(AssetBuildError, match="it did not answer 4 times"):
        run_scripted(mock, scripted)
    assert "nothing is run" in start(scripted.submissions[0].folder).stderr


def test_tasks_without_any_answer_run_nothing_when_they_come_later(mock):
    scripted = ScriptedArray(submit=[LOST] * 4, found=[[]] * 4)
    found = by_key(mock.another(scripted).run_many(key_requests(functions.of_key, "ab")))
    assert ["did not answer 4 times" in outcome.reason for outcome in found.values()] == [True] * 2
    folder = scripted.submissions[0].folder
    said = [start(folder, SLURM_ARRAY_TASK_ID=index).stderr for index in ("0", "1")]
    assert ["nothing is run" in text for text in said] == [True, True]


class Unwritable(MemoryJobs):
    def record_all(self, jobs):
        raise StoreError("platform.db: database is locked")


class Unreadable(MemoryJobs):
    def unclaimed(self, node, fingerprint):
        raise StoreError("platform.db: no connection")

    def unclaimed_of(self, asset):
        raise StoreError("platform.db: no connection")


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        (Unwritable, "cannot be written down, and is not submitted: platform.db"),
        (Unreadable, "its earlier jobs are not known, so none is submitted: platform.db"),
    ],
)
def test_what_nobody_could_find_again_is_not_submitted(mock, jobs, why):
    mock.jobs = jobs()
    scripted = Scripted(status("RUNNING"))
    with pytest.raises(AssetBuildError, match=why):
        mock.another(scripted).run(job_request(functions.versions, fingerprint="f"))
    for keys in ("a", "ab"):
        array = ScriptedArray()
        found = by_key(mock.another(array).run_many(key_requests(functions.of_key, keys)))
        assert [why in outcome.reason for outcome in found.values()] == [True] * len(keys)
        assert array.submissions == []
    assert scripted.submissions == []


@pytest.mark.parametrize("keys", ["a", "abc"])
def test_the_rows_of_keys_are_on_disk_before_the_submit(mock, keys):
    scripted = ScriptedArray()
    seen = []

    def look(submission):
        seen.extend(row.state for row in mock.jobs.rows.values())
        if submission.array is None:
            leave_exit(submission)
        else:
            end_all(submission)

    scripted.on_submit = look
    by_key(mock.another(scripted).run_many(key_requests(functions.of_key, keys)))
    assert seen == ["SUBMITTING"] * len(keys)


class LockedOnce(MemoryJobs):
    """Refuses the first record of an end."""

    is_locked = True

    def record_all(self, jobs):
        jobs = list(jobs)
        if self.is_locked and any(job.state == "COMPLETED" for job in jobs):
            self.is_locked = False
            raise StoreError("platform.db: database is locked")
        super().record_all(jobs)


@pytest.mark.parametrize("keys", ["", "ab"])
def test_the_end_of_a_job_is_written_down_though_the_database_was_locked(mock, keys):
    mock.jobs = LockedOnce()
    if keys:
        array = ScriptedArray()
        array.on_submit = lambda submission: end_task(submission, 0)
        pauses = []

        def pause(seconds):
            pauses.append(seconds)
            end_task(array.submissions[0], 1)

        requests = [replace(r, pause=pause) for r in key_requests(functions.of_key, keys)]
        by_key(mock.another(array).run_many(requests))
    else:
        scripted = Scripted(status("COMPLETED"))
        scripted.on_submit = leave_exit
        run_scripted(mock, scripted)
    assert not mock.jobs.is_locked
    assert {row.state for row in mock.jobs.rows.values()} == {"COMPLETED"}
