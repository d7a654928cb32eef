"""The one op body: builds the nodes of a step, whoever asks for it, under any executor.

policy -> claim -> inputs as read -> attempt row -> orchestrator -> data version -> version ->
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
    RetryRequested,
)
from dagster._core.storage.tags import (
    PARENT_RUN_ID_TAG,
    RETRY_NUMBER_TAG,
    SYSTEM_TAG_PREFIX,
)

from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.core.sinks import check_name
from examlops_dagster.core.status import Judge
from examlops_dagster.core.walk import last_line
from examlops_dagster.dagster_bridge.admission import refusal_of, settle
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager, Kept
from examlops_dagster.dagster_bridge.node import NodeBuild, Product
from examlops_dagster.dagster_bridge.partitions import keys_of_run
from examlops_dagster.dagster_bridge.pipes_metadata import as_metadata
from examlops_dagster.dagster_bridge.range_build import RangeBuild
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.translator import slug
from examlops_dagster.delivery import deliver as deliver_value
from examlops_dagster.errors import AssetBuildError, ExamlopsError, UsageError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.rows import dump_reads
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    FORCED_TAG,
    SLICE_TAG,
    VERSION_TAG,
)


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
        yield from step.run()
    except ExamlopsError as error:
        raise Failure(last_line(error)) from error
    finally:
        settle(context.run, step.runtime)


@dataclass
class BodyStep:
    """One step of a run.

    Attributes
    ----------
    context, location, runtime
        Of the step.
    name
        The asset that it builds.
    failed
        Nodes that were not built, and why.
    """

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
        """Whether the function is called even if nothing is stale."""
        named = json.loads(self.context.run.tags.get(FORCED_TAG, "[]"))
        return not self.planned or self.name in named

    def run(self) -> Iterator[Any]:
        """Build the nodes of the step, and give what Dagster has to be told."""
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
        self.runtime.event_log.send_left()
        try:
            if several:
                yield from self.several(nodes)
            else:
                yield from self.one(nodes[0])
        finally:
            self._send_emitted()
        if self.failed:
            raise self._ending()

    def _send_emitted(self) -> None:
        """Give Dagster the events of datasets and aliases that successful builds emitted."""
        if not self.location.graph.declarations[self.name].outlets:
            return
        from examlops_dagster.ledger.event_log.outlets import (  # noqa: PLC0415 - imports SQLAlchemy
            materializations,
        )

        for batch in self.runtime.outlets.unsent(self.name, self.context.run.run_id):
            for event in materializations(batch):
                self.context.log_event(event)
            self.runtime.outlets.sent(batch.build_id)

    def one(self, node: Node) -> Iterator[Any]:
        """Build a node whose event Dagster makes of the output."""
        build_ = self.node_build(node)
        with build_.claimed():
            product = self.product(build_, alone=True)
            if product is None:
                return
            try:
                yield self._result(product, self._output_value(product))
            except GeneratorExit:  # the I/O manager failed, and Dagster reports that
                build_.fail(product.attempt, OSError("its value could not be stored"))
                raise
            build_.complete(product)
            yield from build_.said.evaluations(self.key, self.context.instance)
            for write in self.deliver(product):
                yield self.check(write)

    def several(self, nodes: list[Node]) -> Iterator[Any]:
        """Build the keys of a range."""
        manager = getattr(self.context.resources, IO_MANAGER_KEY)
        if not isinstance(manager, ExamlopsIOManager):
            raise UsageError(
                f"{self.name}: the I/O manager under {IO_MANAGER_KEY!r} is not ours, and stores "
                "one partition at a time → materialize the partitions one by one"
            )
        yield from RangeBuild(self, nodes, manager.values(self.context.instance)).run()

    def node_build(self, node: Node) -> NodeBuild:
        """Give the build of a node."""
        return NodeBuild(self.context, self.location, self.runtime, node)

    def product(self, build_: NodeBuild, *, alone: bool) -> Product | None:
        """Build a node; None if it failed, or if nothing of a range has to be done for it."""
        try:
            judge = self.judged(build_)
            if not self.has_to(build_, judge):
                return build_.unchanged(judge) if alone else None
            return build_.produce(judge)
        except AssetBuildError as error:
            self.failed[build_.node] = error
            return None

    def judged(self, build_: NodeBuild) -> Judge:
        """Judge a node, whose sources have a version then."""
        build_.adopt_sources()
        return build_.judge()

    def has_to(self, build_: NodeBuild, judge: Judge) -> bool:
        """Whether the function is to be called.

        Raises
        ------
        AssetBuildError
            When nobody asked for it, and its attempts are used up.
        """
        if self.forced:
            return True
        if not judge.own_reasons(build_.node):
            return False
        build_.refuse_if_held(judge)
        return True

    def deliver(self, product: Product) -> list[SinkWrite]:
        """Write the value to the sinks; where the function was not called, say how they stand."""
        declaration = self.location.graph.declarations[self.name]
        node = product.attempt.node
        if not declaration.sinks:
            return []
        if product.state is BuildState.UNCHANGED:
            return self.runtime.sink_writes.of(node)
        writes = deliver_value(
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

    def check(self, write: SinkWrite, failed: int = 0) -> AssetCheckResult:
        """Report a sink as an asset check, which does not block what is below."""
        metadata: dict[str, Any] = {"url": write.url}
        if write.error:
            metadata["error"] = write.error
        if failed:
            metadata["failed_partitions"] = failed
        return AssetCheckResult(
            passed=not write.error,
            asset_key=self.key,
            check_name=check_name(write.number),
            severity=AssetCheckSeverity.ERROR,
            metadata=metadata,
        )

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
            asset_key=self.key,
            data_version=DataVersion(product.data_version),
            metadata=self._metadata(product),
            tags=_tags(product),
            **arguments,
        )

    def event(self, product: Product, metadata: Mapping[str, Any]) -> AssetMaterialization:
        """Give the event of a build that Dagster makes none of."""
        return event_of(self.key, product, {**self._metadata(product), **metadata})

    def _metadata(self, product: Product) -> dict[str, Any]:
        unchanged = product.state is BuildState.UNCHANGED
        return facts_of(product, self._former_metadata() if unchanged else product.metadata)

    def _former_metadata(self) -> dict[str, Any]:
        """Give what the user's function said about the content that is still there."""
        event = self.context.instance.get_latest_materialization_event(self.key)
        found: Mapping[str, Any] = {}
        if event is not None and event.asset_materialization is not None:
            found = event.asset_materialization.metadata
        return {
            k: v for k, v in found.items() if not k.startswith(("examlops/", SYSTEM_TAG_PREFIX))
        }

    @property
    def key(self) -> AssetKey:
        """Key of the asset."""
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
    facts: dict[str, Any] = dict(as_metadata(said))
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
