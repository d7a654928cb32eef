"""A schedule in Dagster for each sensor and task that declares a cron: one run a due tick."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta, timezone

from dagster import (
    AssetSelection,
    DefaultScheduleStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
)

from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State
from examlops_dagster.dagster_bridge.admission import requested_by_automation
from examlops_dagster.dagster_bridge.automation import SENSOR
from examlops_dagster.dagster_bridge.due import due, has_schedule_of_its_own, schedule_name
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.slices import slice_tags
from examlops_dagster.dagster_bridge.translator import Translator


def schedules(location: Location, translate: Translator, zone: str) -> Iterator[ScheduleDefinition]:
    """Give the schedules of a location.

    Parameters
    ----------
    zone
        IANA name for those that name none.
    """
    for name, declaration in location.graph.declarations.items():
        schedule = declaration.freshness
        if name in location.probed:
            continue
        if has_schedule_of_its_own(declaration) and isinstance(schedule, Schedule):
            yield _schedule(location, translate, name, schedule, schedule.timezone or zone)


def _schedule(
    location: Location, translate: Translator, name: str, schedule: Schedule, zone: str
) -> ScheduleDefinition:
    node = Node(name)
    key = translate.get_asset_key(name)

    def evaluate(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        tick = context.scheduled_execution_time.astimezone(timezone.utc)
        # Dagster's scheduler ran before this tick, so it is one that the node has waited for
        found = due(location, context.instance, seen_since=tick - timedelta(seconds=1))
        steps = found.slice_of(name)
        if steps:
            keys = sorted({translate.get_asset_key(step.node.asset) for step in steps})
            requested_by_automation(location.runtime(context.instance), steps)
            return RunRequest(asset_selection=keys, tags=slice_tags(steps, found.nodes))
        verdict = found.verdicts[node]
        why = "; ".join(verdict.why) or "nothing to do"
        if verdict.state is State.RUNNABLE:
            why = f"its upstreams are built first, and {SENSOR} requests it then ({why})"
        return SkipReason(f"{name} is {verdict.shown}: {why}")

    return ScheduleDefinition(
        name=schedule_name(name),
        cron_schedule=schedule.cron,
        execution_timezone=zone,
        target=AssetSelection.assets(key),
        execution_fn=evaluate,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Runs {name} at each due tick, after those of its upstreams that are stale; "
        "skipped while its former run is in flight.",
    )
