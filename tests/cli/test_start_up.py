"""What a command does not import: starting dagster costs more than most commands do."""

import json

import pytest

OUTSIDE = """\
from dagster import AssetKey, AssetMaterialization, DagsterInstance
from dagster._core.definitions.data_version import DATA_VERSION_TAG
with DagsterInstance.get() as instance:
    tags = {DATA_VERSION_TAG: "from outside"}
    instance.report_runless_asset_event(AssetMaterialization(AssetKey("other"), tags=tags))
"""

HEAVY = {"dagster", "dagster_shared", "sqlalchemy", "pandas", "pydantic", "rich", "psutil"}


def test_importing_the_package_imports_no_dagster(exa):
    found = exa.python(
        """\
        import json, sys
        import examlops_dagster
        print(json.dumps(sorted(sys.modules)))
        """
    )
    modules = set(json.loads(found.out))
    assert "examlops_dagster" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("assets", "declare", "PM100"),
        ("assets", "graph", "-m", "pipeline"),
        ("assets", "status", "-m", "pipeline"),
        ("assets", "plan", "-m", "pipeline"),
        ("assets", "history", "jpcp_model", "-m", "pipeline"),
        ("assets", "materialize", "jpcp_model", "-m", "pipeline"),
    ],
    ids=" ".join,
)
def test_a_command_that_builds_nothing_imports_no_dagster(built, words):
    modules = built.trace(*words)
    assert "examlops_dagster.cli" in modules
    assert not modules & {"dagster", "dagster_shared", "sqlalchemy", "pandas"}


def test_what_others_write_is_seen_all_the_same(built):
    built("assets", "declare", "other")
    built.python(OUTSIDE)
    assert built.versions()["other"] == 1
    assert "dagster" not in built.trace("assets", "status")
    built("assets", "undeclare", "other")
