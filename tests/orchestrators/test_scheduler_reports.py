"""Public bug reports of other launchers (facts/hpc.md, 5), each with the right outcome."""

import shutil
from dataclasses import replace

import job_functions as functions
import pytest
from array_requests import ScriptedArray, by_key, end_all, end_task, key_requests
from array_requests import status as task_status
from job_requests import IMPATIENT, Scripted, job_request, leave_exit, status

from examlops_dagster.core.seams import LEFT_RUNNING
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
)
from examlops_dagster.formats import decode
from examlops_dagster.schedulers.folder import JobFolder


def run(mock, scripted, *, patience=IMPATIENT, pause=None, **how):
    request = job_request(functions.versions, **how)
    if pause is not None:
        request = replace(request, pause=pause)
    return mock.another(scripted, patience).run(request)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("TIMEOUT", BuildTimeoutError), ("OUT_OF_MEMORY", AssetBuildError),
     ("CANCELLED", BuildCancelledError), ("DEADLINE", BuildTimeoutError)],
)  # fmt: skip
def test_b19_a_job_that_is_ended_from_outside_is_not_awaited_for_ever(mock, word, kind):
    """A flow that waits for a result file never learns of a wall time (executorlib#1037)."""
    scripted = Scripted(status("PENDING"), status("RUNNING"), status("RUNNING"), status(word))
    with pytest.raises(kind, match=f"ended {word}") as caught:
        run(mock, scripted)
    assert type(caught.value) is kind
    assert mock.jobs.only.state == word


@pytest.mark.parametrize("oom_kills", [0, 1])
def test_b20_a_driver_that_ends_before_it_closed_pipes_built_nothing(mock, oom_kills):
    """The driver runs out of memory, Pipes never closes; the asset is green (dagster#17868)."""
    scripted = Scripted(status("COMPLETED"))

    def on_submit(submission):
        opened = '{"__dagster_pipes_version": "0.1", "method": "opened", "params": {}}\n'
        JobFolder(submission.folder).messages.write_text(opened)
        leave_exit(submission, oom_kills=oom_kills)

    scripted.on_submit = on_submit
    why = "killed for memory" if oom_kills else "opened Dagster Pipes and never closed it"
    with pytest.raises(AssetBuildError, match=why):
        run(mock, scripted)


def test_b30_a_bad_node_does_not_eat_all_retries_within_a_minute(mock):
    """One bad node fails each retry at once (toil#5452): back off, and name another node."""
    mock.environment["EXAMLOPS_HPC_INFRA_RETRIES"] = "3"
    scripted = Scripted(status("NODE_FAIL", nodes="n1"))

    def on_submit(submission):
        number = len(scripted.submissions)
        scripted.statuses = [status("NODE_FAIL", nodes=f"n{number}")]
        if number == 4:
            leave_exit(submission)
            scripted.statuses = [status("COMPLETED")]

    scripted.on_submit = on_submit
    pauses = []
    patience = replace(IMPATIENT, again=10.0, files=0.0)
    result = run(mock, scripted, patience=patience, pause=pauses.append)
    assert decode(result.value) == 1
    assert [seconds for seconds in pauses if seconds >= 10] == [10, 20, 40]
    asked = [s.resources.get("avoid_nodes") for s in scripted.submissions]
    assert asked == [None, ["n1"], ["n1", "n2"], ["n1", "n2", "n3"]]


def test_b30_of_many_keys_each_backs_off_and_keeps_no_other_waiting(mock):
    scripted = ScriptedArray()

    def on_submit(submission):
        if len(scripted.submissions) > 1:
            end_all(submission)
            return
        scripted.told["100", 0] = task_status("NODE_FAIL", nodes="n1")
        end_task(submission, 1)

    scripted.on_submit = on_submit
    requests = key_requests(functions.of_key, "ab")
    patience = replace(IMPATIENT, again=1.0)
    order = [r.node.partition for r, _ in mock.another(scripted, patience).run_many(requests)]
    assert order == ["b", "a"]
    first, second = mock.jobs.rows.values() if len(mock.jobs.rows) == 2 else (
        min(mock.jobs.rows.values(), key=lambda row: row.submitted_at),
        max(mock.jobs.rows.values(), key=lambda row: row.submitted_at),
    )  # fmt: skip
    assert (second.submitted_at - first.submitted_at).total_seconds() >= 1


def test_b31_a_second_try_that_is_refused_fails_its_key_alone_and_touches_no_other_files(mock):
    """The requeue of an array's element is refused; a second save clashes (submitit#1617)."""
    scripted = ScriptedArray(submit=[None, LaunchError("Requested operation is disabled")])

    def on_submit(submission):
        end_task(submission, 1)
        scripted.told["100", 0] = task_status("NODE_FAIL")

    scripted.on_submit = on_submit
    found = by_key(mock.another(scripted).run_many(key_requests(functions.of_key, "ab")))
    assert "refused the job of numbers[a]: Requested operation is disabled" in found["a"].reason
    assert decode(found["b"].value) == 1
    first, second = scripted.submissions
    assert first.folder != second.folder
    assert {row.state for row in mock.jobs.rows.values()} == {"NODE_FAIL", "COMPLETED", "REFUSED"}


def test_b51_the_folder_of_one_attempt_is_never_that_of_another(mock):
    """A removal of a run's folder races with its next use (dagster-slurm#205)."""
    scripted = Scripted(status("NODE_FAIL"))
    folders = []

    def on_submit(submission):
        folders.append(submission.folder)
        if len(folders) == 2:
            shutil.rmtree(folders[0])  # whoever cleans up behind the first
            leave_exit(submission)
            scripted.statuses = [status("COMPLETED")]

    scripted.on_submit = on_submit
    assert decode(run(mock, scripted).value) == 1
    assert len(set(folders)) == 2


def test_b64_a_job_that_is_shown_as_running_for_ever_is_given_up_and_cancelled(mock):
    """exec fails on some ranks, the job is in RUN for ever (flux-core#4195)."""
    scripted = Scripted(status("RUNNING"))
    patience = replace(IMPATIENT, overrun=0.5)
    with pytest.raises(BuildTimeoutError, match=r"shown as running 0.5 s after its time limit"):
        run(mock, scripted, patience=patience, timeout_seconds=0.5)
    assert len(scripted.cancelled) == 1


def test_b64_a_cancel_without_effect_is_reported(mock):
    scripted = Scripted(status("RUNNING"))
    scripted.cancel = lambda jobs: None

    def pause(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(mock, scripted, patience=replace(IMPATIENT, cancel=0.3), pause=pause)
    assert getattr(caught.value, LEFT_RUNNING) is True
    assert any("was cancelled, but is still there (RUNNING)" in text for text in mock.told)


def test_b65_after_an_error_the_next_question_is_asked_and_the_job_is_followed(mock):
    """An executor stays broken after one error (flux-core#6698)."""
    broken = LaunchError("broken pipe", transient=True)
    scripted = Scripted(status("RUNNING"), broken, broken, status("RUNNING"), status("COMPLETED"))
    polls = []
    original = scripted.poll

    def poll(jobs):
        polls.append(jobs)
        if len(polls) == 4:
            leave_exit(scripted.submissions[0])
        return original(jobs)

    scripted.poll = poll
    assert decode(run(mock, scripted).value) == 1
    assert len(scripted.submissions) == 1


def test_b66_a_task_whose_end_is_never_told_is_seen_by_its_exit_file_and_the_other_way_round(mock):
    """Of 10,000 tasks some never send their end (flux-sched#1354)."""
    scripted = ScriptedArray()
    keys = [f"k{n}" for n in range(20)]

    def on_submit(submission):
        for index in range(20):
            if index != 7:
                end_task(submission, index)
            if index != 3:  # its end is never told
                scripted.told["100", index] = task_status("COMPLETED")
        scripted.told["100", 3] = task_status("RUNNING")

    scripted.on_submit = on_submit
    found = by_key(mock.another(scripted).run_many(key_requests(functions.of_key, keys)))
    assert "left no exit file" in found.pop("k7").reason  # and nothing proves its success
    assert {decode(result.value) for result in found.values()} == set(range(20)) - {7}


@pytest.mark.parametrize("code", [0, 3])
def test_b68_nobody_waits_for_the_clean_up_of_a_job_that_has_ended(mock, code):
    """Waiting for `clean` never ends (flux-core#7766); its end is known before."""
    scripted = Scripted(status("COMPLETING"))
    scripted.on_submit = lambda submission: leave_exit(submission, code)
    if code == 0:
        assert decode(run(mock, scripted).value) == 1
        return
    with pytest.raises(AssetBuildError, match="exit code 3"):
        run(mock, scripted)


def test_b68_a_clean_up_without_any_proof_ends_as_lost(mock):
    scripted = Scripted(status("RUNNING"), status("COMPLETING"))
    with pytest.raises(AssetBuildError, match=r"ended LOST .*left no exit file, and is ending"):
        run(mock, scripted)
    assert len(scripted.submissions) == 1
