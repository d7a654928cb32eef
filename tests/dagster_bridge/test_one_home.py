"""From a shell that knows no home: Dagster's own commands and ours agree."""

import json

import pytest
from dagster import AssetKey, DagsterInstance
from homes import run_program

PIPELINE = """\
from examlops_dagster import asset


@asset("jpcp_features", kind="feature", deps=["PM100"])
def build_features(**upstream):
    return upstream["PM100"]


@asset("jpcp_model", kind="model", deps=["jpcp_features"])
def train(**upstream):
    return upstream["jpcp_features"]
"""


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "a project"
    found.mkdir()
    (found / "pipeline.py").write_text(PIPELINE)
    (found / "pyproject.toml").write_text(
        "[tool.examlops]\nmodules = ['pipeline']\n\n[tool.dagster]\n"
        "module_name = 'examlops_dagster.dagster_bridge.workspace'\n"
    )
    run_program(found, "exa", "init", XDG_CACHE_HOME=str(tmp_path))
    run_program(found, "exa", "assets", "declare", "PM100", XDG_CACHE_HOME=str(tmp_path))
    return found


def run(folder, *argv, **how):
    return run_program(
        folder, *argv, PYTHONWARNINGS="ignore", XDG_CACHE_HOME=str(folder.parent), **how
    )


def status(folder):
    rows = json.loads(run(folder, "exa", "assets", "status", "--json").stdout)
    return {row["name"]: (row["version"], row["state"]) for row in rows}


def test_dagsters_command_and_ours_agree_in_both_directions(folder):
    selection = ["--select", "jpcp_features,jpcp_model"]
    module = ["-m", "examlops_dagster.dagster_bridge.workspace"]
    run(folder, "dagster", "asset", "materialize", *module, *selection)
    assert status(folder) == {
        "PM100": (1, "fresh"), "jpcp_features": (1, "fresh"), "jpcp_model": (1, "fresh"),
    }  # fmt: skip
    done = run(folder, "exa", "assets", "materialize", "jpcp_model")
    assert done.stdout == "jpcp_model already fresh — nothing to rebuild.\n"

    run(folder, "exa", "assets", "source-changed", "PM100")
    done = run(folder, "exa", "assets", "materialize", "jpcp_model")
    assert done.stdout.startswith("Materialized jpcp_model: rebuilt jpcp_features, jpcp_model\n")
    with DagsterInstance.from_config(str(folder)) as instance:
        for name in ("jpcp_features", "jpcp_model"):
            event = instance.get_latest_materialization_event(AssetKey(name))
            assert event.asset_materialization.tags["examlops/version"] == "2"
        assert len(instance.get_runs()) == 2


def test_the_workspace_that_init_writes_is_valid(folder):
    run(folder, "dagster", "definitions", "validate", "-w", "workspace.yaml")
