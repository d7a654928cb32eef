"""A job whose folder somebody removed before its result was taken."""

import shutil

import pytest
from job_requests import Scripted, leave_exit, run_scripted, status

from examlops_dagster.errors import AssetBuildError


class Died(BaseException):
    """The end of a process that waits."""


@pytest.fixture
def left(mock):
    """Give a job that its submitter left, without its folder."""
    scripted = Scripted(status("RUNNING"))

    def dies(submission):
        shutil.rmtree(submission.folder)
        raise Died

    scripted.on_submit = dies
    with pytest.raises(Died):
        run_scripted(mock, scripted, fingerprint="f")
    return mock


@pytest.mark.parametrize("word", ["COMPLETED", "CANCELLED", "UNKNOWN"])
def test_one_that_ended_is_given_up_for_another(left, word):
    scripted = Scripted(status(word), status("COMPLETED"), found=[["55"]])
    scripted.on_submit = leave_exit
    assert run_scripted(left, scripted, fingerprint="f").provenance["hpc_job_id"] == "101"
    assert any("job 55 on slurm is given up: its folder was removed" in t for t in left.told)
    assert sorted(row.state for row in left.jobs.rows.values()) == ["COMPLETED", "LOST"]


@pytest.mark.parametrize(
    "seen", [status("RUNNING"), status("PENDING"), status("UNKNOWN", seen_at=None)]
)
def test_one_that_may_still_run_gets_no_second_copy(left, seen):
    scripted = Scripted(seen, found=[["55"]])
    with pytest.raises(AssetBuildError, match=r"its folder was removed.* → exa hpc cancel 55"):
        run_scripted(left, scripted, fingerprint="f")
    assert scripted.submissions == []


def test_one_that_never_arrived_is_submitted(left):
    scripted = Scripted(status("COMPLETED"))
    scripted.on_submit = leave_exit
    assert run_scripted(left, scripted, fingerprint="f").provenance["hpc_job_id"] == "101"
