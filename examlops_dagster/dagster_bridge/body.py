"""The one op body: builds a node, whoever asks for it, under any executor.

claim -> inputs as read -> attempt row -> orchestrator -> data version -> version ->
materialization -> release
"""

from __future__ import annotations

import json
import secrets
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    DataVersion,
    Failure,
    MaterializeResult,
    MetadataValue,
    RetryRequested,
)
from dagster._core.definitions.data_version import extract_data_version_from_entry

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.graph import Nodes
from examlops_dagster.core.inputs import arguments, inputs_as_read, values_by_parameter
from examlops_dagster.core.seams import (
    AssetOrchestrator,
    Attempt,
    BuildRequest,
    BuildResult,
    BuildState,
    Claim,
    Node,
    Read,
    Record,
    Snapshot,
)
from examlops_dagster.core.status import Judge
from examlops_dagster.core.versions import keeps_former_value, result_data_version
from examlops_dagster.core.walk import last_line, state_of
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager, Kept
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.translator import slug
from examlops_dagster.errors import AssetBuildError, ExamlopsError, ResultError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.builds import dump_reads, utc_now
from examlops_dagster.ledger.event_log import (
    BUILD_TAG,
    BUILT_FROM,
    FORCED_TAG,
    SLICE_TAG,
    VERSION_TAG,
)
from examlops_dagster.orchestrators.registry import choose

ORCHESTRATOR_TAG = "examlops/orchestrator"
IN_PROCESS_TAG = "examlops/in_process"
CLAIM_POLL_SECONDS = 0.5
LOAD_TRIES = 5


def build(context: AssetExecutionContext, location: Location, name: str) -> Iterator[Any]:
    """Build one node of a run, and yield its materialization.

    Raises
    ------
    Failure
        When the build failed; the run's log has the full traceback.
    RetryRequested
        When it failed and its budget leaves another attempt.
    """
    node = Node(name, context.partition_key if context.has_partition_key else "")
    body = _Body(context, location, location.runtime(context.instance), node)
    try:
        yield from body.run()
    except AssetBuildError as error:
        raise body.failure(error) from error
    except ExamlopsError as error:
        raise Failure(str(error)) from error


@dataclass
class _Body:
    context: AssetExecutionContext
    location: Location
    runtime: Runtime
    node: Node

    @property
    def declaration(self) -> Declaration:
        return self.location.graph.declarations[self.node.asset]

    @property
    def planned(self) -> bool:
        """Whether we planned the run; any other was asked for by a person, or by Dagster."""
        return SLICE_TAG in self.context.run.tags

    @property
    def forced(self) -> bool:
        named = json.loads(self.context.run.tags.get(FORCED_TAG, "[]"))
        return not self.planned or self.node.asset in named

    def run(self) -> Iterator[Any]:
        ledger = self.runtime.ledger
        if self.context.retry_number == 0 and not self.planned:
            ledger.lift([self.node])
        token = secrets.token_hex(16)
        self._claim(token)
        try:
            self.runtime.event_log.sync()
            self._adopt_sources()
            judge = self._judge()
            if not self.forced and not judge.own_reasons(self.node):
                yield from self._unchanged(judge, token)
            else:
                yield from self._attempt(judge, token)
        finally:
            ledger.release(self.node, token)

    def failure(self, error: AssetBuildError) -> Failure | RetryRequested:
        """Say how the step ends: another attempt if the budget leaves one, else as failed."""
        if error.details:
            self.context.log.error("%s failed\n%s", self.node, error.details)
            path = error_file(self.context.instance, self.context.run.run_id, self.node)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(error.details, encoding="utf-8")
        hold = self.runtime.ledger.holds([self.node]).get(self.node)
        again = (
            hold is not None
            and hold.state in (BuildState.FAILED, BuildState.TIMED_OUT)
            and hold.failures <= self.declaration.retries
        )
        if hold is not None and again:
            delay = self.declaration.retry_backoff * hold.failures
            self.context.log.info(
                "%s: attempt %d of %d failed, the next one in %g s",
                self.node,
                hold.failures,
                1 + self.declaration.retries,
                delay,
            )
            # the budget is counted in `builds`; this only has to exceed Dagster's own count
            return RetryRequested(self.context.retry_number + 1, seconds_to_wait=delay)
        return Failure(error.reason, metadata={"error": MetadataValue.text(error.reason)})

    def _claim(self, token: str, node: Node | None = None) -> None:
        """Wait until nobody else builds the node."""
        told: Claim | None = None
        while True:
            held = self.runtime.ledger.claim(node or self.node, token, self.context.run.run_id)
            if held is None:
                return
            if told is None or told.token != held.token:
                told = held
                self.context.log.info(
                    "%s is being built by run %s (process %d on %s); waiting for it",
                    node or self.node,
                    held.run_id or "-",
                    held.pid,
                    held.host,
                )
            time.sleep(CLAIM_POLL_SECONDS)

    def _adopt_sources(self) -> None:
        """Give the sources that this node reads their first version, if nobody did."""
        graph = self.location.graph
        names = {e.name for e in self.declaration.upstreams}
        sources = [Node(n) for n in names if graph.declarations[n].is_source]
        sources = [s for s in sources if graph.declarations[s.asset].partitions is None]
        have = self.runtime.ledger.records(sources)
        for source in sources:
            if source in have or source.asset in graph.undeclared:
                continue
            token = secrets.token_hex(16)
            self._claim(token, source)
            try:
                if source not in self.runtime.ledger.records([source]):
                    self.runtime.event_log.report(self.runtime.ledger, source, token)
                    self.context.log.info("Adopted source %s as version 1", source)
            finally:
                self.runtime.ledger.release(source, token)

    def _judge(self) -> Judge:
        """Judge over what the verdict on this node alone rests on."""
        graph = self.location.graph
        now = utc_now()
        everything = Nodes(graph, Snapshot(now))
        nodes = {self.node}
        for edge in self.declaration.upstreams:
            nodes.update(everything.of(edge.name))
        records = self.runtime.ledger.records(nodes)
        snapshot = Snapshot(now, self.runtime.home.zone, records)
        return Judge(graph, snapshot, self.location.code_versions)

    def _unchanged(self, judge: Judge, token: str) -> Iterator[Any]:
        """Yield the former version again: a withheld output would skip every step below."""
        ledger = self.runtime.ledger
        record = judge.snapshot.records[self.node]
        attempt = self._attempt_row(judge, token, record.built_from or {}, "")
        ledger.begin(attempt)
        ledger.allot(attempt, record.data_version)
        self.context.log.info("%s is no longer stale; its function was not called", self.node)
        yield self._materialization(attempt, record.version, record.data_version, {}, {})
        ledger.complete(attempt, record.version, record.data_version, {}, BuildState.UNCHANGED)

    def _attempt(self, judge: Judge, token: str) -> Iterator[Any]:
        ledger = self.runtime.ledger
        records = judge.snapshot.records
        former = records.get(self.node)
        read = inputs_as_read(judge.nodes, self.node, records)
        argument = self.context.run.tags.get(ORCHESTRATOR_TAG)
        name, fallback = choose(argument, self.declaration.orchestrator, self.location.environment)
        if fallback:
            self.context.log.warning("%s: built %s", self.node, fallback)
        attempt = self._attempt_row(judge, token, read, name)
        ledger.begin(attempt)
        try:
            result = self._orchestrator(name).run(self._request(judge, attempt))
            data_version = result_data_version(result, former, token)
            version = ledger.allot(attempt, data_version)
            provenance = dict(result.provenance)
            if fallback:
                provenance["fallback"] = fallback
            yield self._materialization(
                attempt,
                version,
                data_version,
                result.metadata,
                provenance,
                self._kept(result, former, data_version),
            )
        except GeneratorExit:  # the I/O manager failed, and Dagster reports that
            ledger.fail(attempt, BuildState.FAILED, "its value could not be stored")
            raise
        except BaseException as error:
            ledger.fail(attempt, state_of(error), last_line(error))
            raise
        ledger.complete(attempt, version, data_version, provenance)

    def _orchestrator(self, name: str) -> AssetOrchestrator:
        in_process = IN_PROCESS_TAG in self.context.run.tags
        return self.location.orchestrator(name, in_process=in_process)

    def _request(self, judge: Judge, attempt: Attempt) -> BuildRequest:
        records, read = judge.snapshot.records, attempt.built_from
        values = values_by_parameter(
            judge.nodes, self.node, lambda upstream: self._load(upstream, records)
        )
        return BuildRequest(
            self.declaration,
            self.node,
            self.context.retry_number + 1,
            attempt.build_id,
            arguments(judge.nodes, self.node, read, values, utc_now()),
            read,
            self.declaration.timeout_seconds,
            self.declaration.resources,
        )

    def _attempt_row(
        self, judge: Judge, token: str, read: Mapping[Node, Read], orchestrator: str
    ) -> Attempt:
        return Attempt(
            self.node,
            token,
            judge.fingerprint(self.node),
            self.location.code_versions.get(self.node.asset, ""),
            read,
            orchestrator,
            self.context.run.run_id,
        )

    def _kept(self, result: BuildResult, former: Record | None, data_version: str) -> Any:
        """Give what the I/O manager stores, or _NOTHING."""
        if result.value is None or keeps_former_value(result, former):
            return _NOTHING
        if self._ours:
            return Kept(result.value, data_version)
        return decode(result.value)

    @property
    def _ours(self) -> bool:
        return isinstance(getattr(self.context.resources, IO_MANAGER_KEY), ExamlopsIOManager)

    def _materialization(
        self,
        attempt: Attempt,
        version: int,
        data_version: str,
        metadata: Mapping[str, Any],
        provenance: Mapping[str, str],
        value: Any = None,
    ) -> MaterializeResult[Any]:
        facts = {f"examlops/{key}": text for key, text in provenance.items()}
        arguments_: dict[str, Any] = {} if value is None or value is _NOTHING else {"value": value}
        return MaterializeResult(
            asset_key=self._key(self.node.asset),
            data_version=DataVersion(data_version),
            metadata={
                **metadata,
                **facts,
                "version": version,
                BUILT_FROM: dump_reads(attempt.built_from),
            },
            tags={VERSION_TAG: str(version), BUILD_TAG: attempt.build_id},
            **arguments_,
        )

    def _key(self, name: str) -> AssetKey:
        return self.runtime.event_log.key(name)

    def _load(self, upstream: Node, records: Mapping[Node, Record]) -> Any:
        """Give the value of an upstream, and make sure that it belongs to the version read."""
        declaration = self.location.graph.declarations[upstream.asset]
        key = self._key(upstream.asset)
        if declaration.node_type is not NodeType.EXTERNAL and self._ours:
            manager = getattr(self.context.resources, IO_MANAGER_KEY)
            store = manager.values(self.context.instance)
            value = store.load(key.path, upstream.partition, records[upstream].data_version)
            if value is None:
                raise ResultError(
                    self.node.asset,
                    f"no value of {upstream} is kept: its function returns nothing → use deps "
                    "for its version, or let it return the value (or AssetOutput)",
                    partition=self.node.partition,
                )
            return decode(value)
        return self._load_foreign(key, upstream)

    def _load_foreign(self, key: AssetKey, upstream: Node) -> Any:
        partition = upstream.partition or None
        for _ in range(LOAD_TRIES):
            before = self._latest(key)
            try:
                value = self.context.load_asset_value(key, partition_key=partition)
            except Exception as error:
                raise AssetBuildError(
                    self.node.asset,
                    f"the value of {upstream} could not be loaded: {last_line(_innermost(error))}",
                    partition=self.node.partition,
                    details=traceback.format_exc(),
                ) from error
            if self._latest(key) == before:
                return value
        raise AssetBuildError(
            self.node.asset,
            f"upstream {upstream} changed each of {LOAD_TRIES} times while its value was loaded",
            partition=self.node.partition,
        )

    def _latest(self, key: AssetKey) -> object:
        entry = self.context.instance.get_latest_materialization_event(key)
        return None if entry is None else (extract_data_version_from_entry(entry), entry.timestamp)


_NOTHING: Any = object()


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def error_file(instance: DagsterInstance, run_id: str, node: Node) -> Path:
    """Give the file that holds the whole error of a build, beside the run's other logs."""
    name = slug(f"{node.asset}.{node.partition}" if node.partition else node.asset)
    return Path(instance.storage_directory()) / run_id / "errors" / f"{name}.txt"


def forced_tag(names: Iterable[str]) -> str:
    """Write the names that somebody asked for, for the tag of a run."""
    return json.dumps(sorted(names))
