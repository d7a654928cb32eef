"""A job that was left running for what has changed since ends before another is submitted."""

from dataclasses import replace

import job_functions as functions
import pytest
from array_requests import ScriptedArray, by_key, end_all, key_requests
from job_requests import IMPATIENT, Scripted, job_request, leave_exit, run_scripted, status

from examlops_dagster.errors import AssetBuildError


class Died(BaseException):
    pass


def leave(mock, scripted, fingerprint="f"):
    """Submit a job, and die before its end."""

    def dies(text):
        if "RUNNING" in text:
            raise Died

    waiter = mock.another(scripted)
    waiter.progress = dies
    with pytest.raises(Died):
        waiter.run(job_request(functions.versions, fingerprint=fingerprint))
    return next(iter(mock.jobs.rows.values()))


def state_of(mock, row):
    return mock.jobs.rows[row.key].state


def test_it_is_cancelled_and_gone_before_another_is_submitted(mock):
    left = leave(mock, Scripted(status("RUNNING")))
    after = Scripted(status("RUNNING"))
    order = []
    after.cancel = lambda jobs: (order.append("cancel"), after.cancelled.extend(jobs))

    def on_submit(submission):
        order.append("submit")
        assert state_of(mock, left) == "CANCELLED"
        after.cancelled.clear()
        after.statuses = [status("COMPLETED")]
        leave_exit(submission)

    after.on_submit = on_submit
    run_scripted(mock, after, fingerprint="g")
    assert order == ["cancel", "submit"]
    assert any("what it is built from has changed since" in text for text in mock.told)


def test_one_that_cannot_be_ended_lets_nothing_be_submitted(mock):
    leave(mock, Scripted(status("RUNNING")))
    after = Scripted(status("RUNNING"))
    after.cancel = lambda jobs: None
    patience = replace(IMPATIENT, cancel=0.2)
    with pytest.raises(AssetBuildError, match=r"but is still there \(RUNNING\) → exa hpc cancel"):
        mock.another(after, patience).run(job_request(functions.versions, fingerprint="g"))
    assert after.submissions == []


def test_one_that_has_ended_is_taken_up_by_nobody_once_another_ran(mock):
    scripted = Scripted(status("RUNNING"))
    scripted.on_submit = leave_exit
    left = leave(mock, scripted)
    after = Scripted(status("COMPLETED"))
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="g").provenance["hpc_job_id"] == "101"
    assert after.cancelled == []
    assert state_of(mock, left) == "COMPLETED"
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "102"


def test_those_of_many_keys_are_cancelled_together(mock):
    first = ScriptedArray()
    waiter = mock.another(first)
    waiting = waiter.run_many(key_requests(functions.of_key, "abc"))

    def dies(text):
        if "PENDING" in text:
            raise Died

    waiter.progress = dies
    with pytest.raises(Died):
        by_key(waiting)
    assert {row.state for row in mock.jobs.rows.values()} == {"PENDING"}
    after = ScriptedArray()
    after.on_submit = lambda submission: (after.cancelled.clear(), end_all(submission))
    requests = [
        job_request(functions.of_key, {"key": key}, partition=key, fingerprint=f"new {key}")
        for key in "abc"
    ]
    calls = []
    after.cancel = lambda jobs: (calls.append(len(jobs)), after.cancelled.extend(jobs))
    found = by_key(mock.another(after).run_many(requests))
    assert not any(isinstance(outcome, AssetBuildError) for outcome in found.values()), found
    assert calls == [3]
    states = sorted(row.state for row in mock.jobs.rows.values())
    assert states == ["CANCELLED"] * 3 + ["COMPLETED"] * 3


def test_those_of_many_keys_that_cannot_be_ended_let_nothing_be_submitted(mock):
    first = ScriptedArray()
    waiter = mock.another(first)

    def dies(text):
        if "PENDING" in text:
            raise Died

    waiter.progress = dies
    with pytest.raises(Died):
        by_key(waiter.run_many(key_requests(functions.of_key, "ab")))
    after = ScriptedArray()
    after.cancel = lambda jobs: None
    requests = [
        job_request(functions.of_key, {"key": key}, partition=key, fingerprint=f"new {key}")
        for key in "ab"
    ]
    patience = replace(IMPATIENT, cancel=0.2)
    found = by_key(mock.another(after, patience).run_many(requests))
    assert ["but is still there" in outcome.reason for outcome in found.values()] == [True, True]
    assert after.submissions == []
