"""Keeps assets fresh by itself, in one of two forms over the same plan.

Conditions show a history per asset in Dagster's UI; the sensor has no limit of 500 assets and
makes one run of a slice. Both ask `due`, so that they cannot disagree.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from dagster import (
    AssetKey,
    AssetSelection,
    AutomationCondition,
    AutomationConditionSensorDefinition,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.declarative_automation.automation_condition import AutomationResult
from dagster._core.definitions.declarative_automation.automation_context import AutomationContext
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._utils.warnings import suppress_dagster_warnings

from examlops_dagster.core.freshness import Freshness
from examlops_dagster.dagster_bridge.admission import requested_by_automation
from examlops_dagster.dagster_bridge.due import due
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.slices import slice_tags
from examlops_dagster.ledger.tags import SLICE_TAG
from examlops_dagster.settings import KEEP_FRESH_SECONDS

CONDITION_LIMIT = 500
"""Dagster refuses to evaluate more assets and checks than this in a user's code server."""

SENSOR = "keep_fresh"
INTERVAL_SECONDS = 30

logger = logging.getLogger(__name__)


class KeptFresh(AutomationCondition[AssetKey]):
    """True for what core.plan says may run now; one snapshot serves a whole tick.

    Parameters
    ----------
    location
        What is declared and loaded.
    freshness
        The kind that the label names.
    """

    def __init__(self, location: Location, freshness: Freshness) -> None:
        self._location = location
        self._label = f"kept fresh: {freshness}"
        self._due: weakref.WeakKeyDictionary[Any, dict[AssetKey, set[str]]]
        self._due = location.due_by_tick

    @property
    def description(self) -> str:
        """What Dagster's UI says about the condition."""
        return self._label

    @property
    def name(self) -> str:
        """The name in Dagster's condition tree."""
        return self._label

    def get_label(self) -> str | None:
        """Give the label in Dagster's UI."""
        return self._label

    def evaluate(self, context: AutomationContext[AssetKey]) -> AutomationResult[AssetKey]:
        """Give the partitions of an asset that may run now."""
        view = context.asset_graph_view
        found = self._due.get(view)
        if found is None:
            found = self._due[view] = self._evaluate_all(view.instance)
        key = context.key
        wanted = {AssetKeyPartitionKey(key, partition or None) for partition in found.get(key, ())}
        subset = (
            view.get_asset_subset_from_asset_partitions(key, wanted)
            if wanted
            else view.get_empty_subset(key=key)
        )
        return AutomationResult(context, true_subset=subset)

    def _evaluate_all(self, instance: Any) -> dict[AssetKey, set[str]]:
        runtime = self._location.runtime(instance)
        log = runtime.event_log
        found: dict[AssetKey, set[str]] = {}
        parts = due(self._location, instance).parts
        requested_by_automation(runtime, [step for part in parts for step in part])
        for part in parts:
            for step in part:
                found.setdefault(log.key(step.node.asset), set()).add(step.node.partition)
        return found


class KeepFresh(AutomationConditionSensorDefinition):
    """Dagster's sensor of conditions, which tells the location where in the workspace it is.

    A condition is not told.
    """

    def __init__(self, location: Location, **how: Any) -> None:
        super().__init__(SENSOR, **how)
        self._location = location

    def evaluate_tick(self, context: SensorEvaluationContext) -> SensorExecutionData:
        """Evaluate all conditions."""
        self._location.learn_place(context)
        return super().evaluate_tick(context)


@suppress_dagster_warnings  # that the parameter is in beta is not the user's concern
def condition_sensor(location: Location, keys: Sequence[AssetKey]) -> KeepFresh:
    """Give the sensor that evaluates our conditions."""
    return KeepFresh(
        location,
        target=AssetSelection.assets(*keys),
        use_user_code_server=True,
        default_status=DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=interval_seconds(),
        run_tags={SLICE_TAG: "true"},
        description="Requests what is stale and may run now (conditions of examlops-dagster).",
    )


def plain_sensor(location: Location, keys: Sequence[AssetKey]) -> SensorDefinition:
    """Give the sensor that requests one run for each slice."""

    def evaluate(context: SensorEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        instance = context.instance
        location.learn_place(context)
        found = due(location, instance)
        log = location.runtime(instance).event_log
        for part in found.parts:
            requested_by_automation(location.runtime(instance), part)
            yield RunRequest(
                asset_selection=sorted({log.key(step.node.asset) for step in part}),
                tags=slice_tags(part, found.nodes),
            )
        if not found.parts:
            yield SkipReason("Nothing is stale that may run now.")

    return SensorDefinition(
        SENSOR,
        evaluation_fn=evaluate,
        target=AssetSelection.assets(*keys),
        default_status=DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=interval_seconds(),
        description="Requests one run for each stale slice that may run now.",
    )


def choose_form(automation: str | None, entities: int, into: Definitions | None) -> str:
    """Say in which form assets are kept fresh: conditions, sensor or off.

    Parameters
    ----------
    automation
        What was asked for; None takes conditions where Dagster allows them.
    entities
        Number of our assets and checks.
    into
        The user's Definitions; a sensor of conditions among them may be over our assets too, and
        Dagster refuses two.
    """
    if automation is not None:
        return automation
    if entities > CONDITION_LIMIT:
        logger.info(
            "%d assets and checks: kept fresh by the plain sensor %r, since Dagster evaluates "
            "no more than %d conditions in a code server",
            entities,
            SENSOR,
            CONDITION_LIMIT,
        )
        return "sensor"
    theirs = into.sensors if into is not None else None
    if any(isinstance(s, AutomationConditionSensorDefinition) for s in theirs or ()):
        logger.info(
            "Your Definitions have a sensor of automation conditions: ours are kept fresh by the "
            "plain sensor %r, since Dagster refuses two over one asset",
            SENSOR,
        )
        return "sensor"
    return "conditions"


def interval_seconds() -> int:
    """Give the time between two ticks (``EXAMLOPS_KEEP_FRESH_SECONDS``, 30 by default)."""
    try:
        return max(1, int(os.environ.get(KEEP_FRESH_SECONDS, INTERVAL_SECONDS)))
    except ValueError:
        return INTERVAL_SECONDS
