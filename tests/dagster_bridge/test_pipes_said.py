"""The listener of one node, by itself: it never raises, and keeps what counts."""

import threading
from types import SimpleNamespace

import pytest
from dagster import AssetKey, DagsterInstance

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge import pipes_said
from examlops_dagster.dagster_bridge.pipes_said import Said


class Log:
    def __init__(self):
        self.lines = []
        self.error = None

    def log(self, level, text):
        if self.error is not None:
            raise self.error
        self.lines.append((level, text))


@pytest.fixture
def log():
    return Log()


def check(name, passed=True, **more):
    return {"asset_key": None, "check_name": name, "passed": passed, **more}


def names_of(said):
    with DagsterInstance.ephemeral() as instance:
        return [e.check_name for e in said.evaluations(AssetKey("model"), instance)]


def test_a_later_attempt_forgets_the_checks_of_the_former(log):
    said = Said(log, Node("model"))
    said("report_asset_check", check("first"))
    said("restarted", {})
    said("report_asset_check", check("second"))
    assert names_of(said) == ["second"]
    assert ("WARNING", "[pipes] started again: what it said before is forgotten") in log.lines


def test_a_check_of_a_sink_stays_ours(log):
    said = Said(log, Node("model"), sinks=1)
    said("report_asset_check", check("sink_1", passed=False))
    said("report_asset_check", check("sink_2", passed=False))
    assert names_of(said) == ["sink_2"]
    assert "sink_1 is that of a sink, and left" in log.lines[0][1]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("report_asset_check", {"asset_key": None}),
        ("report_asset_check", check("c", severity="FATAL")),
        ("report_asset_check", check("c", metadata=[1])),
        ("nothing of the kind", {"a": {1, 2}}),
    ],
)
def test_what_cannot_be_read_is_told(log, method, params):
    said = Said(log, Node("model"))
    said(method, params)
    [(level, text)] = log.lines
    assert level == "WARNING"
    assert method in text
    assert names_of(said) == []


def test_a_log_that_fails_stops_nothing(log, caplog):
    log.error = OSError("disk full")
    said = Said(log, Node("model"))
    said("log", {"message": "heard", "level": "INFO"})
    said.tell("job 1 on slurm → RUNNING")
    assert "disk full" in caplog.text
    assert "heard" in caplog.text
    assert "RUNNING" in caplog.text


def test_a_flood_is_counted_and_what_comes_slowly_is_not(log, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pipes_said, "time", SimpleNamespace(monotonic=lambda: now[0]))
    said = Said(log, Node("model"))
    for _ in range(pipes_said.MESSAGES_AT_ONCE + 5):
        said("log", {"message": "m", "level": "INFO"})
    assert len(log.lines) == pipes_said.MESSAGES_AT_ONCE
    now[0] += 1
    for _ in range(20):
        said("log", {"message": "later", "level": "INFO"})
    assert log.lines.count(("INFO", "later")) == 5
    said.end()
    assert log.lines[-1] == ("WARNING", "[pipes] 20 more messages were not shown")
    said.end()
    assert len(log.lines) == pipes_said.MESSAGES_AT_ONCE + 6


def test_threads_keep_to_the_same_limit(log, monkeypatch):
    monkeypatch.setattr(pipes_said, "time", SimpleNamespace(monotonic=lambda: 0.0))
    said = Said(log, Node("model", "a"))

    def tell():
        for _ in range(400):
            said("log", {"message": "m", "level": "DEBUG"})

    threads = [threading.Thread(target=tell) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said.end()
    shown = log.lines.count(("DEBUG", "[a] m"))
    assert shown == pipes_said.MESSAGES_AT_ONCE
    assert log.lines[-1] == ("WARNING", f"[a] [pipes] {2000 - shown} more messages were not shown")
