"""Sensors that probe inside a tick of Dagster, without a run: for frequent, light checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    AssetSelection,
    DagsterInstance,
    DefaultSensorStatus,
    MetadataValue,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge
from examlops_dagster.dagster_bridge.admission import refusal_of_probe, settle_all
from examlops_dagster.dagster_bridge.automation import interval_seconds
from examlops_dagster.dagster_bridge.io import ExamlopsIOManager
from examlops_dagster.dagster_bridge.node import NodeBuild
from examlops_dagster.dagster_bridge.products import Product, event_of, facts_of
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.sink_writes import write_sinks
from examlops_dagster.dagster_bridge.translator import Translator, slug
from examlops_dagster.errors import ExamlopsError


def is_probed(declaration: Declaration) -> bool:
    """Tell whether ``probe_sensors=True`` probes a node: a sensor with a schedule."""
    return declaration.node_type is NodeType.SENSOR and isinstance(declaration.freshness, Schedule)


def probes(
    location: Location, translate: Translator, manager: ExamlopsIOManager
) -> Iterator[SensorDefinition]:
    """Give a Dagster sensor for each node that the location probes.

    Parameters
    ----------
    manager
        Keeps what a sensor returns, for those that have it as input.
    """
    for name in sorted(location.probed):
        yield _probe(location, translate, name, manager)


def _probe(
    location: Location, translate: Translator, name: str, manager: ExamlopsIOManager
) -> SensorDefinition:
    def evaluate(context: SensorEvaluationContext) -> SkipReason:
        return SkipReason(probe(location, context, name, manager))

    return SensorDefinition(
        f"probe_{slug(name)}",
        evaluation_fn=evaluate,
        target=AssetSelection.assets(translate.get_asset_key(name)),
        default_status=DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=interval_seconds(),
        description=f"Calls {name} at each tick of its cron, in the tick and without a run.",
    )


def probe(
    location: Location,
    context: SensorEvaluationContext,
    name: str,
    manager: ExamlopsIOManager,
) -> str:
    """Call a sensor if its cron lets it, record what it said, and give the words for the tick.

    An attempt that failed is made again at the next tick, as long as its budget allows.
    """
    runtime, node = location.runtime(context.instance), Node(name)
    runtime.ledger.see({node: utc_now()})
    runtime.event_log.sync()
    tick = _Tick(context)
    build = NodeBuild(tick, location, runtime, node)
    if node in runtime.ledger.claims() or node in runtime.event_log.in_flight():
        return f"{name} is being built."
    with build.claim:
        judge = build.judge()
        barred = _barred(location, runtime, node, judge)
        if barred:
            return barred
        try:
            product = build.produce(judge)
        except ExamlopsError as error:
            context.log.exception("%s failed", name)
            return f"{name} failed: {error}"
        former = judge.snapshot.records.get(node)
        try:
            _record(runtime, context.instance, product, manager)
        except BaseException as error:
            build.fail(product.attempt, error)
            raise
        build.complete(product)
        runtime.event_log.send(runtime.outlets.unsent(name, product.attempt.run_id))
        if build.declaration.sinks and product.value is not None:
            write_sinks(tick, runtime, build.declaration, product)
    settle_all(runtime)
    if former is not None and former.data_version == product.data_version:
        return f"{name} saw nothing new (version {product.version})."
    return f"{name} is at version {product.version}."


def _barred(location: Location, runtime: Runtime, node: Node, judge: Judge) -> str:
    """Say why a sensor is not called in this tick; empty where it is."""
    if not judge.has_ticked(node):
        return f"{node} waits for its next tick."
    hold = runtime.ledger.holds([node]).get(node)
    if hold is not None and judge.is_held(node, hold):
        return f"{node} has failed: {hold.error}"
    return refusal_of_probe(location, runtime, node, judge)


def _record(
    runtime: Runtime, instance: DagsterInstance, product: Product, manager: ExamlopsIOManager
) -> None:
    key = runtime.event_log.key(product.attempt.node.asset)
    facts = facts_of(product, product.metadata)
    if product.value is not None:
        values = manager.values(instance)
        path = values.keep(key.path, "", product.data_version, product.value)
        facts["path"] = MetadataValue.path(path)
    instance.report_runless_asset_event(event_of(key, product, facts))


@dataclass(frozen=True)
class _NoRun:
    run_id: str = ""
    tags: dict[str, str] = field(default_factory=dict)


class _Tick:
    """A tick of a sensor, as a build asks for it; sensors have no inputs to load."""

    retry_number = 0
    resources = None
    run = _NoRun()

    def __init__(self, context: SensorEvaluationContext) -> None:
        self.log = context.log
        self.instance = context.instance

    def load_asset_value(self, *_: Any, **__: Any) -> Any:
        """Give nothing."""
