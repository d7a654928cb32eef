"""What one step of a run builds, and what it tells Dagster of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DataVersion,
    Failure,
    MaterializeResult,
    RetryRequested,
)
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, SYSTEM_TAG_PREFIX

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.seams import Value
from examlops_dagster.core.status import Judge
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager, Kept
from examlops_dagster.dagster_bridge.node import NodeBuild
from examlops_dagster.dagster_bridge.products import Product, event_of, facts_of, tags_of
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.sink_writes import write_sinks
from examlops_dagster.dagster_bridge.sources import adopt_sources
from examlops_dagster.dagster_bridge.translator import slug
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.ledger.tags import FORCED_TAG, SLICE_TAG


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
        adopt_sources(self.context, self.location, self.runtime, build_.node)
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
        if not declaration.sinks:
            return []
        if product.state is BuildState.UNCHANGED:
            return self.runtime.sink_writes.of(product.attempt.node)
        return write_sinks(self.context, self.runtime, declaration, product)

    def ending(self) -> Failure | RetryRequested:
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

    def _output_value(self, value: Value, data_version: str) -> Any:
        """Give what the I/O manager stores: bytes for ours, the object for another."""
        manager = getattr(self.context.resources, IO_MANAGER_KEY)
        return (
            Kept(value, data_version) if isinstance(manager, ExamlopsIOManager) else decode(value)
        )

    def result(self, product: Product) -> MaterializeResult[Any]:
        """Give the output of a build, of which Dagster makes the event."""
        arguments: dict[str, Any] = {}
        if product.value is not None:
            arguments["value"] = self._output_value(product.value, product.data_version)
        return MaterializeResult(
            asset_key=self.key,
            data_version=DataVersion(product.data_version),
            metadata=self._metadata(product),
            tags=tags_of(product),
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


def error_file(instance: DagsterInstance, run_id: str, node: Node) -> Path:
    """Give the file that holds the whole error of a build, beside the run's other logs."""
    name = slug(f"{node.asset}.{node.partition}" if node.partition else node.asset)
    return Path(instance.storage_directory()) / run_id / "errors" / f"{name}.txt"
