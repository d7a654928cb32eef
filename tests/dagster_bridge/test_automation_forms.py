"""Which form keeps fresh, and what of it shows in Dagster's definitions."""

import pytest
from dagster import AutomationCondition, AutomationConditionSensorDefinition, Definitions
from dagster import asset as plain_asset
from kept_pipelines import ASSETS
from ticks import Automation, key

from examlops_dagster.core.freshness import Always
from examlops_dagster.dagster_bridge.automation import (
    CONDITION_LIMIT,
    choose_form,
    interval_seconds,
)


def entities(count):
    return {"automation": None, "entities": count, "into": None}


def test_conditions_are_the_default_up_to_what_dagster_allows():
    assert choose_form(**entities(CONDITION_LIMIT)) == "conditions"
    assert choose_form(**entities(CONDITION_LIMIT + 1)) == "sensor"


def test_a_sensor_of_conditions_in_the_users_definitions_leaves_us_the_plain_one():
    @plain_asset(automation_condition=AutomationCondition.eager())
    def theirs(): ...

    into = Definitions(
        [theirs], sensors=[AutomationConditionSensorDefinition("theirs", target="*")]
    )
    assert choose_form(None, 3, into) == "sensor"
    assert choose_form("conditions", 3, into) == "conditions"
    assert choose_form(None, 3, Definitions([theirs])) == "conditions"


def test_automation_can_be_turned_off(home, chain):
    repository = home.definitions(chain, automation="off").get_repository_def()
    assert repository.sensor_defs == []
    assert repository.schedule_defs == []


def test_both_forms_are_on_by_default_and_named_alike(kept):
    [sensor] = kept.repository.sensor_defs
    assert sensor.name == "keep_fresh"
    assert sensor.default_status.value == "RUNNING"


def test_only_what_is_not_manual_has_a_condition(home):
    home.declare("PM100")
    home.declare("other")
    graph = Automation(home, home.module(ASSETS), "conditions").repository.asset_graph
    assert graph.get(key("features")).automation_condition.get_label() == f"kept fresh: {Always}"
    assert graph.get(key("pinned")).automation_condition is None
    assert (
        graph.get(key("yearly")).automation_condition.get_label()
        == "kept fresh: schedule 0 0 29 2 *"
    )


@pytest.mark.parametrize(("text", "seconds"), [("2", 2), ("0", 1), ("no number", 30), (None, 30)])
def test_the_interval_of_ticks_can_be_set(monkeypatch, text, seconds):
    if text is not None:
        monkeypatch.setenv("EXAMLOPS_KEEP_FRESH_SECONDS", text)
    assert interval_seconds() == seconds
