"""Outlet events: the same over local, a worker process and a job; from files and from Pipes."""

import json
import sys

import outlet_functions as functions
import pytest
from build_requests import request
from job_requests import job_request

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.outlets import outlet_event, read_outlets

YIELDED = (Metadata("s3://b/one", {"rows": 3}, ("out", "more")), Metadata("s3://b/two"))


@pytest.fixture
def worker():
    with LocalOrchestrator(grace_seconds=1.0) as found:
        yield found


def test_what_a_function_yields_arrives_from_everywhere(worker, mock):
    here = LocalOrchestrator(in_process=True).run(request(functions.yields))
    there = worker.run(request(functions.yields))
    job = mock.run(functions.yields)
    assert here.events == there.events == job.events == YIELDED
    assert here.value == there.value == job.value


PROGRAM = """\
import json, os
with open(os.environ["EXAMLOPS_OUTLET_EVENTS"], "a") as file:
    file.write(json.dumps({"dataset": "s3://b/größer", "extra": {"k": 1}, "alias": "out"}) + "\\n")
    file.write("{torn\\n\\n")
    file.write(json.dumps({"dataset": "s3://b/last", "alias": ["a", "b"]}))
"""

WRITTEN = (Metadata("s3://b/größer", {"k": 1}, ("out",)), Metadata("s3://b/last", {}, ("a", "b")))


def test_what_a_program_writes_arrives_from_everywhere(worker, mock):
    heard = []
    command = (sys.executable, "-c", PROGRAM)
    build = request(None, command=command)
    object.__setattr__(build, "heard", lambda method, params: heard.append((method, params)))
    assert worker.run(build).events == WRITTEN
    assert mock.run(None, command=command).events == WRITTEN
    for said in (heard, mock.heard):
        [(method, params)] = said
        assert (method, params["level"]) == ("log", "WARNING")
        assert "it is no JSON" in params["message"]


def test_a_function_in_a_job_may_write_and_yield(mock):
    assert mock.run(functions.writes).events == (
        Metadata("s3://b/yielded"),
        Metadata("s3://b/written", {}, ()),
    )


def test_custom_messages_say_the_same(worker, mock, caplog):
    command = (sys.executable, "-c", functions.OVER_PIPES)
    expected = (Metadata("s3://b/pipes", {"a": 1}, ("out",)),)
    assert worker.run(request(None, command=command)).events == expected
    assert mock.run(None, command=command).events == expected
    assert "an outlet event is left out, its dataset is no URI" in caplog.text


def test_a_fallback_keeps_them(mock):
    result = mock.run(functions.closure(), timeout_seconds=None)
    assert "fallback" in result.provenance
    assert result.events == (Metadata("s3://b/closure"),)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([1], "it is no object"),
        ({"dataset": "x", "url": "y"}, "'url' is not one of dataset, extra, alias"),
        ({"dataset": " "}, "its dataset is no URI"),
        ({"dataset": "x", "extra": [1]}, "its extra is no object"),
        ({"dataset": "x", "alias": [1]}, "its alias is neither"),
        ({"dataset": "x", "alias": 3}, "its alias is neither"),
    ],
)
def test_what_is_no_event_says_why(said, why):
    with pytest.raises(ValueError, match=why):
        outlet_event(said)


def test_a_file_that_is_not_there_or_not_readable_holds_none(tmp_path):
    assert read_outlets(tmp_path / "none") == ((), [])
    events, [problem] = read_outlets(tmp_path)
    assert events == ()
    assert "cannot be read" in problem


def test_a_line_of_bytes_that_are_no_text_is_left_out(tmp_path):
    path = tmp_path / "outlets.jsonl"
    path.write_bytes(b"\xff\xfe\n" + json.dumps({"dataset": "x"}).encode() + b"\r\n" + b"[" * 5000)
    events, problems = read_outlets(path)
    assert [event.dataset for event in events] == ["x"]
    assert len(problems) == 2


def test_a_job_without_a_file_has_no_events(mock):
    assert mock.run(functions.nothing).events == ()
    assert job_request(functions.nothing).environment == {}
