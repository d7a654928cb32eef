"""Sources that change, results that others make, and declarations that are taken back."""

import pytest

PIPELINE = """\
from examlops_dagster import asset


@asset
def root():
    return 1


@asset(deps=["PM100"])
def features(**upstream):
    return upstream


@asset(deps=[features])
def model(**upstream):
    return upstream
"""

OUTSIDE = """\
import sys
from dagster import AssetKey, AssetMaterialization, DagsterInstance
with DagsterInstance.get() as instance:
    instance.report_runless_asset_event(AssetMaterialization(AssetKey(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def sources(shared):
    shared.write("pipeline.py", PIPELINE)
    shared.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')
    shared("assets", "declare", "PM100")
    shared("assets", "declare", "derived", "--deps", "never_declared,PM100")
    return shared


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("PM10", "No asset named 'PM10' is declared. Did you mean PM100?"),
        ("never_declared", "never declared → exa assets declare never_declared"),
        ("root", "root has a production function → exa assets materialize root --force"),
        ("derived", "derived is made from never_declared, PM100 → exa assets report derived"),
    ],
)
def test_only_a_declared_source_can_be_said_to_have_changed(sources, name, told):
    done = sources("assets", "source-changed", name, code=2)
    assert told in done.err
    assert done.out == ""
    assert done.is_quiet


def test_a_change_before_adoption_gives_the_first_version(exa):
    exa("assets", "declare", "dataset:PM 100")
    changed = exa("assets", "source-changed", "dataset:PM 100", "--json").json
    assert (changed["ok"], changed["name"], changed["version"]) == (True, "dataset:PM 100", 1)
    assert exa.versions() == {"dataset:PM 100": 1}


def test_reported_contents_and_results_made_outside(sources):
    report = ("assets", "report", "PM100", "--data-version")
    first = sources(*report, "sha:1", "--json").json
    assert (first["version"], first["changed"]) == (1, True)
    again = sources(*report, "sha:1")
    assert again.out == "PM100 is at that data version already (v1) — nothing changed.\n"

    # judged as built from what was current at its time
    sources.python(OUTSIDE, "features")
    [verdict] = sources("assets", "status", "features", "--json").json
    assert (verdict["state"], verdict["version"]) == ("fresh", 1)
    assert sources(*report, "sha:2").out == "PM100 is at v2 now\n"
    [verdict] = sources("assets", "status", "features", "--json").json
    assert verdict["reasons"] == ["upstream PM100 changed (1 → 2)", "inputs not recorded"]
    assert sources("assets", "adopt", "features").out == "Adopted features\n"
    [verdict] = sources("assets", "status", "features", "--json").json
    assert (verdict["state"], verdict["version"], verdict["reasons"]) == ("fresh", 1, [])

    # A, B, A is a change each time
    back = sources(*report, "sha:1", "--json").json
    assert (back["version"], back["changed"]) == (3, True)
    builds = sources("assets", "history", "PM100", "--json").json
    assert [b["data_version"] for b in builds] == ["sha:1", "sha:2", "sha:1"]
    assert sources.states()["features"] == "runnable_stale"
