"""What a build records, and what a click or a planned step does about equal content."""

import pytest
from homes import names_of

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.io import ExamlopsIOManager


def test_a_build_is_recorded_with_what_it_read(home, chain):
    home.exa(chain, "model")
    record = home.records(chain)["model"]
    features = home.records(chain)["features"]
    assert record.built_from == {Node("features"): (1, features.data_version)}
    [event] = home.events("model")
    assert event.tags["dagster/data_version"] == record.data_version
    assert event.tags["examlops/version"] == "1"
    assert event.metadata["version"].value == 1


def test_a_function_that_returns_nothing_keeps_no_value(home):
    module = home.module(
        """\
        from examlops_dagster import asset


        @asset(timeout_seconds=None)
        def quiet():
            return None
        """
    )
    home.exa(module, "quiet")
    assert home.events("quiet")[0].metadata.get("path") is None
    assert not list(home.folder.rglob("storage/examlops/quiet/*"))
    assert home.exa(module, "quiet", force=True).ok
    assert home.versions(module)["quiet"] == 2


NO_VALUE = """\
from examlops_dagster import asset


@asset(timeout_seconds=None)
def quiet():
    return None


@asset(inputs={"quiet": "quiet"}, timeout_seconds=None)
def reader(quiet):
    return quiet
"""


def test_inputs_of_an_asset_without_a_value_fail_and_say_what_to_do(home):
    module = home.module(NO_VALUE)
    report = home.exa(module, "reader")
    [failed] = report.failed
    assert "use deps" in failed.reason
    assert home.states(module)["reader"] == "failed"


SAME = """\
from pathlib import Path

from examlops_dagster import asset

CALLS = Path(__file__).with_name("calls")


def called(name):
    with CALLS.open("a") as file:
        print(name, file=file)


@asset(deps=["PM100"], timeout_seconds=None)
def same(**upstream):
    called("same")
    return {"always": "equal"}


@asset(inputs={"same": "same"}, timeout_seconds=None)
def reader(same):
    called("reader")
    return same["always"]


@asset(inputs={"reader": "reader", "pm": "features"}, timeout_seconds=None)
def both(reader, pm):
    called("both")
    return [reader, pm]


@asset(deps=["PM100"], timeout_seconds=None)
def features(**upstream):
    called("features")
    return upstream["PM100"]
"""


@pytest.fixture
def same(home):
    home.declare("PM100")
    module = home.module(SAME)
    assert home.exa(module, "both").ok
    home.advance("PM100", modules=module)
    (home.folder / "calls").unlink()
    return module


def test_a_planned_step_looks_again_and_keeps_the_former_version(home, same):
    report = home.exa(same, "both")
    assert sorted(names_of(report.rebuilt)) == ["both", "features", "same"]
    assert names_of(report.unchanged) == ["reader"]
    assert sorted(home.calls()) == ["both", "features", "same"]
    assert home.versions(same) == {"PM100": 2, "same": 1, "features": 2, "reader": 1, "both": 2}
    assert set(home.states(same).values()) == {"fresh"}
    assert home.endings("reader") == ["succeeded", "unchanged"]


def test_below_an_unchanged_step_the_former_value_is_loaded(home, same):
    home.exa(same, "both")
    former, last = home.events("reader")
    assert former.tags["dagster/data_version"] == last.tags["dagster/data_version"]
    project = home.project(same)
    store = ExamlopsIOManager().values(home.instance)
    value = store.load(["both"], "", project.ledger.records()[Node("both")].data_version)
    assert value.payload == b'["equal",2]'


def test_a_click_always_calls_the_function(home, same):
    assert home.click(same, "reader").success
    assert home.click(same, "reader").success
    assert home.calls() == ["reader", "reader"]
    assert home.endings("reader") == ["succeeded"] * 3
    assert home.versions(same)["reader"] == 1
