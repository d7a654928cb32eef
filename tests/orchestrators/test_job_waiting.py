"""Waiting for jobs: in the queue, in silence, after a node has failed, many at once."""

import threading
import time

import job_functions as functions
import pytest
from job_requests import IMPATIENT, Scripted, leave_exit, run_scripted, status

from examlops_dagster.errors import (
    AssetBuildError,
    BuildTimeoutError,
    LaunchError,
)
from examlops_dagster.formats import decode


def test_a_request_that_can_never_start_is_refused_and_cancelled(mock):
    waits = status("PENDING", reason="PartitionTimeLimit", never_starts=True)
    scripted = Scripted(waits)
    with pytest.raises(AssetBuildError, match=r"ended REFUSED .*PartitionTimeLimit"):
        run_scripted(mock, scripted)
    assert len(scripted.cancelled) == 1


def test_the_time_in_the_queue_has_a_limit_of_its_own(mock):
    scripted = Scripted(status("PENDING", reason="Priority"))
    with pytest.raises(BuildTimeoutError, match=r"in the queue .*Priority"):
        run_scripted(mock, scripted, resources={"queue_time": "1s"})
    assert len(scripted.cancelled) == 1


def test_a_node_failure_is_tried_again_elsewhere_with_a_token_of_its_own(mock):
    failed = status("NODE_FAIL", nodes="n7")
    scripted = Scripted(failed)

    def second(submission):
        if len(scripted.submissions) > 1:
            leave_exit(submission)
            scripted.statuses = [status("COMPLETED")]

    scripted.on_submit = second
    result = run_scripted(mock, scripted)
    assert result.provenance["hpc_job_id"] == "102"
    first, again = scripted.submissions
    assert first.token != again.token
    assert first.folder != again.folder
    assert again.resources["avoid_nodes"] == ["n7"]
    assert sorted(row.state for row in mock.jobs.rows.values()) == ["COMPLETED", "NODE_FAIL"]


def test_the_budget_of_node_failures_is_kept_and_a_lost_job_has_none(mock):
    scripted = Scripted(status("BOOT_FAIL"))
    with pytest.raises(AssetBuildError, match="ended BOOT_FAIL"):
        run_scripted(mock, scripted)
    assert len(scripted.submissions) == 2
    lost = Scripted(status("UNKNOWN"))
    with pytest.raises(AssetBuildError, match="ended LOST"):
        run_scripted(mock, lost)
    assert len(lost.submissions) == 1


def test_no_answer_is_no_evidence(mock):
    silence = LaunchError("Connection refused", transient=True)
    scripted = Scripted()
    began = time.monotonic()

    def poll(jobs):
        if time.monotonic() - began < 2 * IMPATIENT.lost:
            raise silence
        leave_exit(scripted.submissions[0])
        return dict.fromkeys(jobs, status("COMPLETED"))

    scripted.poll = poll
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "101"


def test_many_jobs_wait_at_once_in_threads(mock):
    results = {}

    def run(n):
        results[n] = decode(mock.run(functions.versions, {"PM100": n}).value)["upstream"]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert results == {n: {"PM100": n} for n in range(8)}
    assert len({row.job_id for row in mock.jobs.rows.values()}) == 8
