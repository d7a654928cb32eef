"""One tick of automation: ours as conditions and as sensor, beside `AutomationCondition.eager()`.

Each is evaluated as Dagster does it on the server of the user's code: with the cursor of the tick
before it, and Dagster's limit of 500 assets lifted for `eager()`. Everything was built and nothing
is stale, as most ticks find it; then the source of one chain of ten changed, of ours.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from _common import (
    Took,
    fill,
    fill_ledger,
    groups,
    home_in,
    in_turn,
    inside,
    ours,
    plain,
    scratch,
    show,
)

FILLED = 1000
"""Up to so many assets have their events in Dagster's log, too; beyond, filling takes long."""

WARM = 2
"""Ticks before those that are measured: the first one knows no former tick."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conditions", type=int, default=450)
    parser.add_argument("--eager", type=int, nargs="+", default=[450, 1000])
    parser.add_argument("--sensor", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    forms = [("conditions", given.conditions), *(("sensor", size) for size in given.sensor)]
    took: dict[tuple[str, int], Took] = {}
    stale: dict[tuple[str, int], Took] = {}
    with scratch() as folder:
        from examlops_dagster.dagster_bridge.event_batches import events_in_batches

        for size in given.eager:
            home = home_in(folder, f"eager{size}", {f"eager{size}": _eager(size)})
            with inside(home), _instance() as instance:
                with events_in_batches(instance):
                    _materialize(instance, size)
                took["eager()", size] = _ticks(_tick_of_eager(instance, size), given.repeat)
        for form, size in forms:
            name = f"{form}{size}"
            with inside(home_in(folder, name, {name: ours(groups(size))})):
                (fill if size <= FILLED else fill_ledger)(name)
                with _instance() as instance:
                    tick = _tick_of_ours(instance, name, form)
                    took[form, size] = _ticks(partial(_see, tick, 0), given.repeat)
                    _change(name)
                    stale[form, size] = _ticks(partial(_see, tick, 1), given.repeat)
    reference = {size: took["eager()", size] for size in given.eager}
    rows = []
    for (form, size), each in took.items():
        of = min(reference, key=lambda other: abs(other - size))
        ratio = "" if form == "eager()" else _each(reference[of], of) / _each(each, size)
        rows.append((form, size, each, _micro(each, size), stale.get((form, size), ""), ratio))
    head = ("form", "assets", "tick", "an asset", "tick with ten stale", "eager() takes, an asset")
    show("one tick of automation", head, rows)


def _ticks(tick: Callable[[], object], repeat: int) -> Took:
    for _ in range(WARM):
        tick()
    return in_turn({"": tick}, repeat)[""]


def _tick_of_eager(instance: Any, size: int) -> Callable[[], Any]:
    import dagster as dg
    from dagster._core.definitions import automation_condition_sensor_definition as limits

    limits.MAX_ENTITIES = 10**9
    definitions = importlib.import_module(f"eager{size}").defs
    sensor = dg.AutomationConditionSensorDefinition(
        "eager", target=dg.AssetSelection.all(), use_user_code_server=True
    )
    return _tick(instance, dg.Definitions.merge(definitions, dg.Definitions(sensors=[sensor])))


def _tick_of_ours(instance: Any, name: str, form: str) -> Callable[[], Any]:
    from examlops_dagster import build_definitions

    module = importlib.import_module(name)
    return _tick(instance, build_definitions([module], automation=form))


def _tick(instance: Any, definitions: Any) -> Callable[[], Any]:
    """Evaluate the one sensor of definitions, again and again from where it was."""
    import dagster as dg

    repository = definitions.get_repository_def()
    [sensor] = repository.sensor_defs
    cursor: list[str | None] = [None]

    def tick() -> Any:
        context = dg.build_sensor_context(instance, cursor=cursor[0], repository_def=repository)
        found = sensor.evaluate_tick(context)
        cursor[0] = found.cursor
        return found

    return tick


def _see(tick: Callable[[], Any], requested: int) -> None:
    """Take a tick, and see that it asks for as many runs as there is reason for."""
    found = tick()
    assert bool(found.run_requests) == bool(requested), found


def _change(name: str) -> None:
    """Make what is below the source of one chain stale."""
    from examlops_dagster.core.records import Node
    from examlops_dagster.project import open_project

    project = open_project([name], reading=False)
    with project.database.write() as connection:
        connection.execute(
            "UPDATE heads SET code_version = 'older' WHERE asset = :asset", asset=Node("a10").asset
        )
    project.close()


def _eager(size: int) -> str:
    condition = "automation_condition=dg.AutomationCondition.eager()"
    return plain(groups(size)).replace("@dg.asset(", f"@dg.asset({condition}, ")


def _materialize(instance: Any, size: int) -> None:
    import dagster as dg

    for number in range(size):
        instance.report_runless_asset_event(dg.AssetMaterialization(f"a{number}"))


def _instance() -> Any:
    from dagster import DagsterInstance

    return DagsterInstance.get()


def _each(took: Took, size: int) -> Took:
    return Took(took.wall / size, took.cpu / size)


def _micro(took: Took, size: int) -> str:
    each = _each(took, size)
    return f"{each.wall * 1e6:.0f} ({each.cpu * 1e6:.0f}) µs"


if __name__ == "__main__":
    main()
