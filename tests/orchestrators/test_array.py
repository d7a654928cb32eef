import itertools
import os
import signal
import threading
import time
from pathlib import Path

import job_functions as functions
import pytest
from array_requests import ScriptedArray, by_key, end_all, end_task, key_requests, node, status
from job_requests import IMPATIENT, Mock
from needs import library
from waiting import is_alive, wait_until

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.seams import LEFT_RUNNING, ManyAtOnce
from examlops_dagster.errors import AssetBuildError, BuildCancelledError, LaunchError
from examlops_dagster.formats import decode

KEYS = [f"k{n}" for n in range(30)]


def run_scripted(mock, scripted, keys, **how):
    return by_key(mock.another(scripted).run_many(key_requests(functions.of_key, keys, **how)))


def test_many_keys_are_one_submission_and_a_bad_one_fails_alone(mock):
    keys = [*KEYS[:5], "bad key", *KEYS[5:]]
    assert isinstance(mock.orchestrator, ManyAtOnce)
    found = by_key(mock.orchestrator.run_many(key_requests(functions.of_key, keys)))
    assert sorted(found) == sorted(keys)
    error = found.pop("bad key")
    assert isinstance(error, AssetBuildError)
    assert (
        error.reason == "job 1_5 on mock ended FAILED (exit code 1): ValueError: bad key is no good"
    )
    assert "building bad key" in error.details
    assert 'raise ValueError(f"{key} is no good")' in error.details
    for key, result in found.items():
        assert decode(result.value) == {"key": key, "task": key}
    assert result.provenance["hpc_job_id"] == f"1_{keys.index(key)}"
    assert len(mock.folders) == 1
    rows = {row.node.partition: row for row in mock.jobs.rows.values()}
    assert {row.token for row in rows.values()} == {mock.folders[0].name}
    assert (rows["bad key"].state, rows["bad key"].job_id) == ("FAILED", "1_5")
    assert (rows["k0"].state, rows["k0"].array_index, rows["k0"].exit_code) == ("COMPLETED", 0, 0)
    assert any("submitted 31 tasks as job 1 on mock" in text for text in mock.told)


def test_one_key_is_a_plain_job(mock):
    [(request, result)] = mock.orchestrator.run_many(key_requests(functions.of_key, ["k1"]))
    assert (request.node, decode(result.value)["task"]) == (node("k1"), "k1")
    assert (mock.jobs.only.job_id, mock.jobs.only.array_index) == ("1", None)


def test_no_keys_are_no_job(mock):
    assert list(mock.orchestrator.run_many([])) == []
    assert mock.folders == []


def test_values_and_versions_reach_each_task(mock):
    pandas = library("pandas")

    def requests():
        frame = pandas.DataFrame
        arguments = {"a": frame({"x": [1]}), "b": frame({"x": [2]})}
        for request in key_requests(functions.frame, ["a", "b"], lambda k: {"table": arguments[k]}):
            upstreams = (Upstream("table", parameter="table"),)
            object.__setattr__(request.declaration, "upstreams", upstreams)
            yield request

    found = by_key(mock.orchestrator.run_many(requests()))
    assert {k: decode(r.value)["twice"].tolist() for k, r in found.items()} == {"a": [2], "b": [4]}
    versions = key_requests(functions.of_key, ["a", "b"], lambda k: {"key": k, "PM100": ord(k)})
    found = by_key(mock.orchestrator.run_many(versions))
    assert {k: decode(r.value)["PM100"] for k, r in found.items()} == {"a": 97, "b": 98}


def test_requests_are_taken_one_by_one_and_given_back_without_their_values(mock):
    alive = []

    def requests():
        for request in key_requests(
            functions.of_key, ["a", "b", "c"], lambda k: {"key": k, "PM100": 1}
        ):
            alive.append(len(mock.folders))
            yield request

    for request, _ in mock.orchestrator.run_many(requests()):
        assert request.arguments == {"PM100": 1}
    assert alive == [0, 0, 1]  # the first waits for a second one, to be an array


def test_what_cannot_be_sent_fails_alone(mock):
    def arguments(key):
        return {"key": key, **({"table": threading.Lock()} if key == "b" else {})}

    found = by_key(mock.orchestrator.run_many(key_requests(functions.of_key, "abc", arguments)))
    assert "the argument table cannot be sent to a job" in found.pop("b").reason
    assert {k: decode(r.value)["key"] for k, r in found.items()} == {"a": "a", "c": "c"}


def test_results_come_as_they_end(mock, tmp_path):
    def arguments(key):
        return {"key": key, "folder": str(tmp_path), "waits": key == "a"}

    requests = key_requests(functions.of_key_waiting, ["a", "b", "c"], arguments)
    order = []
    for request, _ in mock.orchestrator.run_many(requests):
        order.append(request.node.partition)
        if len(order) == 2:
            (tmp_path / "go on").touch()
    assert sorted(order[:2]) == ["b", "c"]
    assert order[-1] == "a"


def test_an_array_with_few_slots_runs_few_tasks_at_once(tmp_path):
    mock = Mock(tmp_path, EXAMLOPS_ARRAY_LIMIT="1")

    def arguments(key):
        return {"key": key, "folder": str(tmp_path), "waits": False}

    by_key(mock.orchestrator.run_many(key_requests(functions.of_key_waiting, "abc", arguments)))
    rows = sorted(mock.jobs.rows.values(), key=lambda row: row.started_at)
    for former, later in itertools.pairwise(rows):
        assert former.ended_at <= later.started_at


# submit once


def test_a_lost_reply_is_looked_up_and_only_what_is_missing_is_submitted(mock):
    scripted = ScriptedArray(
        submit=[LaunchError("timed out", transient=True)],
        found=[[("100", 0), ("100", 2)]],
    )
    scripted.on_submit = lambda submission: [end_task(submission, n) for n in range(4)]
    found = run_scripted(mock, scripted, "abcd")
    assert [s.submitted for s in scripted.submissions] == [frozenset(), frozenset({0, 2})]
    assert {k: r.provenance["hpc_job_id"] for k, r in found.items()} == {
        "a": "100_0",
        "c": "100_2",
        "b": "100_1",
        "d": "100_3",
    }
    assert len({s.token for s in scripted.submissions}) == 1


def test_a_lost_reply_of_an_array_that_is_there_submits_nothing_more(mock):
    scripted = ScriptedArray(
        submit=[LaunchError("timed out", transient=True)],
        found=[[("7", n) for n in range(3)]],
    )
    requests = key_requests(functions.of_key, "abc")
    results = mock.another(scripted).run_many(requests)
    thread = threading.Thread(
        target=lambda: end_all(wait_until(lambda: scripted.submissions and scripted.submissions[0]))
    )
    thread.start()
    assert {r.provenance["hpc_job_id"] for r in by_key(results).values()} == {"7_0", "7_1", "7_2"}
    thread.join()
    assert len(scripted.submissions) == 1


def test_while_nobody_knows_whether_it_was_taken_nothing_is_submitted_again(mock):
    lost = LaunchError("timed out", transient=True)
    scripted = ScriptedArray(submit=[lost], found=[lost] * 4)
    found = run_scripted(mock, scripted, "abc")
    assert len(scripted.submissions) == 1
    assert all("does not say whether it took the job" in e.reason for e in found.values())
    scripted.found = [[("9", n) for n in range(3)]]
    end_all(scripted.submissions[0])
    found = run_scripted(mock, scripted, "abc")
    assert len(scripted.submissions) == 1
    assert {r.provenance["hpc_job_id"] for r in found.values()} == {"9_0", "9_1", "9_2"}


def test_tasks_that_ran_and_were_forgotten_are_adopted_from_the_folder(mock):
    lost = LaunchError("timed out", transient=True)
    scripted = ScriptedArray(submit=[lost])
    original = scripted.submit

    def submit(submission):
        end_all(submission)
        return original(submission)

    scripted.submit = submit
    found = run_scripted(mock, scripted, "abc")
    assert len(scripted.submissions) == 1
    assert {r.provenance["hpc_job_id"] for r in found.values()} == {""}


def test_a_refused_array_fails_each_key(mock):
    found = run_scripted(mock, ScriptedArray(submit=[LaunchError("Invalid account")]), "abc")
    for key, error in found.items():
        assert error.reason == f"slurm refused the job of numbers[{key}]: Invalid account"
    assert {row.state for row in mock.jobs.rows.values()} == {"REFUSED"}


def test_the_rows_and_the_token_are_there_before_the_submit(mock):
    scripted = ScriptedArray()
    seen = []

    def on_submit(submission):
        seen.extend((row.token, row.state) for row in mock.jobs.rows.values())
        seen.append(submission.folder.joinpath("submit.json").is_file())
        end_all(submission)

    scripted.on_submit = on_submit
    run_scripted(mock, scripted, "ab")
    token = scripted.submissions[0].token
    assert seen == [(token, "SUBMITTING"), (token, "SUBMITTING"), True]


# what a cluster does to one of many


def test_a_lost_node_is_tried_again_elsewhere_for_its_key_alone(mock):
    scripted = ScriptedArray()

    def on_submit(submission):
        if len(scripted.submissions) == 1:
            for index in (0, 2):
                end_task(submission, index)
            scripted.told["100", 1] = status("NODE_FAIL", nodes="n7")
        else:
            end_all(submission)

    scripted.on_submit = on_submit
    requests = key_requests(functions.of_key, "abc", lambda k: {"key": k, "PM100": 3})
    found = by_key(mock.another(scripted).run_many(requests))
    first, second = scripted.submissions
    assert (first.array, second.array) == (3, 1)
    assert second.token != first.token
    assert second.resources["avoid_nodes"] == ["n7"]
    assert {k: r.provenance["hpc_job_id"] for k, r in found.items()} == {
        "a": "100_0",
        "c": "100_2",
        "b": "101_0",
    }
    variables = (second.folder / "in.0" / "variables.sh").read_text()
    assert "EXAMLOPS_PARTITION=b\n" in variables
    assert """EXAMLOPS_UPSTREAM='{"PM100": 3}'""" in variables
    call = (second.folder / "in.0" / "call.json").read_text()
    assert '"key": "b"' in call
    assert sorted(r.state for r in mock.jobs.rows.values()) == ["COMPLETED"] * 3 + ["NODE_FAIL"]


def test_the_budget_of_node_failures_is_that_of_each_key(mock):
    scripted = ScriptedArray()

    def on_submit(submission):
        number = str(99 + len(scripted.submissions))
        for index in range(submission.array):
            scripted.told[number, index] = status("NODE_FAIL", nodes=f"n{index}")

    scripted.on_submit = on_submit
    found = run_scripted(mock, scripted, "ab")
    assert [s.array for s in scripted.submissions] == [2, 2]  # those of one moment go together
    assert scripted.submissions[1].resources["avoid_nodes"] == ["n0", "n1"]
    assert all("ended NODE_FAIL" in error.reason for error in found.values())


@pytest.mark.parametrize("word", ["OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"])
def test_the_state_of_a_task_outranks_its_exit_code(mock, word):
    scripted = ScriptedArray()

    def on_submit(submission):
        end_all(submission)
        scripted.told["100", 1] = status(word)

    scripted.on_submit = on_submit
    found = run_scripted(mock, scripted, "abc")
    assert f"ended {word}" in found.pop("b").reason
    assert {decode(r.value) for r in found.values()} == {0, 2}


def test_what_can_never_start_is_refused_and_cancelled_together(mock):
    scripted = ScriptedArray()
    for index in range(3):
        scripted.told["100", index] = status("PENDING", reason="BadConstraints", never_starts=True)
    found = run_scripted(mock, scripted, "abc")
    assert all("it can never start: BadConstraints" in e.reason for e in found.values())
    assert {ref.index for ref in scripted.cancelled} == {0, 1, 2}


def test_a_task_of_which_nothing_is_known_is_lost_alone(mock):
    scripted = ScriptedArray()

    def on_submit(submission):
        end_task(submission, 0)
        scripted.told["100", 1] = status("UNKNOWN", reason="no such job")

    scripted.on_submit = on_submit
    found = run_scripted(mock, scripted, "ab")
    assert "ended LOST" in found["b"].reason
    assert decode(found["a"].value) == 0
    assert len(scripted.submissions) == 1


# re-attach


def test_an_array_whose_waiter_died_is_taken_over_with_what_ended_meanwhile(mock, tmp_path):
    def requests():
        return key_requests(
            functions.of_key_waiting,
            ["a", "b", "c"],
            lambda k: {"key": k, "folder": str(tmp_path), "waits": k == "b"},
        )

    first = mock.orchestrator.run_many(requests())
    next(first)
    del first  # closed: nobody waits any more
    (tmp_path / "go on").touch()
    found = by_key(mock.another().run_many(requests()))
    assert decode(found["b"].value) == "b"
    assert len((tmp_path / "started-b").read_text().split()) == 1
    assert any("taking over" in text for text in mock.told)


def test_results_that_nobody_took_are_taken_up_by_the_next_request(mock):
    """Many end between two looks, and whoever records one after the other may be stopped."""
    scripted = ScriptedArray()
    scripted.on_submit = end_all
    results = mock.another(scripted).run_many(key_requests(functions.of_key, "abc"))
    taken, _ = next(results)
    results.close()
    left = [key for key in "abc" if key != taken.node.partition]
    found = by_key(mock.another(scripted).run_many(key_requests(functions.of_key, left)))
    assert len(scripted.submissions) == 1
    assert {key: decode(result.value) for key, result in found.items()} == {
        key: "abc".index(key) for key in left
    }
    assert {row.state for row in mock.jobs.rows.values()} == {"COMPLETED"}


def test_keys_of_which_the_submit_never_arrived_are_submitted_and_the_others_taken_over(mock):
    lost = LaunchError("timed out", transient=True)
    scripted = ScriptedArray(submit=[lost], found=[lost] * 4)
    run_scripted(mock, scripted, "abc")
    scripted.found = [[("9", 0)]]
    end_task(scripted.submissions[0], 0)
    scripted.on_submit = end_all
    found = run_scripted(mock, scripted, "abc")
    assert [s.array for s in scripted.submissions] == [3, 2]
    assert found["a"].provenance["hpc_job_id"] == "9_0"
    assert sorted(r.state for r in mock.jobs.rows.values()) == ["COMPLETED"] * 3 + ["REFUSED"] * 2


@pytest.mark.parametrize(("number", "gone"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupt_cancels_the_whole_array_or_leaves_it(mock, tmp_path, number, gone):
    def arguments(key):
        return {"key": key, "folder": str(tmp_path), "waits": key != "a"}

    def interrupt():
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 3)
        os.kill(os.getpid(), number)

    def stop(*_):
        raise KeyboardInterrupt

    former = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=interrupt)
    thread.start()
    requests = key_requests(functions.of_key_waiting, ["a", "b", "c"], arguments)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            list(mock.orchestrator.run_many(requests))
    finally:
        for n, handler in former.items():
            signal.signal(n, handler)
    thread.join()
    assert getattr(caught.value, LEFT_RUNNING) is not gone
    pids = [int(Path(tmp_path, f"started-{key}").read_text()) for key in "bc"]
    if gone:
        wait_until(lambda: not any(map(is_alive, pids)))
    else:
        assert all(map(is_alive, pids))
        assert any("are left running" in text for text in mock.told)
        for row in mock.jobs.rows.values():
            [ref] = [r for r in mock.scheduler.find(row.token, row.submitted_at)
                     if r.index == row.array_index]  # fmt: skip
            mock.scheduler.cancel([ref])


def test_one_task_that_somebody_cancels_is_a_cancelled_build(mock, tmp_path):
    def arguments(key):
        return {"key": key, "folder": str(tmp_path), "waits": key == "b"}

    results = mock.orchestrator.run_many(key_requests(functions.of_key_waiting, "ab", arguments))
    next(results)
    wait_until((tmp_path / "started-b").exists)
    [row] = [row for row in mock.jobs.rows.values() if row.node == node("b")]
    refs = mock.scheduler.find(row.token, row.submitted_at)
    mock.scheduler.cancel([ref for ref in refs if ref.index == 1])
    [(_, error)] = results
    assert isinstance(error, BuildCancelledError)


# scale


def test_thousands_of_tasks_are_looked_at_with_one_question_a_look(mock):
    keys = [f"k{n}" for n in range(2000)]
    scripted = ScriptedArray()
    scripted.on_submit = end_all
    started = time.process_time()
    found = run_scripted(mock, scripted, keys)
    assert len(found) == 2000
    assert scripted.polls < 30
    assert time.process_time() - started < 20


def test_what_a_task_says_over_pipes_is_of_its_key(mock):
    heard = []
    requests = key_requests(
        functions.logs_to_pipes,
        ["a", "b"],
        lambda _: {},
        heard=lambda method, params: heard.append(method),
    )
    found = by_key(mock.orchestrator.run_many(requests))
    assert {k: decode(r.value)["partition"] for k, r in found.items()} == {"a": "a", "b": "b"}
    assert {r.metadata["loss"] for r in found.values()} == {0.5}
    assert heard.count("opened") == 2
    assert IMPATIENT.again == 0
