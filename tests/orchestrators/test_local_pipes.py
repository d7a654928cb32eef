"""Dagster Pipes of functions that are called on this machine: in a worker, or in this process."""

import sys
import threading
from dataclasses import replace

import pipes_functions as functions
import pytest
from build_requests import request
from dagster_pipes import PipesContext

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.local import LocalOrchestrator


def run(local, function, arguments=None, **how):
    """Give the result, and what was heard."""
    heard = []
    asked = request(function, arguments, **how)
    asked = replace(asked, run_id="r1", heard=lambda *message: heard.append(message))
    return local.run(asked), heard


def lines(heard):
    return [params["message"] for method, params in heard if method == "log"]


def test_what_it_says_is_heard_and_counts_as_in_a_job(local):
    result, heard = run(local, functions.tells, partition="k")
    assert decode(result.value) == [{}, "k"]
    assert [method for method, _ in heard] == [
        "opened",
        "log",
        "report_asset_materialization",
        "report_custom_message",
        "closed",
    ]
    assert heard[1][1] == {"message": "nearly full", "level": "WARNING"}
    assert result.data_version == "p1"
    assert result.metadata == {"loss": 0.5, "of": "numbers"}
    assert [event.dataset for event in result.events] == ["s3://b/x"]


def test_it_may_open_pipes_by_itself_again_and_again(local):
    for _ in range(2):
        result, heard = run(local, functions.opens)
        assert decode(result.value) == "r1"
        assert lines(heard) == ["opened by itself"]
        assert heard[-1] == ("closed", {})


def test_what_it_returns_goes_before_what_it_says(local):
    result, _ = run(local, functions.says_more)
    assert result.data_version == "returned"
    assert result.metadata == {"a": 1, "b": 2}


def test_its_exception_is_told_once_with_its_stack(local):
    heard = []
    asked = replace(request(functions.opens_and_fails), heard=lambda *m: heard.append(m))
    with pytest.raises(AssetBuildError, match="ValueError: this is why") as caught:
        local.run(asked)
    assert caught.value.details.count("this is why") == 2  # the line, and the exception
    assert lines(heard) == ["so far so good"]
    method, params = heard[-1]
    assert method == "closed"
    assert params["exception"]["message"].strip() == "ValueError: this is why"


def test_an_exception_that_it_swallows_is_no_success(local):
    with pytest.raises(AssetBuildError, match=r"function closed Dagster Pipes with .*swallowed"):
        run(local, functions.swallows)


def test_one_that_says_nothing_leaves_no_trace_of_pipes(local):
    result, heard = run(local, functions.silent)
    assert decode(result.value) == "silent"
    assert (result.data_version, result.metadata, result.events) == (None, {}, ())
    assert heard == []
    asked = replace(request(functions.silent_and_fails), heard=lambda *m: heard.append(m))
    with pytest.raises(AssetBuildError, match="ValueError: silent"):
        local.run(asked)
    assert heard == []


def test_what_cannot_cross_a_file_raises_in_the_function(local):
    with pytest.raises(AssetBuildError, match="not JSON serializable"):
        run(local, functions.says_what_is_no_json)


def test_a_context_that_a_module_keeps_is_that_of_the_next_call_too(local):
    functions.kept.clear()
    for number in range(2):
        _, heard = run(local, functions.keeps_its_context, {"n": number})
        assert lines(heard) == [f"said by the context of the first: {number}"]


def test_a_thread_of_a_function_speaks_for_it(local):
    _, heard = run(local, functions.from_a_thread)
    assert lines(heard) == ["from a thread"]


def test_functions_that_are_called_at_one_time_have_their_own_contexts():
    barrier, other = threading.Barrier(2), threading.Barrier(2)
    found = {}

    def build(name):
        arguments = {"barrier": barrier, "other": other, "name": name}
        found[name] = run(LocalOrchestrator(in_process=True), functions.meets, arguments)

    threads = [threading.Thread(target=build, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for name in ("a", "b"):
        result, heard = found[name]
        assert lines(heard) == [name, f"{name} in a thread"]
        [why] = decode(result.value)
        assert "2 functions are called in this process" in why
    assert not PipesContext.is_initialized()


def test_a_context_of_the_process_itself_is_there_again_afterwards(monkeypatch):
    outer = object()
    monkeypatch.setattr(PipesContext, "_instance", outer)
    _, heard = run(LocalOrchestrator(in_process=True), functions.opens)
    assert lines(heard) == ["opened by itself"]
    assert PipesContext.get() is outer


def test_a_worker_gives_variables_as_a_job_does_for_one_call(worker):
    result, _ = run(worker, functions.writes_outlets, partition="k")
    assert decode(result.value) == ("numbers", "k")
    assert [event.dataset for event in result.events] == ["s3://b/by-file"]
    result, _ = run(worker, functions.variables_of_a_program)
    assert decode(result.value) == (
        "['DAGSTER_PIPES_CONTEXT', 'DAGSTER_PIPES_MESSAGES', 'EXAMLOPS_OUTLET_EVENTS']"
    )


def test_without_dagster_pipes_a_function_is_built_all_the_same(local, monkeypatch):
    monkeypatch.setitem(sys.modules, "dagster_pipes", None)
    result, heard = run(local, functions.silent)
    assert decode(result.value) == "silent"
    assert heard == []


def test_where_no_files_can_be_written_a_function_is_built_and_a_command_says_why(
    worker, tmp_path, monkeypatch, caplog
):
    (tmp_path / "a file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a file"))
    result, _ = run(worker, functions.silent)
    assert decode(result.value) == "silent"
    assert "numbers is built without Dagster Pipes" in caplog.text
    with pytest.raises(AssetBuildError, match="the files by which its program speaks"):
        run(worker, None, command=("true",))


def test_a_command_with_the_versions_of_thousands_of_keys_starts(worker, tmp_path):
    keys = {f"key-{number}": number for number in range(20_000)}
    said = tmp_path / "said"
    line = f'printf "%s" "$EXAMLOPS_UPSTREAM" > {said}'
    result, _ = run(
        worker,
        None,
        {"parts": keys},
        command=("sh", "-c", line),
        upstreams=(Upstream("parts"),),
    )
    assert result.provenance == {"orchestrator": "local"}
    assert said.read_text() == "{}"
