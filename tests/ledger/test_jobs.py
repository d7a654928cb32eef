from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Attempt, BuildState, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.jobs import OPEN_STATES, HpcJobs
from examlops_dagster.schedulers.base import JobState

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=timezone.utc)
NODE = Node("model", "2026-01-05")
TOKEN = "0123456789abcdef"
JOB = HpcJob(
    TOKEN,
    "slurm",
    NOW,
    NODE,
    "/jobs/1",
    "17",
    "alps",
    "asset:model",
    "print",
    "build",
    "run",
    gpus=4,
)


@pytest.fixture
def jobs(any_database):
    return HpcJobs(any_database)


def test_open_states_are_those_that_are_not_final():
    assert set(OPEN_STATES) == {state.word for state in JobState if not state.final}


def test_a_job_is_kept_and_updated_by_its_token(jobs):
    jobs.record(JOB)
    ended = replace(
        JOB,
        state="FAILED",
        reason="exit \0 code 1",
        started_at=NOW + timedelta(seconds=1),
        ended_at=NOW + timedelta(seconds=2.5),
        exit_code=1,
        hosts="n[1-2]",
    )
    jobs.record(ended)
    assert jobs.listed() == [replace(ended, reason="exit \\x00 code 1")]


def test_jobs_are_listed_newest_first_and_by_asset(jobs):
    for n in range(3):
        node = Node("other") if n == 1 else NODE
        jobs.record(replace(JOB, token=f"t{n}", node=node, submitted_at=NOW + timedelta(hours=n)))
    assert [job.token for job in jobs.listed()] == ["t2", "t1", "t0"]
    assert [job.token for job in jobs.listed(asset="model", limit=1)] == ["t2"]
    assert [job.token for job in jobs.ended_before(NOW + timedelta(days=9))] == []


@pytest.mark.parametrize("name", ["17", "model", "model[2026-01-05]", TOKEN, TOKEN[:8]])
def test_a_job_is_named_by_its_id_its_asset_or_its_token(jobs, name):
    jobs.record(JOB)
    assert jobs.named(name) == JOB
    assert jobs.named(TOKEN[:7]) is None


def test_only_jobs_of_the_fingerprint_whose_end_nobody_saw_are_unclaimed(jobs):
    jobs.record(JOB)
    assert jobs.unclaimed(NODE, "print") == [JOB]
    assert jobs.unclaimed(NODE, "another") == []
    assert jobs.unclaimed(Node("model"), "print") == []
    jobs.record(replace(JOB, state="FAILED"))
    assert jobs.unclaimed(NODE, "print") == []
    assert jobs.ended_before(NOW + timedelta(seconds=1)) == [replace(JOB, state="FAILED")]


@pytest.mark.parametrize("state", [None, BuildState.FAILED, BuildState.DIED, BuildState.CANCELLED])
def test_a_success_that_was_not_recorded_is_unclaimed(jobs, any_database, state):
    ledger = BuildsLedger(any_database)
    attempt = Attempt(NODE, "build", "print", "code", {}, "scheduler")
    ledger.begin(attempt)
    if state is not None:
        ledger.fail(attempt, state, "why")
    done = replace(JOB, state="COMPLETED")
    jobs.record(done)
    assert jobs.unclaimed(NODE, "print") == ([] if state is BuildState.FAILED else [done])


@pytest.mark.parametrize("state", ["RUNNING", "SUBMITTING"])
def test_a_job_of_a_build_that_is_recorded_is_not_unclaimed(jobs, any_database, state):
    """Its own end may not have been written down: the database was locked at that moment."""
    ledger = BuildsLedger(any_database)
    attempt = Attempt(NODE, "build", "print", "code", {}, "scheduler")
    ledger.begin(attempt)
    jobs.record(replace(JOB, state=state))
    assert jobs.unclaimed(NODE, "print") != []
    ledger.complete(attempt, 1, "d1", {})
    assert jobs.unclaimed(NODE, "print") == []
    assert jobs.unclaimed_of("model") == {}


def test_a_success_that_a_later_build_replaced_is_not_unclaimed(jobs, any_database):
    ledger = BuildsLedger(any_database)
    lost = Attempt(NODE, "build", "print", "code", {}, "scheduler")
    ledger.begin(lost)
    ledger.fail(lost, BuildState.DIED, "process died")
    jobs.record(replace(JOB, state="COMPLETED"))
    later = Attempt(NODE, "later", "print", "code", {}, "local")
    ledger.begin(later)
    ledger.complete(later, 1, "d1", {})
    assert jobs.unclaimed(NODE, "print") == []


def task(index, **more):
    node = Node("model", f"k{index}")
    made = replace(JOB, node=node, job_id=f"17_{index}", array_index=index, fingerprint=f"p{index}")
    return replace(made, **more)


def test_the_tasks_of_an_array_share_a_token_and_have_a_row_each(jobs):
    tasks = [task(n) for n in range(3)]
    jobs.record_all(tasks)
    jobs.record(replace(tasks[1], state="FAILED"))
    assert jobs.listed() == [tasks[0], replace(tasks[1], state="FAILED"), tasks[2]]
    assert jobs.unclaimed(Node("model", "k2"), "p2") == [tasks[2]]
    assert jobs.unclaimed_of("model") == {tasks[n].node: [tasks[n]] for n in (0, 2)}
    assert jobs.unclaimed_of("other") == {}


@pytest.mark.parametrize(
    ("name", "indices"),
    [("17_1", [1]), ("model[k1]", [1]), ("17", [0, 1, 2]), ("model", [0, 1, 2]),
     (TOKEN, [0, 1, 2]), ("1", []), ("17_", [])],
)  # fmt: skip
def test_a_task_or_its_whole_array_is_meant_by_a_name(jobs, name, indices):
    jobs.record_all(task(n) for n in range(3))
    assert [job.array_index for job in jobs.meant_by(name)] == indices


def test_a_folder_of_an_array_is_old_once_all_tasks_ended(jobs):
    jobs.record_all([task(0, state="COMPLETED"), task(1)])
    later = NOW + timedelta(days=1)
    assert jobs.ended_before(later) == []
    jobs.record(task(1, state="FAILED"))
    assert [job.array_index for job in jobs.ended_before(later)] == [0, 1]
    jobs.record(task(1, state="FAILED", ended_at=later))
    assert jobs.ended_before(later) == []


def test_the_age_of_a_job_counts_from_its_end(jobs):
    jobs.record(replace(JOB, state="COMPLETED", ended_at=NOW + timedelta(days=40)))
    assert jobs.ended_before(NOW + timedelta(days=40)) == []
    assert len(jobs.ended_before(NOW + timedelta(days=41))) == 1


def test_jobs_whose_end_nobody_saw_are_given_by_their_token(jobs):
    jobs.record_all([task(0, state="COMPLETED"), task(1), task(2)])
    jobs.record(replace(JOB, token="new", submitted_at=NOW + timedelta(days=2)))
    found = jobs.open_before(NOW + timedelta(days=1))
    assert {token: [job.array_index for job in rows] for token, rows in found.items()} == {
        TOKEN: [1, 2]
    }
