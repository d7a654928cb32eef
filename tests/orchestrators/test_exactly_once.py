"""A build is one job, though the answer to its submission is lost."""

import pytest
from job_requests import Scripted, leave_exit, run_scripted, status

from examlops_dagster.errors import AssetBuildError, LaunchError
from examlops_dagster.formats import decode


def test_a_lost_reply_is_looked_up_before_anything_is_submitted_again(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("COMPLETED"), submit=[lost], found=[["77"]])
    scripted.on_submit = leave_exit
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "77"
    assert len(scripted.submissions) == 1


def test_a_submit_that_did_not_arrive_is_tried_again(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("COMPLETED"), submit=[lost, None], found=[[]])
    scripted.on_submit = lambda s: leave_exit(s) if len(scripted.submissions) > 1 else None
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "102"
    first, again = scripted.submissions
    assert first.token == again.token


def test_while_nobody_knows_whether_it_was_taken_nothing_is_submitted(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("UNKNOWN"), submit=[lost], found=[lost] * 4)
    with pytest.raises(AssetBuildError, match="does not say whether it took the job"):
        run_scripted(mock, scripted, fingerprint="f")
    assert len(scripted.submissions) == 1
    assert mock.jobs.only.state == "SUBMITTING"
    again = Scripted(status("COMPLETED"), found=[["78"]])
    leave_exit(scripted.submissions[0])
    assert run_scripted(mock, again, fingerprint="f").provenance["hpc_job_id"] == "78"
    assert again.submissions == []


def test_the_token_is_on_disk_before_the_submit(mock):
    seen = []
    scripted = Scripted(status("COMPLETED"))

    def look(submission):
        seen.append((submission.folder / "submit.json").exists())
        seen.append(mock.jobs.only.state)
        leave_exit(submission)

    scripted.on_submit = look
    run_scripted(mock, scripted)
    assert seen == [True, "SUBMITTING"]


def test_a_job_that_ran_and_was_forgotten_is_adopted_from_its_folder(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("UNKNOWN"), submit=[lost], found=[[]])
    scripted.on_submit = leave_exit
    result = run_scripted(mock, scripted)
    assert decode(result.value) == 1
    assert len(scripted.submissions) == 1
