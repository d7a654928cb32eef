"""The one op body: builds the nodes of a step, whoever asks for it, under any executor.

policy -> claim -> inputs as read -> attempt row -> orchestrator -> data version -> version ->
materialization -> sinks -> release
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagster import AssetExecutionContext, Failure

from examlops_dagster.core.failures import last_line
from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.admission import refusal_of, settle
from examlops_dagster.dagster_bridge.body_step import BodyStep
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager
from examlops_dagster.dagster_bridge.partitions import keys_of_run
from examlops_dagster.dagster_bridge.range_build import RangeBuild
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.sink_writes import check_of
from examlops_dagster.errors import ExamlopsError, UsageError


def build(context: AssetExecutionContext, location: Location, name: str) -> Iterator[Any]:
    """Build what a step of a run is about, and yield its materializations.

    Raises
    ------
    Failure
        When a build failed; the run's log has the full traceback.
    RetryRequested
        When its budget leaves another attempt.
    """
    step = BodyStep(context, location, location.runtime(context.instance), name)
    refusal = refusal_of(context.run, location, step.runtime)
    if refusal:
        raise Failure(refusal, allow_retries=False)
    try:
        yield from _run(step)
    except ExamlopsError as error:
        raise Failure(last_line(error)) from error
    finally:
        settle(context.run, step.runtime)


def _run(step: BodyStep) -> Iterator[Any]:
    """Build the nodes of the step, and give what Dagster has to be told."""
    if step.location.is_older(step.location.graph.declarations[step.name]):
        step.context.log.warning(
            "The file of %s was edited after this code location loaded it; it is judged by "
            "the code that is loaded → reload the code location",
            step.name,
        )
    nodes = [Node(step.name, key) for key in keys_of_run(step.context, step.name)]
    several = step.context.has_partition_key_range
    if step.context.retry_number and several:
        done = step.runtime.ledger.of_run(step.context.run.run_id)
        nodes = [n for n in nodes if n not in done or done[n].state.holds]
    elif not step.planned and not step.context.retry_number:
        step.runtime.ledger.lift(nodes)
    step.runtime.event_log.sync()
    step.runtime.event_log.send_left()
    try:
        if several:
            yield from _several(step, nodes)
        else:
            yield from _one(step, nodes[0])
    finally:
        _send_emitted(step)
    if step.failed:
        raise step.ending()


def _send_emitted(step: BodyStep) -> None:
    """Give Dagster the events of datasets and aliases that successful builds emitted."""
    if not step.location.graph.declarations[step.name].outlets:
        return
    from examlops_dagster.ledger.event_log.outlets import (  # noqa: PLC0415 - imports SQLAlchemy
        materializations,
    )

    for batch in step.runtime.outlets.unsent(step.name, step.context.run.run_id):
        for event in materializations(batch):
            step.context.log_event(event)
        step.runtime.outlets.sent(batch.build_id)


def _one(step: BodyStep, node: Node) -> Iterator[Any]:
    """Build a node whose event Dagster makes of the output."""
    build_ = step.node_build(node)
    with build_.claim:
        product = step.product(build_, alone=True)
        if product is None:
            return
        try:
            yield step.result(product)
        except GeneratorExit:  # the I/O manager failed, and Dagster reports that
            build_.fail(product.attempt, OSError("its value could not be stored"))
            raise
        build_.complete(product)
        yield from build_.said.evaluations(step.key, step.context.instance)
        for write in step.deliver(product):
            yield check_of(step.key, write)


def _several(step: BodyStep, nodes: list[Node]) -> Iterator[Any]:
    """Build the keys of a range."""
    manager = getattr(step.context.resources, IO_MANAGER_KEY)
    if not isinstance(manager, ExamlopsIOManager):
        raise UsageError(
            f"{step.name}: the I/O manager under {IO_MANAGER_KEY!r} is not ours, and stores "
            "one partition at a time → materialize the partitions one by one"
        )
    yield from RangeBuild(step, nodes, manager.values(step.context.instance)).run()
