"""The build of one node inside a step, from the claim to the recorded version.

The body of the op stands between `produce` and `complete`: there it stores the event, so that a
process that is killed leaves either no version, or one that the next sync completes.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from dagster import AssetKey, DagsterInstance
from dagster._core.definitions.data_version import extract_data_version_from_entry

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.inlets import event_arguments, new_events, next_reads
from examlops_dagster.core.inputs import arguments, inputs_as_read, values_by_parameter
from examlops_dagster.core.outlets import Emission, emissions
from examlops_dagster.core.seams import (
    LEFT_RUNNING,
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
    Value,
)
from examlops_dagster.core.status import Judge
from examlops_dagster.core.versions import keeps_former_value, result_data_version
from examlops_dagster.core.walk import last_line, state_of
from examlops_dagster.dagster_bridge.interrupts import is_meant
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager
from examlops_dagster.dagster_bridge.lineage_notes import (
    begin_notes,
    end_notes,
    failure_notes,
)
from examlops_dagster.dagster_bridge.overrides import resources_for
from examlops_dagster.dagster_bridge.pauses import long_wait, pause, stop_here
from examlops_dagster.dagster_bridge.pipes_said import Said
from examlops_dagster.dagster_bridge.places import IN_PROCESS_TAG, ORCHESTRATOR_TAG
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.errors import AssetBuildError, ResultError, UsageError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.builds import Completion, utc_now
from examlops_dagster.ledger.notes import Note
from examlops_dagster.orchestrators.registry import choose

CLAIM_POLL_SECONDS = 0.5
LOAD_TRIES = 5


@dataclass(frozen=True)
class Product:
    """What a build came to, ready to be stored as an event.

    Attributes
    ----------
    value
        What is to be kept; None where nothing is.
    state
        SUCCEEDED, or UNCHANGED where the function was not called.
    notes
        Facts for its lineage.
    """

    attempt: Attempt
    version: int
    data_version: str
    value: Value | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    state: BuildState = BuildState.SUCCEEDED
    notes: tuple[Note, ...] = ()

    @property
    def completion(self) -> Completion:
        """What the ledger records of it."""
        return Completion(
            self.attempt,
            self.version,
            self.data_version,
            self.provenance,
            self.state,
            self.notes,
        )


class Begun(NamedTuple):
    """An attempt that is written down, and how it is run.

    Attributes
    ----------
    fallback
        Why not by another orchestrator; empty where the chosen one runs it.
    former
        What existed before.
    """

    attempt: Attempt
    orchestrator: AssetOrchestrator
    fallback: str
    former: Record | None


class BuildContext(Protocol):
    """What a build asks of the step, or of the tick, that it is part of."""

    @property
    def run(self) -> Any:
        """The run, of which the id and the tags count."""

    @property
    def log(self) -> Any:
        """Where it tells what it does."""

    @property
    def retry_number(self) -> int:
        """How often the step was retried."""

    @property
    def instance(self) -> DagsterInstance:
        """Dagster's instance."""

    @property
    def resources(self) -> Any:
        """Holds the I/O manager."""

    @property
    def load_asset_value(self) -> Callable[..., Any]:
        """Loads the value of an asset that is not ours."""


class NodeBuild:
    """Builds one node under a claim.

    Parameters
    ----------
    context, location, runtime
        Of the step, or of the tick.
    node
        Asset and partition.
    """

    def __init__(
        self, context: BuildContext, location: Location, runtime: Runtime, node: Node
    ) -> None:
        self.node = node
        self._context = context
        self._location = location
        self._runtime = runtime
        self.token = os.urandom(16).hex()
        self.said = Said(context.log, node, len(self.declaration.sinks))

    @property
    def declaration(self) -> Declaration:
        """What is declared of the asset."""
        return self._location.graph.declarations[self.node.asset]

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep everybody else from building the node; waits for who builds it now."""
        self.claim()
        try:
            yield
        finally:
            self.release()

    def is_free(self) -> bool:
        """Claim the node, unless somebody else builds it now."""
        return self._runtime.ledger.claim(self.node, self.token, self._context.run.run_id) is None

    def claim(self) -> None:
        """Claim the node; waits for who builds it now."""
        self._wait_for_claim(self.node, self.token)

    def release(self) -> None:
        """Give the claim back."""
        self._runtime.ledger.release(self.node, self.token)

    def judge(self) -> Judge:
        """Judge over what the verdict on this node alone rests on, as it is now."""
        graph = self._location.graph
        now = utc_now()
        dynamic = self._runtime.event_log.dynamic_keys()
        everything = self._location.nodes_at(Snapshot(now, dynamic=dynamic))
        nodes = {self.node}
        for edge, keys in everything.upstreams(self.node):
            if edge.mapped is not None and edge.mapped.missing == "skip":
                keys = everything.keys(edge.name)  # noqa: PLW2901 - which exist is what is asked
            nodes.update(Node(edge.name, key) for key in keys)
        datasets = {node.asset for node in nodes}.intersection(graph.datasets)
        records = self._runtime.ledger.records(nodes, datasets)
        first_seen = self._runtime.ledger.first_seen([self.node])
        zone = self._runtime.home.zone
        snapshot = Snapshot(now, zone, records, first_seen=first_seen, dynamic=dynamic)
        code_versions = self._location.code_versions
        return Judge(graph, snapshot, code_versions, everything.at(snapshot))

    def adopt_sources(self) -> None:
        """Give the sources that this node reads their first version, if nobody did."""
        graph, ledger = self._location.graph, self._runtime.ledger
        names = {
            edge.name
            for edge in self.declaration.upstreams
            if graph.declarations[edge.name].is_source
            and edge.name not in graph.undeclared
            and edge.name not in self.declaration.conditional
        }
        if not names:
            return
        dynamic = self._runtime.event_log.dynamic_keys()
        everything = self._location.nodes_at(Snapshot(utc_now(), dynamic=dynamic))
        sources = {
            Node(edge.name, key)
            for edge, keys in everything.upstreams(self.node)
            if edge.name in names
            for key in keys
        }
        datasets = names.intersection(graph.datasets)
        for source in sorted(sources - ledger.records(sources, datasets).keys()):
            token = os.urandom(16).hex()
            self._wait_for_claim(source, token)
            try:
                if source not in ledger.records([source], datasets):
                    self._runtime.event_log.report(ledger, source, token)
                    self._context.log.info("Adopted source %s as version 1", source)
            finally:
                ledger.release(source, token)

    def refuse_if_held(self, judge: Judge) -> None:
        """Keep to the budget, also where two runs were requested before the first one failed.

        Raises
        ------
        AssetBuildError
            When the attempts at what would be built now are used up.
        """
        hold = self._runtime.ledger.holds([self.node]).get(self.node)
        if hold is not None and judge.is_held(self.node, hold):
            raise AssetBuildError(
                self.node.asset,
                f"its attempts are used up ({hold.error}) → exa assets retry {self.node.asset}",
                partition=self.node.partition,
            )

    def unchanged(self, judge: Judge) -> Product:
        """Give the former version again, without a value; the function is not called."""
        ledger = self._runtime.ledger
        record = judge.snapshot.records[self.node]
        attempt = self._attempt(judge, record.built_from or {}, "")
        ledger.begin(attempt, self._begin_notes(judge, attempt))
        ledger.allot(attempt, record.data_version)
        self._context.log.info("%s is no longer stale; its function was not called", self.node)
        return Product(attempt, record.version, record.data_version, state=BuildState.UNCHANGED)

    def produce(self, judge: Judge) -> Product:
        """Call the production function where it belongs, and give its result a version.

        Raises
        ------
        AssetBuildError
            When it did not produce; the attempt is recorded as failed.
        """
        begun = self.begin(judge)
        try:
            request = self.request(judge, begun)
            with long_wait(pauses=getattr(begun.orchestrator, "waits_by_pauses", False)):
                result = begun.orchestrator.run(request)
        except BaseException as error:
            self.said.end()
            self.fail(begun.attempt, error)
            raise
        return self.produced(begun, result)

    def begin(self, judge: Judge) -> Begun:
        """Write the attempt down, before anything is run."""
        records = judge.snapshot.records
        former = records.get(self.node)
        read = inputs_as_read(judge.nodes, self.node, records)
        read = next_reads(self._runtime.outlets, judge.nodes, self.node, read, former)
        name, fallback = self.chosen()
        if fallback:
            self._context.log.warning("%s: built %s", self.node, fallback)
        orchestrator = self.orchestrator(name)
        attempt = self._attempt(judge, read, name)
        self._runtime.ledger.begin(attempt, self._begin_notes(judge, attempt))
        return Begun(attempt, orchestrator, fallback, former)

    def chosen(self) -> tuple[str, str]:
        """Give the orchestrator that runs it, and why not another."""
        asked = self._context.run.tags.get(ORCHESTRATOR_TAG)
        return choose(asked, self.declaration.orchestrator, self._location.environment)

    def produced(self, begun: Begun, result: BuildResult) -> Product:
        """Give a result its version.

        Raises
        ------
        AssetBuildError
            When it cannot have one; the attempt is recorded as failed.
        """
        self.said.end()
        attempt, former, fallback = begun.attempt, begun.former, begun.fallback
        try:
            data_version = result_data_version(result, former, self.token)
            version = self._runtime.ledger.allot(attempt, data_version, self._emissions(result))
        except BaseException as error:
            self.fail(attempt, error)
            raise
        kept = None if keeps_former_value(result, former) else result.value
        provenance = {**result.provenance, **({"fallback": fallback} if fallback else {})}
        notes = end_notes(attempt, result)
        return Product(
            attempt, version, data_version, kept, result.metadata, provenance, notes=notes
        )

    def _emissions(self, result: BuildResult) -> tuple[Emission, ...]:
        if not (self.declaration.outlets or result.events):
            return ()
        try:
            found = emissions(self.node.asset, self.declaration.outlets, result.events)
            return tuple(self._to_sources(emission) for emission in found)
        except UsageError as error:
            raise ResultError(self.node.asset, str(error), partition=self.node.partition) from error

    def _to_sources(self, emission: Emission) -> Emission:
        """Let an event of a declared source, or of a partition of it, advance that source."""
        graph, name = self._location.graph, emission.dataset
        declaration = graph.declarations.get(name)
        if declaration is None or declaration.is_emitted:
            if emission.partition:
                raise UsageError(f"{name} is no declared source, so it has no partitions")
            return emission
        if not declaration.is_source:
            raise UsageError(f"{name} is built by its own function, so nobody else emits to it")
        dynamic = self._runtime.event_log.dynamic_keys()
        nodes = self._location.nodes_at(Snapshot(utc_now(), dynamic=dynamic))
        if emission.partition not in nodes.keys(name):
            raise UsageError(f"{name} has no partition {emission.partition!r}")
        return replace(emission, is_source=True)

    def complete(self, product: Product) -> None:
        """Record the version, once its event is stored."""
        self._runtime.ledger.complete_all([product.completion])

    def fail(self, attempt: Attempt, error: BaseException) -> None:
        """Record the end of an attempt without success; a job that was left running has none."""
        if getattr(error, LEFT_RUNNING, False):
            return
        state, notes = state_of(error), failure_notes(attempt, error)
        self._runtime.ledger.fail(attempt, state, last_line(error), notes)

    def _wait_for_claim(self, node: Node, token: str) -> None:
        told: Claim | None = None
        while True:
            held = self._runtime.ledger.claim(node, token, self._context.run.run_id)
            if held is None:
                if told is not None:  # what others wrote meanwhile
                    self._runtime.event_log.sync()
                return
            if told is None or told.token != held.token:
                told = held
                self._context.log.info(
                    "%s is being built by run %s (process %d on %s); waiting for it",
                    node,
                    held.run_id or "-",
                    held.pid,
                    held.host,
                )
            pause(CLAIM_POLL_SECONDS)

    def _attempt(self, judge: Judge, read: Mapping[Node, Read], orchestrator: str) -> Attempt:
        return Attempt(
            self.node,
            self.token,
            judge.fingerprint(self.node),
            self._location.code_versions.get(self.node.asset, ""),
            read,
            orchestrator,
            self._context.run.run_id,
        )

    def _begin_notes(self, judge: Judge, attempt: Attempt) -> list[Note]:
        return begin_notes(
            self._location.graph,
            self.node,
            self._context.run,
            attempt,
            folder=self._runtime.home.folder,
            moment=judge.moment(self.node),
            number=self._context.retry_number + 1,
        )

    def orchestrator(self, name: str) -> AssetOrchestrator:
        """Give an orchestrator of this location."""
        in_process = IN_PROCESS_TAG in self._context.run.tags
        return self._location.orchestrator(name, self._runtime.jobs, in_process=in_process)

    def _ends_job(self, number: int | None) -> bool:
        """Whether an interrupt is meant for the build, and not for who waits for it."""
        stop = stop_here()
        if stop is not None and stop.is_asked:
            return stop.is_meant
        run = self._context.run
        return is_meant(self._context.instance, run.run_id, run.tags, number)

    def request(self, judge: Judge, begun: Begun) -> BuildRequest:
        """Give what the orchestrator gets; this loads the values of inputs."""
        attempt = begun.attempt
        records, read = judge.snapshot.records, attempt.built_from
        former = records.get(self.node)
        events = new_events(self._runtime.outlets, judge.nodes, self.node, read, former)
        values = values_by_parameter(
            judge.nodes,
            self.node,
            lambda upstream: (
                events[upstream.asset]
                if upstream.asset in events
                else self._load(upstream, records)
            ),
        )
        return BuildRequest(
            self.declaration,
            self.node,
            self._context.retry_number + 1,
            attempt.build_id,
            {
                **arguments(judge.nodes, self.node, read, values, judge.moment(self.node)),
                **event_arguments(self.declaration, events),
            },
            read,
            self.declaration.timeout_seconds,
            resources_for(self.declaration, self._context.run.tags),
            attempt.fingerprint,
            attempt.run_id,
            attempt.code_version,
            self._ends_job,
            pause,
            heard=self.said,
            told=None if self._is_one_of_many else self.said.tell,
        )

    @property
    def _is_one_of_many(self) -> bool:
        """Whether the step builds a range, of which nobody reads a line for each key."""
        return bool(getattr(self._context, "has_partition_key_range", False))

    def _load(self, upstream: Node, records: Mapping[Node, Record]) -> Any:
        """Give the value of an upstream, and make sure that it belongs to the version read."""
        declaration = self._location.graph.declarations[upstream.asset]
        key = self._runtime.event_log.key(upstream.asset)
        manager = getattr(self._context.resources, IO_MANAGER_KEY)
        ours = isinstance(manager, ExamlopsIOManager)
        if declaration.node_type is NodeType.EXTERNAL or not ours:
            return self._load_foreign(key, upstream)
        store = manager.values(self._context.instance)
        value = store.load(key.path, upstream.partition, records[upstream].data_version)
        if value is None:
            current = self._runtime.ledger.records([upstream]).get(upstream)
            if current != records[upstream]:
                raise AssetBuildError(
                    self.node.asset,
                    f"upstream {upstream} changed while its value was loaded → ask again",
                    partition=self.node.partition,
                )
            if current is not None and not current.build_id:
                why = "others reported it, with a version and without a value"
            else:
                why = "its function returns nothing"
            raise ResultError(
                self.node.asset,
                f"no value of {upstream} is kept: {why} → use deps for its version, or let its "
                "function return the value (or AssetOutput)",
                partition=self.node.partition,
            )
        return decode(value)

    def _load_foreign(self, key: AssetKey, upstream: Node) -> Any:
        partition = upstream.partition or None
        for _ in range(LOAD_TRIES):
            before = self._latest(key)
            try:
                value = self._context.load_asset_value(key, partition_key=partition)
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
        entry = self._context.instance.get_latest_materialization_event(key)
        return None if entry is None else (extract_data_version_from_entry(entry), entry.timestamp)


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
