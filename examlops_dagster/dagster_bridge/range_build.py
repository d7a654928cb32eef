"""Builds the keys of a range in one step: together where the orchestrator can, else in turn."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagster import AssetCheckResult, AssetMaterialization, MaterializeResult, MetadataValue
from dagster._core.definitions.source_asset import (
    SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as NO_EVENTS,
)

from examlops_dagster.clock import utc_now
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildRequest, BuildResult, Ended, ManyAtOnce
from examlops_dagster.dagster_bridge.body_step import BodyStep
from examlops_dagster.dagster_bridge.node import Begun, NodeBuild
from examlops_dagster.dagster_bridge.pauses import long_wait
from examlops_dagster.dagster_bridge.products import Product
from examlops_dagster.dagster_bridge.range_events import MOST_WAITING, RangeEvents
from examlops_dagster.dagster_bridge.sink_writes import check_of
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.values import FileValues


class RangeBuild:
    """Builds the keys of a range, each with its own event and data version.

    Dagster would give all of them the data version of the one output, so the output says that
    it comes without events (as Dagster's own observations of sources do, whose events the body
    stores). A failed key leaves the others recorded.

    Parameters
    ----------
    step
        What asks for it; gets the keys that failed.
    nodes
        The keys.
    values
        Where values are kept.
    """

    def __init__(self, step: BodyStep, nodes: list[Node], values: FileValues) -> None:
        self._step = step
        self._nodes = nodes
        self._values = values
        self._delivered: list[SinkWrite] = []
        self._taken: dict[Node, tuple[NodeBuild, Begun]] = {}
        self._busy: list[Node] = []

    def run(self) -> Iterator[Any]:
        """Build them, and give what Dagster has to be told."""
        step = self._step
        # a sink is written once the version is recorded, while its value is at hand
        most = 1 if step.location.graph.declarations[step.name].sinks else MOST_WAITING
        ledger = step.runtime.ledger
        with RangeEvents(step.context, ledger, most, self._deliver) as events:
            left, together = self._nodes, self._together()
            if together is not None:
                yield from self._as_they_end(together, events)
                left = self._busy  # somebody else builds these
            for node in left:
                yield from self._in_turn(node, events)
            yield from events.flush()
        if step.failed:
            return
        yield MaterializeResult(asset_key=step.key, metadata={NO_EVENTS: True})
        yield from self._checks()

    def _together(self) -> Generator[Ended, None, None] | None:
        """Hand the keys over together; None where the orchestrator takes one at a time."""
        if len(self._nodes) < 2:  # noqa: PLR2004 - one is no array
            return None
        build_ = self._step.node_build(self._nodes[0])
        name, _ = build_.chosen()
        orchestrator = build_.orchestrator(name)
        if not isinstance(orchestrator, ManyAtOnce):
            return None
        return orchestrator.run_many(self._requests())

    def _requests(self) -> Iterator[BuildRequest]:
        """Claim and judge the keys, and give what is to be run of those that are ours."""
        told = self._step.context.log.info
        for node in self._nodes:
            build_ = self._step.node_build(node)
            if not build_.claim.try_to_take():
                self._busy.append(node)
                continue
            try:
                found = self._begun(build_)
            except BaseException:
                build_.claim.release()
                raise
            if found is None:
                build_.claim.release()
                continue
            begun, request = found
            is_first = not self._taken
            self._taken[node] = build_, begun
            yield replace(request, told=told) if is_first else request

    def _begun(self, build_: NodeBuild) -> tuple[Begun, BuildRequest] | None:
        try:
            judge = self._step.judged(build_)
            if not self._step.has_to(build_, judge):
                return None
            begun = build_.begin(judge)
            try:
                return begun, build_.request(judge, begun)
            except BaseException as error:
                build_.fail(begun.attempt, error)
                raise
        except AssetBuildError as error:
            self._step.failed[build_.node] = error
            return None

    def _as_they_end(
        self, together: Generator[Ended, None, None], events: RangeEvents
    ) -> Iterator[Any]:
        """Record each key as it comes; whoever interrupts that, interrupts the rest."""
        try:
            with long_wait(pauses=True):
                for request, outcome in together:
                    build_, begun = self._taken.pop(request.node)
                    yield from self._ended(build_, begun, outcome, events)
        except BaseException as error:
            with suppress(BaseException):  # it raises the same again
                together.throw(error)
            for build_, begun in self._taken.values():
                build_.fail(begun.attempt, error)
            tokens = {node: build_.claim.token for node, (build_, _) in self._taken.items()}
            self._step.runtime.ledger.release_all(tokens)
            raise

    def _ended(
        self,
        build_: NodeBuild,
        begun: Begun,
        outcome: BuildResult | AssetBuildError,
        events: RangeEvents,
    ) -> Iterator[Any]:
        product = kept = None
        try:
            if isinstance(outcome, AssetBuildError):
                build_.said.end()
                build_.fail(begun.attempt, outcome)
                self._step.failed[build_.node] = outcome
            else:
                product = build_.produced(begun, outcome)
                kept = self._kept(build_, product)
        except AssetBuildError as error:
            self._step.failed[build_.node] = error
        except BaseException:
            build_.claim.release()
            raise
        if product is None or kept is None:
            build_.claim.release()
            return
        yield from self._recorded(build_, product, kept, events)

    def _in_turn(self, node: Node, events: RangeEvents) -> Iterator[Any]:
        build_ = self._step.node_build(node)
        if not build_.claim.try_to_take():
            yield from events.flush()  # who waits for another keeps nobody waiting
            build_.claim.take()
        try:
            product = self._step.product(build_, alone=False)
            kept = None if product is None else self._kept(build_, product)
        except BaseException:
            build_.claim.release()
            raise
        if product is None or kept is None:
            build_.claim.release()
            return
        yield from self._recorded(build_, product, kept, events)

    def _recorded(
        self,
        build_: NodeBuild,
        product: Product,
        kept: tuple[AssetMaterialization, Path | None],
        events: RangeEvents,
    ) -> Iterator[Any]:
        """Record a key, which writes its sinks; its claim is the events' now."""
        yield from events.add(build_, product, *kept)
        yield from build_.said.evaluations(self._step.key, self._step.context.instance)

    def _deliver(self, product: Product) -> None:
        self._delivered.extend(self._step.deliver(product))

    def _kept(
        self, build_: NodeBuild, product: Product
    ) -> tuple[AssetMaterialization, Path | None]:
        """Keep the value of a key, and give its event and the file, which is not durable yet."""
        metadata: dict[str, Any] = {}
        path = None
        try:
            if product.value is not None:
                path = self._values.keep(
                    self._step.key.path,
                    product.attempt.node.partition,
                    product.data_version,
                    product.value,
                    durable=False,
                )
                metadata["path"] = MetadataValue.path(path)
            return self._step.event(product, metadata), path
        except BaseException as error:
            build_.fail(product.attempt, error)
            raise

    def _checks(self) -> Iterator[AssetCheckResult]:
        """Report each sink once for a range: failed if a partition of it could not be written."""
        declaration = self._step.location.graph.declarations[self._step.name]
        for number, sink in enumerate(declaration.sinks, start=1):
            mine = [write for write in self._delivered if write.number == number]
            bad = [write for write in mine if write.error]
            last = SinkWrite(self._nodes[-1], number, sink.url, "", "", utc_now())
            yield check_of(self._step.key, (bad or mine or [last])[-1], len(bad))
