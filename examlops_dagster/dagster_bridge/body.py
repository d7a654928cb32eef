"""The one op body: builds the nodes of a step, whoever asks for it, under any executor.

claim -> inputs as read -> attempt row -> orchestrator -> data version -> version ->
materialization -> sinks -> release
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DataVersion,
    Failure,
    MaterializeResult,
    MetadataValue,
    RetryRequested,
)
from dagster._core.definitions.source_asset import (
    SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as NO_EVENTS,
)
from dagster._core.storage.tags import (
    PARENT_RUN_ID_TAG,
    RETRY_NUMBER_TAG,
    SYSTEM_TAG_PREFIX,
)

from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.core.sinks import check_name
from examlops_dagster.core.walk import last_line
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager, Kept
from examlops_dagster.dagster_bridge.node import NodeBuild, Product
from examlops_dagster.dagster_bridge.partitions import keys_of_run
from examlops_dagster.dagster_bridge.range_events import MOST_WAITING, RangeEvents
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.translator import slug
from examlops_dagster.delivery import deliver
from examlops_dagster.errors import AssetBuildError, ExamlopsError, UsageError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.ledger.event_log import (
    BUILD_TAG,
    BUILT_FROM,
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    FORCED_TAG,
    SLICE_TAG,
    VERSION_TAG,
)
from examlops_dagster.ledger.rows import dump_reads
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.values import FileValues


def build(context: AssetExecutionContext, location: Location, name: str) -> Iterator[Any]:
    """Build what a step of a run is about, and yield its materializations.

    Raises
    ------
    Failure
        When a build failed; the run's log has the full traceback.
    RetryRequested
        When its budget leaves another attempt.
    """
    step = _Step(context, location, location.runtime(context.instance), name)
    try:
        yield from step.run()
    except ExamlopsError as error:
        raise Failure(last_line(error)) from error


@dataclass
class _Step:
    context: AssetExecutionContext
    location: Location
    runtime: Runtime
    name: str
    failed: dict[Node, AssetBuildError] = field(default_factory=dict)

    @property
    def planned(self) -> bool:
        """Whether we planned the run; any other was asked for by a person, or by Dagster.

        A run that a person executes again in the UI has the tags of the first one.
        """
        tags = self.context.run.tags
        again = PARENT_RUN_ID_TAG in tags and RETRY_NUMBER_TAG not in tags
        return SLICE_TAG in tags and not again

    @property
    def forced(self) -> bool:
        named = json.loads(self.context.run.tags.get(FORCED_TAG, "[]"))
        return not self.planned or self.name in named

    def run(self) -> Iterator[Any]:
        if self.location.is_older(self.location.graph.declarations[self.name]):
            self.context.log.warning(
                "The file of %s was edited after this code location loaded it; it is judged by "
                "the code that is loaded → reload the code location",
                self.name,
            )
        nodes = [Node(self.name, key) for key in keys_of_run(self.context, self.name)]
        several = self.context.has_partition_key_range
        if self.context.retry_number and several:
            done = self.runtime.ledger.of_run(self.context.run.run_id)
            nodes = [n for n in nodes if n not in done or done[n].state.holds]
        elif not self.planned and not self.context.retry_number:
            self.runtime.ledger.lift(nodes)
        self.runtime.event_log.sync()
        if several:
            yield from self.several(nodes)
        else:
            yield from self.one(nodes[0])
        if self.failed:
            raise self._ending()

    def one(self, node: Node) -> Iterator[Any]:
        """Build a node whose event Dagster makes of the output."""
        build_ = self._node_build(node)
        with build_.claimed():
            product = self._product(build_, alone=True)
            if product is None:
                return
            try:
                yield self._result(product, self._output_value(product))
            except GeneratorExit:  # the I/O manager failed, and Dagster reports that
                build_.fail(product.attempt, OSError("its value could not be stored"))
                raise
            build_.complete(product)
            for write in self._deliver(product):
                yield self._check(write)

    def several(self, nodes: list[Node]) -> Iterator[Any]:
        """Build the keys of a range, each with its own event and data version.

        Dagster would give all of them the data version of the one output, so the output says
        that it comes without events (as Dagster's own observations of sources do, whose events
        the body stores). A failed key leaves the others recorded.
        """
        manager = getattr(self.context.resources, IO_MANAGER_KEY)
        if not isinstance(manager, ExamlopsIOManager):
            raise UsageError(
                f"{self.name}: the I/O manager under {IO_MANAGER_KEY!r} is not ours, and stores "
                "one partition at a time → materialize the partitions one by one"
            )
        values = manager.values(self.context.instance)
        delivered: list[SinkWrite] = []
        # a sink is written once the version is recorded, while its value is at hand
        most = 1 if self.location.graph.declarations[self.name].sinks else MOST_WAITING
        with RangeEvents(self.context, self.runtime.ledger, most) as events:
            for node in nodes:
                build_ = self._node_build(node)
                if not build_.is_free():
                    yield from events.flush()  # who waits for another keeps nobody waiting
                    build_.claim()
                try:
                    product = self._product(build_, alone=False)
                    kept = None if product is None else self._kept(build_, product, values)
                except BaseException:
                    build_.release()
                    raise
                if product is None or kept is None:
                    build_.release()
                    continue
                yield from events.add(build_, product, *kept)
                delivered.extend(self._deliver(product))
            yield from events.flush()
        if self.failed:
            return
        yield MaterializeResult(asset_key=self._key, metadata={NO_EVENTS: True})
        yield from self._checks_of_range(nodes, delivered)

    def _kept(
        self, build_: NodeBuild, product: Product, values: FileValues
    ) -> tuple[AssetMaterialization, Path | None]:
        """Keep the value of a key, and give its event and the file, which is not durable yet."""
        metadata: dict[str, Any] = {}
        path = None
        try:
            if product.value is not None:
                path = values.keep(
                    self._key.path,
                    product.attempt.node.partition,
                    product.data_version,
                    product.value,
                    durable=False,
                )
                metadata["path"] = MetadataValue.path(path)
            return self._event(product, metadata), path
        except BaseException as error:
            build_.fail(product.attempt, error)
            raise

    def _node_build(self, node: Node) -> NodeBuild:
        return NodeBuild(self.context, self.location, self.runtime, node)

    def _product(self, build_: NodeBuild, *, alone: bool) -> Product | None:
        """Build a node; None if it failed, or if nothing of a range has to be done for it."""
        try:
            build_.adopt_sources()
            judge = build_.judge()
            if not self.forced:
                if not judge.own_reasons(build_.node):
                    return build_.unchanged(judge) if alone else None
                build_.refuse_if_held(judge)
            return build_.produce(judge)
        except AssetBuildError as error:
            self.failed[build_.node] = error
            return None

    def _deliver(self, product: Product) -> list[SinkWrite]:
        """Write the value to the sinks; where the function was not called, say how they stand."""
        declaration = self.location.graph.declarations[self.name]
        node = product.attempt.node
        if not declaration.sinks:
            return []
        if product.state is BuildState.UNCHANGED:
            return self.runtime.sink_writes.of(node)
        writes = deliver(
            declaration,
            node,
            product.data_version,
            None if product.value is None else decode(product.value),
            folder=self.runtime.home.folder,
            writes=self.runtime.sink_writes,
        )
        for write in writes:
            if write.error:
                self.context.log.error("Sink %s of %s failed: %s", write.url, node, write.error)
            else:
                self.context.log.info("Wrote %s to %s", node, write.url)
        return writes

    def _check(self, write: SinkWrite, failed: int = 0) -> AssetCheckResult:
        """Report a sink as an asset check, which does not block what is below."""
        metadata: dict[str, Any] = {"url": write.url}
        if write.error:
            metadata["error"] = write.error
        if failed:
            metadata["failed_partitions"] = failed
        return AssetCheckResult(
            passed=not write.error,
            asset_key=self._key,
            check_name=check_name(write.number),
            severity=AssetCheckSeverity.ERROR,
            metadata=metadata,
        )

    def _checks_of_range(
        self, nodes: list[Node], delivered: list[SinkWrite]
    ) -> Iterator[AssetCheckResult]:
        """Report each sink once for a range: failed if a partition of it could not be written."""
        declaration = self.location.graph.declarations[self.name]
        for number, sink in enumerate(declaration.sinks, start=1):
            mine = [write for write in delivered if write.number == number]
            bad = [write for write in mine if write.error]
            last = SinkWrite(nodes[-1], number, sink.url, "", "", utc_now())
            yield self._check((bad or mine or [last])[-1], len(bad))

    def _ending(self) -> Failure | RetryRequested:
        """Say how the step ends: another attempt if a budget leaves one, else as failed."""
        declaration = self.location.graph.declarations[self.name]
        holds = self.runtime.ledger.holds(self.failed)
        for node, error in self.failed.items():
            self._log_error(node, error)
        left = [
            hold
            for hold in holds.values()
            if hold.state in (BuildState.FAILED, BuildState.TIMED_OUT)
            and hold.failures <= declaration.retries
        ]
        if left:
            failures = max(hold.failures for hold in left)
            delay = declaration.retry_backoff * failures
            self.context.log.info(
                "%s: attempt %d of %d failed, the next one in %g s",
                self.name,
                failures,
                1 + declaration.retries,
                delay,
            )
            # the budget is counted in `builds`; this only has to exceed Dagster's own count
            return RetryRequested(self.context.retry_number + 1, seconds_to_wait=delay)
        first = next(iter(self.failed.values()))
        more = f" (+{len(self.failed) - 1} more partitions)" if len(self.failed) > 1 else ""
        return Failure(f"{first.reason}{more}")

    def _log_error(self, node: Node, error: AssetBuildError) -> None:
        self.context.log.error("%s failed\n%s", node, error.details or error.reason)
        path = error_file(self.context.instance, self.context.run.run_id, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(error.details or error.reason, encoding="utf-8")

    def _output_value(self, product: Product) -> Any:
        """Give what the I/O manager stores: bytes for ours, the object for another."""
        if product.value is None:
            return None
        manager = getattr(self.context.resources, IO_MANAGER_KEY)
        if isinstance(manager, ExamlopsIOManager):
            return Kept(product.value, product.data_version)
        return decode(product.value)

    def _result(self, product: Product, value: Any) -> MaterializeResult[Any]:
        arguments: dict[str, Any] = {} if product.value is None else {"value": value}
        return MaterializeResult(
            asset_key=self._key,
            data_version=DataVersion(product.data_version),
            metadata=self._metadata(product),
            tags=_tags(product),
            **arguments,
        )

    def _event(self, product: Product, metadata: Mapping[str, Any]) -> AssetMaterialization:
        return event_of(self._key, product, {**self._metadata(product), **metadata})

    def _metadata(self, product: Product) -> dict[str, Any]:
        unchanged = product.state is BuildState.UNCHANGED
        return facts_of(product, self._former_metadata() if unchanged else product.metadata)

    def _former_metadata(self) -> dict[str, Any]:
        """Give what the user's function said about the content that is still there."""
        event = self.context.instance.get_latest_materialization_event(self._key)
        found: Mapping[str, Any] = {}
        if event is not None and event.asset_materialization is not None:
            found = event.asset_materialization.metadata
        return {
            k: v for k, v in found.items() if not k.startswith(("examlops/", SYSTEM_TAG_PREFIX))
        }

    @property
    def _key(self) -> AssetKey:
        return self.runtime.event_log.key(self.name)


def event_of(key: AssetKey, product: Product, facts: Mapping[str, Any]) -> AssetMaterialization:
    """Give the event of a build, for where Dagster makes none of an output."""
    return AssetMaterialization(
        key,
        partition=product.attempt.node.partition or None,
        metadata=facts,
        tags={
            **_tags(product),
            DATA_VERSION_TAG: product.data_version,
            CODE_VERSION_TAG: product.attempt.code_version,
        },
    )


def facts_of(product: Product, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give the metadata of a build's event: what the function said, and what we know."""
    facts: dict[str, Any] = dict(said)
    facts.update({f"examlops/{name}": text for name, text in product.provenance.items()})
    facts["version"] = product.version
    facts[BUILT_FROM] = dump_reads(product.attempt.built_from)
    return facts


def _tags(product: Product) -> dict[str, str]:
    return {VERSION_TAG: str(product.version), BUILD_TAG: product.attempt.build_id}


def error_file(instance: DagsterInstance, run_id: str, node: Node) -> Path:
    """Give the file that holds the whole error of a build, beside the run's other logs."""
    name = slug(f"{node.asset}.{node.partition}" if node.partition else node.asset)
    return Path(instance.storage_directory()) / run_id / "errors" / f"{name}.txt"
