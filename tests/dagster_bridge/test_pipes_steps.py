"""What a program says over Dagster Pipes, in the run that builds its asset."""

import sys
from datetime import datetime, timezone
from functools import partial

import pipes_programs as programs
import pytest
from dagster import DagsterEventType, MetadataValue
from pipes_programs import asset_of, lines_of, program_of, text_of

from examlops_dagster.dagster_bridge import pipes_said
from examlops_dagster.orchestrators.ends import Patience

pytestmark = pytest.mark.parametrize("orchestrator", ["local", "scheduler"])

OUTLETS = ", outlets=[DatasetAlias(name) for name in ('out', 'x', 'y')]"


@pytest.fixture(autouse=True)
def mock_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(tmp_path / "jobs"))


def failure_of(home, result):
    [event] = [e for e in result.all_events if e.event_type is DagsterEventType.STEP_FAILURE]
    return event.step_failure_data.user_failure_data.description


def test_it_is_told_and_recorded_with_its_types(home, orchestrator):
    module = program_of(home, programs.TELLS, orchestrator=orchestrator, more=OUTLETS)
    result = home.click(module, "told")
    assert result.success
    [event] = home.events("told")
    assert event.metadata["loss"] == MetadataValue.float(0.25)
    assert event.metadata["page"] == MetadataValue.url("https://example.org/a")
    assert event.metadata["table"] == MetadataValue.json({"a": [1, 2]})
    assert event.tags["dagster/data_version"] == "told-1"
    lines = lines_of(home, result)
    assert ("DEBUG", "größer ƒ") in lines
    assert ("WARNING", "nearly full") in lines
    assert ("INFO", '[pipes] {"progress": 0.5, "epoch": 3}') in lines
    assert "line 1 of" in text_of(home, result)


def test_a_check_that_nobody_declared_is_recorded_and_fails_nothing(home, orchestrator):
    result = home.click(
        program_of(home, programs.TELLS, orchestrator=orchestrator, more=OUTLETS), "told"
    )
    [found] = result.get_asset_check_evaluations()
    assert (found.check_name, found.passed, found.severity.value) == ("rows", False, "WARN")
    assert found.metadata["rows"] == MetadataValue.int(3)
    assert found.target_materialization_data.run_id == result.run_id
    warning = '[pipes] check rows did not pass (WARN): {"rows": 3}'
    assert ("WARNING", warning) in lines_of(home, result)


def test_an_exception_is_told_with_its_class_and_stack(home, orchestrator):
    result = home.click(program_of(home, programs.RAISES, orchestrator=orchestrator), "told")
    assert not result.success
    assert "ValueError: this is why" in failure_of(home, result)
    text = text_of(home, result)
    assert "[pipes] the program closed it with an exception\nTraceback" in text
    assert "KeyError: 'the cause'" in text
    assert 'raise ValueError("this is why") from error' in text
    assert home.events("told") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (programs.NEVER_CLOSES, "opened Dagster Pipes and never closed it"),
        (programs.CLOSES_WITH_EXCEPTION, "swallowed by the program"),
    ],
)
def test_an_exit_code_of_0_is_no_proof(home, orchestrator, monkeypatch, text, why):
    impatient = partial(Patience, files=0.5)
    monkeypatch.setattr("examlops_dagster.orchestrators.scheduler.Patience", impatient)
    result = home.click(program_of(home, text, orchestrator=orchestrator), "told")
    assert why in failure_of(home, result)
    assert home.events("told") == []


def test_what_is_strange_is_told_and_left(home, orchestrator):
    result = home.click(program_of(home, programs.STRANGE, orchestrator=orchestrator), "told")
    assert result.success
    text = text_of(home, result)
    assert "another is another asset, and left" in text
    assert "no such message is known: no_such_method" in text
    assert "after closed" in text
    [event] = home.events("told")
    assert event.metadata["bad"] == MetadataValue.text("x")
    assert event.tags["dagster/data_version"] != "no"


def test_a_program_without_pipes_knows_its_asset(home, orchestrator):
    line = 'printf "%s %s %s" "$EXAMLOPS_ASSET" "$EXAMLOPS_PARTITION" "$EXAMLOPS_UPSTREAM" > said'
    argv = ["sh", "-c", line]
    more = ", partitions={'key': partitions(['a', 'b'])}"
    module = asset_of(home, argv, orchestrator=orchestrator, more=more)
    assert home.click(module, "told", partition="b").success
    assert (home.folder / "said").read_text() == "told b {}"


def test_a_partition_is_known_and_its_check_is_its_own(home, orchestrator):
    module = program_of(
        home,
        """\
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            pipes.log.info("I am " + pipes.partition_key)
            pipes.report_asset_check("c", passed=True)
            pipes.report_asset_materialization({"window": pipes.partition_time_window["end"]})
        """,
        orchestrator=orchestrator,
        more=", partitions={'day': daily('2026-01-01')}",
    )
    result = home.click(module, "told", partition="2026-01-05")
    assert "[2026-01-05] I am 2026-01-05" in text_of(home, result)
    [found] = result.get_asset_check_evaluations()
    assert found.partition == "2026-01-05"
    [event] = home.events("told")
    assert event.metadata["window"].text.startswith("2026-01-06T00:00:00")


def test_a_flood_is_cut_and_counted(home, orchestrator, monkeypatch):
    monkeypatch.setattr(pipes_said, "MESSAGES_AT_ONCE", 50)
    monkeypatch.setattr(pipes_said, "MESSAGES_A_SECOND", 1.0)
    text = """\
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        pipes.log.info("x" * 100_000)
        for n in range(400):
            pipes.log.info(f"line {n}")
    """
    result = home.click(program_of(home, text, orchestrator=orchestrator), "told")
    lines = [text for _, text in lines_of(home, result)]
    assert any("(100000 characters in all)" in line for line in lines)
    assert 40 < sum(line.startswith("line ") for line in lines) < 300
    assert any("more messages were not shown" in line for line in lines)


def test_a_script_in_another_language_needs_no_pipes(home, orchestrator):
    argv = ["sh", "-c", "echo out of luck >&2; exit 3"]
    result = home.click(asset_of(home, argv, orchestrator=orchestrator), "told")
    assert "out of luck" in failure_of(home, result)
    assert home.click(asset_of(home, ["true"], orchestrator=orchestrator), "told").success
    assert sys.executable


FUNCTIONS = """\
from datetime import datetime, timezone
from pathlib import Path

from dagster import MetadataValue

from examlops_dagster import AssetOutput, asset


class Odd:
    def __str__(self):
        return "odd one"


@asset(orchestrator=ORCHESTRATOR)
def typed():
    return AssetOutput(
        1,
        metadata={
            "page": {"raw_value": "https://example.org", "type": "url"},
            "notes": MetadataValue.md("**good**"),
            "pair": (1, 2),
            "when": datetime(2026, 1, 5, tzinfo=timezone.utc),
            "where": Path("/data"),
            "odd": Odd(),
            7: {"a": {1, 2}},
        },
    )
"""


def test_metadata_of_a_function_keeps_its_types_and_loses_nothing(home, orchestrator):
    module = home.module(FUNCTIONS.replace("ORCHESTRATOR", repr(orchestrator)))
    assert home.click(module, "typed").success
    [event] = home.events("typed")
    found = event.metadata
    assert found["page"] == MetadataValue.url("https://example.org")
    assert found["notes"] == MetadataValue.md("**good**")
    assert found["pair"] == MetadataValue.json([1, 2])
    assert found["when"] == MetadataValue.timestamp(datetime(2026, 1, 5, tzinfo=timezone.utc))
    assert found["where"] == MetadataValue.path("/data")
    assert found["odd"] == MetadataValue.text("odd one")
    assert found["7"] == MetadataValue.text("{'a': {1, 2}}")


def test_lines_of_a_range_say_whose_they_are(home, orchestrator):
    module = program_of(
        home,
        """\
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            pipes.log.info("I am " + pipes.partition_key)
            pipes.report_asset_check("c", passed=pipes.partition_key != "b")
            pipes.report_asset_materialization({"key": pipes.partition_key})
        """,
        orchestrator=orchestrator,
        more=", partitions={'key': partitions(['a', 'b', 'c'])}",
    )
    first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    result = home.click(module, "told", tags={first: "a", last: "c"})
    assert result.success
    text = text_of(home, result)
    for key in "abc":
        assert f"[{key}] I am {key}" in text
    assert {e.partition: e.metadata["key"].value for e in home.events("told")} == {
        "a": "a",
        "b": "b",
        "c": "c",
    }
    checks = {found.partition: found.passed for found in result.get_asset_check_evaluations()}
    assert checks == {"a": True, "b": False, "c": True}
