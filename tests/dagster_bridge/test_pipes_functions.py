"""What a function says over Dagster Pipes, in the run that builds its asset: the same everywhere."""

import pytest
from dagster import DagsterEventType, MetadataValue
from pipes_programs import lines_of, text_of
from slurms import need_slurm

PLACES = {
    "worker": "",
    "this process": ", timeout_seconds=None",
    "mock": ", orchestrator='scheduler'",
    "slurm": ", orchestrator='scheduler'",
}

FUNCTIONS = """\
from dagster_pipes import PipesContext, open_dagster_pipes

from examlops_dagster import DatasetAlias, asset, partitions


@asset(outlets=[DatasetAlias("out")]{how})
def told():
    pipes = PipesContext.get()
    pipes.log.debug("größer ƒ")
    pipes.log.warning("nearly full")
    pipes.report_custom_message({{"progress": 0.5}})
    pipes.report_custom_message({{"examlops/outlet": {{"dataset": "s3://b/x", "alias": "out"}}}})
    pipes.report_asset_check("rows", passed=False, severity="WARN", metadata={{"rows": 3}})
    page = {{"raw_value": "https://example.org/a", "type": "url"}}
    pipes.report_asset_materialization({{"loss": 0.25, "page": page}}, data_version="told-1")
    return 7


@asset(partitions={{"key": partitions(["a", "b"])}}{how})
def keyed(key):
    with open_dagster_pipes() as pipes:
        pipes.log.info("I am " + pipes.partition_key)


@asset({how})
def fails():
    with open_dagster_pipes() as pipes:
        pipes.log.info("so far so good")
        raise ValueError("this is why")


@asset({how})
def silent():
    return 1
"""


@pytest.fixture(params=sorted(PLACES))
def module(request, home, tmp_path, monkeypatch):
    if request.param == "slurm":
        need_slurm()
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", request.param)
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(tmp_path / "jobs"))
    how = PLACES[request.param]
    return home.module(FUNCTIONS.format(how=how).replace("@asset(, ", "@asset("))


def test_it_is_told_and_recorded_with_its_types(home, module):
    result = home.click(module, "told")
    assert result.success
    [event] = home.events("told")
    assert event.metadata["loss"] == MetadataValue.float(0.25)
    assert event.metadata["page"] == MetadataValue.url("https://example.org/a")
    assert event.tags["dagster/data_version"] == "told-1"
    [found] = result.get_asset_check_evaluations()
    assert (found.check_name, found.passed, found.severity.value) == ("rows", False, "WARN")
    lines = lines_of(home, result)
    assert ("DEBUG", "größer ƒ") in lines
    assert ("WARNING", "nearly full") in lines
    assert ("INFO", '[pipes] {"progress": 0.5}') in lines
    assert ("WARNING", '[pipes] check rows did not pass (WARN): {"rows": 3}') in lines
    assert ("DEBUG", "[pipes] the program opened Dagster Pipes") in lines
    assert len(home.events("s3/b/x")) == 1


def test_a_function_may_open_and_close_pipes_by_itself(home, module):
    result = home.click(module, "keyed", partition="b")
    assert result.success
    assert "[b] I am b" in text_of(home, result)


def test_an_exception_is_told_with_its_stack(home, module):
    result = home.click(module, "fails")
    [event] = [e for e in result.all_events if e.event_type is DagsterEventType.STEP_FAILURE]
    assert "ValueError: this is why" in event.step_failure_data.user_failure_data.description
    text = text_of(home, result)
    assert "so far so good" in text
    assert "[pipes] the program closed it with an exception\nTraceback" in text
    assert home.events("fails") == []


def test_a_function_without_pipes_builds_as_before(home, module):
    assert home.click(module, "silent").success
    assert len(home.events("silent")) == 1
