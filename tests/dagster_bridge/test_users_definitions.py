"""A project of plain Dagster with ours in it: an executor, an I/O manager, a sensor, assets."""

import sys

import pytest
from dagster import (
    AssetKey,
    DagsterInvalidDefinitionError,
    Definitions,
    ScheduleDefinition,
    define_asset_job,
)
from homes import names_of, run_program

from examlops_dagster.dagster_bridge.definitions import build_definitions
from examlops_dagster.errors import UsageError

THEIRS = """\
from dagster import (
    AssetSelection,
    AutomationConditionSensorDefinition,
    Definitions,
    FilesystemIOManager,
    asset,
    in_process_executor,
)


class TheirIOManager(FilesystemIOManager):
    pass


@asset(code_version="1")
def above():
    return {"rows": 3}


@asset(io_manager_key="examlops_io")
def below(context, ours):
    context.add_output_metadata({"read": ours["rows"]})
    return ours["rows"] * 10


def everything():
    return AutomationConditionSensorDefinition("theirs", target=AssetSelection.all())


theirs = Definitions(
    assets=[above, below],
    executor=in_process_executor,
    resources={"io_manager": TheirIOManager(base_dir="their_values")},
    sensors=[everything()],
)
"""

OURS = """\
from examlops_dagster import asset
from {theirs} import above


@asset(inputs={{"rows": above}}, deps=["PM100"], timeout_seconds=None)
def ours(rows, **versions):
    return {{"rows": rows["rows"] + 1, **versions}}
"""

SAME_KEY = """\
from examlops_dagster import asset


@asset(timeout_seconds=None)
def above():
    return 1
"""

INTO = """\
import {ours}
import {theirs} as plain
from examlops_dagster.dagster_bridge.definitions import build_definitions

defs = build_definitions({ours}, into=plain.theirs)
"""

MERGED = """\
from dagster import Definitions

import {ours}
import {theirs} as plain
from examlops_dagster.dagster_bridge.definitions import build_definitions

defs = Definitions.merge(plain.theirs, build_definitions({ours}, automation="sensor"))
"""


class Theirs:
    def __init__(self, home, text):
        home.declare("PM100")
        self.theirs = home.module(THEIRS)
        self.ours = home.module(OURS.format(theirs=self.theirs.__name__))
        names = {"theirs": self.theirs.__name__, "ours": self.ours.__name__}
        self.module = home.module(text.format(**names))
        self.name = self.module.__name__
        self.defs = self.module.defs


@pytest.fixture(params=[INTO, MERGED], ids=["into", "merged"])
def project(request, home):
    return Theirs(home, request.param)


def test_they_load_with_what_both_bring(project):
    repository = project.defs.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert keys == {"PM100", "above", "below", "ours"}
    assert repository.asset_graph.get(AssetKey("above")).is_materializable
    assert set(project.defs.resources) == {"io_manager", "examlops_io"}
    assert {sensor.name for sensor in repository.sensor_defs} == {"theirs", "keep_fresh"}
    assert project.defs.executor is project.theirs.in_process_executor


def test_values_go_through_the_io_manager_of_the_asset_above(home, project):
    assert home.click(project.defs, "above", "ours", "below").success
    assert (home.folder / "their_values" / "above").exists()
    assert not (home.folder / "their_values" / "ours").exists()
    assert home.events("below")[0].metadata["read"].value == 4
    assert home.states(project.module)["ours"] == "fresh"
    record = home.records(project.module)["ours"]
    assert {node.asset: read.version for node, read in record.built_from.items()} == {
        "above": 1, "PM100": 1,
    }  # fmt: skip


def test_exa_uses_the_users_definitions(home, project):
    assert home.click(project.defs, "above").success
    report = home.exa(project.module, "ours")
    assert names_of(report.rebuilt) == ["PM100", "ours"]
    [event] = home.events("ours")
    assert event.metadata["version"].value == 1
    assert home.states(project.module)["ours"] == "fresh"


def test_a_rebuilt_plain_asset_makes_ours_stale_only_if_its_data_version_changed(home, project):
    assert home.click(project.defs, "above", "ours").success
    assert home.click(project.defs, "above").success
    assert home.states(project.module)["ours"] == "fresh"  # it has a code version
    home.report("above", "theirs")
    assert home.why(project.module, "ours") == ("upstream above changed (1 → 2)",)


def test_exa_builds_no_plain_asset_and_says_so(home, project):
    with pytest.raises(UsageError, match="above is an asset of plain Dagster"):
        home.exa(project.module, "ours")


def test_a_production_function_for_a_key_of_theirs_is_refused(home):
    """`into` leaves out only what has no function."""
    theirs = home.module(THEIRS)
    module = home.module(SAME_KEY)
    home.declare("PM100")
    with pytest.raises(DagsterInvalidDefinitionError, match="above"):
        build_definitions(module, into=theirs.theirs).get_repository_def()


def test_two_sensors_of_conditions_over_one_asset_do_not_meet(home):
    theirs = home.module(THEIRS)
    ours = home.module(OURS.format(theirs=theirs.__name__))
    home.declare("PM100")
    definitions = build_definitions(ours, into=theirs.theirs)
    kinds = {s.name: type(s).__name__ for s in definitions.get_repository_def().sensor_defs}
    assert kinds["theirs"] == "AutomationConditionSensorDefinition"
    assert kinds["keep_fresh"] == "SensorDefinition"


def test_a_job_and_a_schedule_of_theirs_may_select_ours(home, chain):
    job = define_asset_job("nightly", selection=["features", "model"])
    theirs = Definitions(
        jobs=[job], schedules=[ScheduleDefinition(job=job, cron_schedule="@daily")]
    )
    definitions = home.definitions(chain, into=theirs)
    found = definitions.resolve_job_def("nightly")
    assert found.execute_in_process(instance=home.instance).success
    assert home.states(chain)["model"] == "fresh"


@pytest.mark.parametrize("text", [INTO, MERGED], ids=["into", "merged"])
def test_dagster_validates_and_materializes_them(home, text):
    project = Theirs(home, text)
    environment = {"DAGSTER_HOME": str(home.folder), "PYTHONWARNINGS": "ignore"}
    run_program(
        home.folder, "dagster", "definitions", "validate", "-m", project.name, **environment
    )
    run_program(
        home.folder, "dagster", "asset", "materialize", "-m", project.name, "--select",
        "above,ours", **environment,
    )  # fmt: skip
    assert home.states(project.module)["ours"] == "fresh"
    home.advance("PM100", modules=project.module)
    done = run_program(
        home.folder, "exa", "-m", project.name, "assets", "materialize", "ours", **environment
    )
    assert done.stdout.startswith("Materialized ours: rebuilt ours\n")
    assert sys.modules[project.name] is project.module
