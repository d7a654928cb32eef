import functools
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import worker_functions as functions
from build_requests import alive, pids_in, request
from limits import once_begun
from waiting import is_alive, wait_until

from examlops_dagster.core.declarations import NodeType, Upstream
from examlops_dagster.core.seams import AssetOrchestrator
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
    ResultError,
)
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.local import LocalOrchestrator


def value_of(orchestrator, function, arguments=None, **more):
    return decode(orchestrator.run(request(function, arguments, **more)).value)


def test_it_is_an_orchestrator(worker):
    assert isinstance(worker, AssetOrchestrator)
    assert worker.name == "local"


def test_a_value_comes_back_with_its_provenance(local):
    result = local.run(request(functions.arguments, {"a": 1, "b": (2, {3})}))
    assert decode(result.value) == {"a": 1, "b": (2, {3})}
    assert result.provenance == {"orchestrator": "local"}
    assert (result.data_version, result.metadata, result.update_detected) == (None, {}, None)


def test_nothing_is_no_value(local):
    assert local.run(request(functions.nothing)).value is None


def test_an_output_comes_back_in_its_parts(local):
    result = local.run(request(functions.output))
    assert decode(result.value) == {"rows": 3}
    assert result.data_version == "v3"
    assert result.metadata == {"rows": 3}


def test_the_serializer_is_the_declared_one(local):
    assert local.run(request(functions.pid, serializer="pickle")).value.format == "pickle"


def test_a_closure_a_lambda_and_a_partial_are_called(local):
    base = 40
    assert value_of(local, lambda n: base + n, {"n": 2}) == 42
    assert value_of(local, functools.partial(functions.arguments, a=1), {"b": 2}) == {
        "a": 1,
        "b": 2,
    }


def test_an_object_of_a_local_class_goes_there_and_back(local):
    class Point:
        x = 3

    assert type(value_of(local, lambda point: point, {"point": Point()})) is Point


def test_an_exception_is_told_with_its_traceback(local):
    with pytest.raises(AssetBuildError) as caught:
        local.run(request(functions.fails, partition="p1"))
    error = caught.value
    assert str(error) == "numbers[p1]: ValueError: no such column"
    assert "in fails" in error.details
    assert error.details.endswith("ValueError: no such column\nand more\n")
    assert "examlops_dagster" not in error.details


def test_the_exception_itself_is_the_cause_in_process():
    with pytest.raises(AssetBuildError) as caught:
        LocalOrchestrator(in_process=True).run(request(functions.fails))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (functions.exits, "SystemExit: 3"),
        (functions.recurses, "RecursionError: maximum recursion depth exceeded"),
        (functions.raises_broken, "BrokenError: <BrokenError.__str__ failed>"),
    ],
)
def test_odd_exceptions_are_told_as_text(local, function, reason):
    with pytest.raises(AssetBuildError) as caught:
        local.run(request(function))
    assert reason in caught.value.reason


def test_an_interrupt_raised_in_a_worker_is_a_failure(worker):
    with pytest.raises(AssetBuildError, match="KeyboardInterrupt"):
        worker.run(request(functions.interrupted))


def test_an_interrupt_in_process_goes_through():
    with pytest.raises(KeyboardInterrupt):
        LocalOrchestrator(in_process=True).run(request(functions.interrupted))


def test_missing_arguments_are_told(local):
    with pytest.raises(AssetBuildError, match=r"TypeError: says\(\) missing 1 required"):
        local.run(request(functions.says))


def test_without_a_limit_the_function_is_called_here(worker):
    assert value_of(worker, functions.pid, timeout_seconds=None) == os.getpid()


def test_with_a_limit_it_is_called_in_one_warm_worker(worker):
    first = value_of(worker, functions.pid)
    assert first != os.getpid()
    assert value_of(worker, functions.pid) == first


def test_a_failure_leaves_the_worker_warm(worker):
    first = value_of(worker, functions.pid)
    with pytest.raises(AssetBuildError):
        worker.run(request(functions.exits))
    assert value_of(worker, functions.pid) == first


def end_at_a_limit(worker, tmp_path, function, count, **arguments):
    """Have a function ended that had started so many processes; nothing of it is left."""

    def attempt(seconds):
        folder = tmp_path / f"{seconds}"
        folder.mkdir()
        build = request(function, {"folder": str(folder), **arguments}, timeout_seconds=seconds)
        with pytest.raises(BuildTimeoutError, match=rf"numbers: timed out after {seconds:g} s"):
            worker.run(build)
        assert alive(pids_in(folder)) == []
        return len(pids_in(folder)) == count

    once_begun(attempt)


@pytest.mark.parametrize("ignore_sigterm", [False, True])
def test_a_function_is_ended_at_its_limit(worker, tmp_path, ignore_sigterm):
    end_at_a_limit(worker, tmp_path, functions.sleeps, 1, ignore_sigterm=ignore_sigterm)


def test_its_children_are_ended_at_its_limit_in_other_sessions_too(worker, tmp_path):
    end_at_a_limit(worker, tmp_path, functions.sleeps_with_children, 4)


def test_the_next_build_after_a_limit_has_a_new_worker(worker, tmp_path):
    before = value_of(worker, functions.pid)
    with pytest.raises(BuildTimeoutError):
        worker.run(request(functions.sleeps, {"folder": str(tmp_path)}, timeout_seconds=0.3))
    assert value_of(worker, functions.pid) not in (before, os.getpid())


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (functions.leaves, {}, "worker ended with exit code 7"),
        (functions.dies, {"number": 9}, "worker ended by SIGKILL (out of memory?)"),
        (functions.dies, {"number": 11}, "worker ended by SIGSEGV"),
        (functions.dies_with_a_fork, {}, "worker ended by SIGKILL (out of memory?)"),
    ],
)
def test_a_worker_that_ends_by_itself_is_told(worker, function, arguments, reason):
    with pytest.raises(AssetBuildError) as caught:
        worker.run(request(function, arguments))
    assert caught.value.reason == reason


def test_a_crash_shows_where_it_was(worker):
    with pytest.raises(AssetBuildError) as caught:
        worker.run(request(functions.dies, {"number": 11}))
    assert "in dies" in caught.value.details


def test_a_worker_that_dies_leaves_no_orphans(worker, tmp_path):
    with pytest.raises(AssetBuildError, match="SIGKILL"):
        worker.run(request(functions.leaves_an_orphan_and_dies, {"folder": str(tmp_path)}))
    assert len(pids_in(tmp_path)) == 1
    wait_until(lambda: alive(pids_in(tmp_path)) == [])


def test_what_a_build_started_may_clean_up_after_its_limit(tmp_path):
    def attempt(seconds):
        build = request(functions.stops_cleanly, {"folder": str(tmp_path)}, timeout_seconds=seconds)
        with (
            LocalOrchestrator(grace_seconds=60.0) as orchestrator,
            pytest.raises(BuildTimeoutError),
        ):
            orchestrator.run(build)
        return (tmp_path / "begun").exists()

    once_begun(attempt)
    assert (tmp_path / "cleaned").exists()


def test_a_worker_that_died_while_it_was_idle_is_replaced(worker):
    first = value_of(worker, functions.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    assert value_of(worker, functions.pid) != first


def test_a_function_that_forks_gives_the_parents_result(worker):
    assert value_of(worker, functions.forks) == "parent"
    assert value_of(worker, functions.pid) != os.getpid()


class Interrupted(BaseException):
    pass


def test_an_interrupt_while_waiting_ends_the_build(worker, tmp_path):
    def interrupt(*_):
        raise Interrupted

    def send():
        wait_until(lambda: pids_in(tmp_path))
        os.kill(os.getpid(), signal.SIGALRM)

    former = signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            worker.run(request(functions.sleeps, {"folder": str(tmp_path)}))
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, former)
    assert len(pids_in(tmp_path)) == 1
    assert alive(pids_in(tmp_path)) == []


def test_closing_cancels_what_runs(tmp_path):
    orchestrator = LocalOrchestrator(grace_seconds=0.3)
    caught = []

    def build():
        try:
            orchestrator.run(request(functions.sleeps, {"folder": str(tmp_path)}))
        except BuildCancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    (pid,) = wait_until(lambda: pids_in(tmp_path))
    orchestrator.close()
    thread.join()
    assert len(caught) == 1
    assert alive([pid]) == []


def test_closing_ends_idle_workers():
    with LocalOrchestrator() as orchestrator:
        pid = value_of(orchestrator, functions.pid)
    assert alive([pid]) == []


def test_builds_from_four_threads_run_at_once(tmp_path):
    found = []
    with LocalOrchestrator() as orchestrator:

        def build(number):
            arguments = {"path": str(number), "barrier": str(tmp_path)}
            found.append(value_of(orchestrator, functions.holds, arguments))

        threads = [threading.Thread(target=build, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(found)) == 4


def test_output_is_forwarded_before_the_build_returns(worker, capfd):
    print("before")
    worker.run(request(functions.says, {"text": "hello"}))
    out, err = capfd.readouterr()
    assert out == "before\nhello\n"
    assert err == "HELLO\nhello is logged\n"


def test_five_megabytes_of_output_come_in_order_and_whole(worker, capfd):
    worker.run(request(functions.writes_lines, {"count": 50_000}))
    lines = capfd.readouterr().out.splitlines()
    assert [int(line) for line in lines] == list(range(50_000))


def test_output_of_a_build_that_is_ended_is_not_lost(worker, tmp_path, capfd):
    def speaks(begun):
        print("last words")
        Path(begun).touch()
        time.sleep(600)

    def attempt(seconds):
        begun = tmp_path / f"{seconds}"
        with pytest.raises(BuildTimeoutError):
            worker.run(request(speaks, {"begun": str(begun)}, timeout_seconds=seconds))
        out = capfd.readouterr().out
        assert out == "last words\n" or not begun.exists()
        return begun.exists()

    once_begun(attempt)


def test_a_value_of_megabytes_comes_back(worker):
    assert value_of(worker, functions.arguments, {"text": "x" * 5_000_000})["text"][-1] == "x"


@pytest.mark.parametrize("function", [functions.lock, threading.Lock])
def test_a_value_that_cannot_be_kept_names_the_ways_out(local, function):
    with pytest.raises(ResultError, match=r"AssetOutput.*timeout_seconds=None"):
        local.run(request(function))


def test_an_unknown_serializer_is_told(local):
    with pytest.raises(ResultError, match="'yaml' is not one of json, pickle, parquet"):
        local.run(request(functions.pid, serializer="yaml"))


def test_metadata_that_cannot_cross_names_the_way_out(worker):
    with pytest.raises(ResultError, match=r"metadata.*timeout_seconds=None"):
        worker.run(request(functions.unusable_metadata))
    assert worker.run(request(functions.unusable_metadata, timeout_seconds=None)).value is not None


def test_a_function_that_cannot_cross_names_the_way_out(worker):
    lock = threading.Lock()
    with pytest.raises(AssetBuildError, match=r"the function cannot be sent.*timeout_seconds=None"):
        worker.run(request(lock.locked))
    assert value_of(worker, lock.locked, timeout_seconds=None) is False


def test_an_argument_that_cannot_cross_names_the_way_out(worker):
    with pytest.raises(AssetBuildError, match=r"an argument cannot be sent.*timeout_seconds=None"):
        worker.run(request(functions.arguments, {"lock": threading.Lock()}))


def test_without_a_function_the_remedy_is_told(worker):
    with pytest.raises(LaunchError, match="load its module with -m"):
        worker.run(request(None))


def test_a_sensor_says_what_it_saw(local):
    result = local.run(request(functions.sees, {"output": 5}, node_type=NodeType.SENSOR))
    assert decode(result.value) == (True, 5)
    assert result.update_detected is True


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "nothing"),
        (5, "a value of type int"),
        ((1, 2), r"a tuple of \(int, int\)"),
        ([True, 1], "a value of type list"),
        ((True,), r"a tuple of \(bool\)"),
    ],
)
def test_a_sensor_that_returns_no_pair_is_told(local, returned, shown):
    sensor = request(functions.sees_wrongly, {"output": returned}, node_type=NodeType.SENSOR)
    with pytest.raises(ResultError, match=rf"\(update_detected, output\).*returned {shown}"):
        local.run(sensor)


def test_a_generators_value_is_what_it_returns(local):
    assert value_of(local, functions.yields) == "done"


def test_a_generator_that_yields_values_is_told(local):
    with pytest.raises(ResultError, match="yielded a value of type int; it may yield Metadata"):
        local.run(request(functions.yields_values))


def test_an_async_function_is_told(local):
    with pytest.raises(ResultError, match=r"asyncio\.run"):
        local.run(request(functions.waits))


def test_a_command_runs_in_place_of_the_function(worker, capfd):
    upstreams = (Upstream("raw"), Upstream("prices", "prices"))
    script = 'echo "$EXAMLOPS_ASSET $EXAMLOPS_PARTITION $EXAMLOPS_UPSTREAM"'
    build = request(
        functions.fails,
        {"raw": 3, "prices": [1, 2], "odd": {1}},
        partition="p1",
        command=("sh", "-c", script),
        upstreams=upstreams,
    )
    result = worker.run(build)
    assert capfd.readouterr().out == 'numbers p1 {"raw": 3}\n'
    assert (result.value, result.data_version) == (None, None)


def test_a_command_that_fails_is_told_by_its_last_line(worker, capfd):
    command = ("sh", "-c", "echo first >&2; echo out of luck >&2; exit 3")
    with pytest.raises(AssetBuildError) as caught:
        worker.run(request(functions.pid, command=command))
    assert caught.value.reason == "command ended with exit code 3: out of luck"
    assert caught.value.details == "first\nout of luck\n"
    assert capfd.readouterr().err == "first\nout of luck\n"


def test_a_command_that_does_not_exist_is_told(worker):
    with pytest.raises(AssetBuildError, match="'no-such-program' could not be started"):
        worker.run(request(functions.pid, command=("no-such-program",)))


@pytest.mark.parametrize("timeout_seconds", [None, 100.0])
def test_a_command_runs_with_and_without_a_limit(worker, capfd, timeout_seconds):
    worker.run(request(None, command=("echo", "hi"), timeout_seconds=timeout_seconds))
    assert capfd.readouterr().out == "hi\n"


def test_a_command_is_ended_at_its_limit(worker, tmp_path):
    command = ("sh", "-c", f"echo > {tmp_path}/$$; sleep 600")

    def attempt(seconds):
        with pytest.raises(BuildTimeoutError):
            worker.run(request(None, command=command, timeout_seconds=seconds))
        assert alive(pids_in(tmp_path)) == []
        return pids_in(tmp_path)

    once_begun(attempt)


def test_a_command_does_not_wait_for_what_it_leaves_behind(worker, tmp_path):
    worker.run(request(None, command=("sh", "-c", f"sleep 600 & echo > {tmp_path}/$!")))
    [left] = alive(pids_in(tmp_path))
    os.kill(left, signal.SIGKILL)
