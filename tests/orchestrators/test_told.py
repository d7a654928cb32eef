"""What a run is told of a job that several processes wait for, one after the other."""

import sys
from dataclasses import replace

import pytest
from job_requests import job_request

from examlops_dagster.orchestrators.told import Told

PROGRAM = """\
import pathlib, sys, time
from dagster_pipes import open_dagster_pipes

with open_dagster_pipes() as pipes:
    for n in range(3):
        pipes.log.info(f"line {n}")
    pipes.report_asset_materialization({"rows": 3})
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    pipes.log.info("the last one")
"""


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize(("second", "repeated"), [("run-1", False), ("run-2", True)])
def test_one_run_is_told_once_and_another_one_all(mock, tmp_path, second, repeated):
    go, heard = tmp_path / "go", []
    request = replace(
        job_request(
            None, command=(sys.executable, "-c", PROGRAM, str(go)), fingerprint="of the code"
        ),
        run_id="run-1",
        ends_job=lambda number: False,
        heard=lambda method, params: heard.append(params.get("message") or method),
    )

    def pause(seconds):
        if "report_asset_materialization" in heard:
            raise Interrupted
        real(seconds)

    real = request.pause
    with pytest.raises(Interrupted):
        mock.orchestrator.run(replace(request, pause=pause))
    first = list(heard)
    heard.clear()
    go.touch()
    result = mock.another().run(replace(request, run_id=second))
    assert first == ["opened", "line 0", "line 1", "line 2", "report_asset_materialization"]
    lines = ["line 0", "line 1", "line 2"] if repeated else []
    end = ["report_asset_materialization", "the last one", "closed"]
    assert heard == ["opened", *lines, *end]
    assert result.metadata == {"rows": 3}
    assert len(mock.folders) == 1


def has(told, lines):
    return [told.has() for _ in range(lines)]


def test_lines_of_a_new_file_or_of_another_attempt_are_new(tmp_path):
    path, messages = tmp_path / "told.json", tmp_path / "messages.jsonl"
    messages.touch()
    told = Told(path, messages, "run")
    assert has(told, 3) == [False] * 3
    told.save()
    assert has(Told(path, messages, "run"), 4) == [True, True, True, False]
    assert has(Told(path, messages, "another"), 1) == [False]
    assert has(Told(path, messages, ""), 1) == [False]
    again = Told(path, messages, "run")
    again.again()
    assert has(again, 1) == [False]
    messages.rename(tmp_path / "before")
    messages.touch()
    assert has(Told(path, messages, "run"), 1) == [False]


def test_a_count_that_cannot_be_read_or_kept_is_none(tmp_path):
    path, messages = tmp_path / "told.json", tmp_path / "messages.jsonl"
    path.mkdir()
    told = Told(path, messages, "run")
    assert has(told, 1) == [False]
    told.save()
    assert list(tmp_path.iterdir()) == [path]
