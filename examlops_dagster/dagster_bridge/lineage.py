"""Delivers lineage from Dagster's daemon, also of what was built without ``exa``."""

from __future__ import annotations

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason

from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.errors import ExamlopsError
from examlops_dagster.governance.lineage import deliver
from examlops_dagster.governance.lineage_backend import is_configured
from examlops_dagster.home import Home

SENSOR = "deliver_lineage"
INTERVAL_SECONDS = 30
MOST_IN_A_TICK = 2_000
SECONDS_OF_A_TICK = 20.0
"""A tick has a minute; what is left waits for the next one."""


def lineage_sensors(home: Home, location: Location) -> list[SensorDefinition]:
    """Give the sensor that delivers lineage; none where there is no backend."""
    if not is_configured(home):
        return []

    def evaluate(context: SensorEvaluationContext) -> SkipReason:
        return SkipReason(deliver_in_tick(location, context))

    return [
        SensorDefinition(
            SENSOR,
            evaluation_fn=evaluate,
            default_status=DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=INTERVAL_SECONDS,
            description="Delivers lineage events to the OpenLineage backend.",
        )
    ]


def deliver_in_tick(location: Location, context: SensorEvaluationContext) -> str:
    """Deliver what waits, as far as a tick allows, and say what came of it."""
    runtime = location.runtime(context.instance)
    runtime.event_log.sync()  # a build that died after its event was stored has not failed
    for attempt in runtime.ledger.bury():
        context.log.info("The process that built %s died", attempt.node)
    try:
        done = deliver(
            runtime.database, runtime.home, most=MOST_IN_A_TICK, seconds=SECONDS_OF_A_TICK
        )
    except ExamlopsError as error:
        context.log.error("No lineage is delivered: %s", error)  # noqa: TRY400 - a user's mistake
        return str(error)
    return f"{done}."
