"""The build of one node inside a step, from the claim to the recorded version.

The body of the op stands between `produce` and `complete`: there it stores the event, so that a
process that is killed leaves either no version, or one that the next sync completes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.emissions import Emission, emitted, to_source
from examlops_dagster.core.failures import last_line, state_of
from examlops_dagster.core.inlets import event_arguments, new_events, next_reads
from examlops_dagster.core.inputs import arguments, inputs_as_read, values_by_parameter
from examlops_dagster.core.records import Attempt, BuildState, Node, Read, Record
from examlops_dagster.core.seams import LEFT_RUNNING, AssetOrchestrator, BuildRequest, BuildResult
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import Judge
from examlops_dagster.core.versions import keeps_former_value, result_data_version
from examlops_dagster.dagster_bridge.build_context import BuildContext
from examlops_dagster.dagster_bridge.claims import NodeClaim
from examlops_dagster.dagster_bridge.interrupts import is_meant
from examlops_dagster.dagster_bridge.lineage_notes import begin_notes, end_notes, failure_notes
from examlops_dagster.dagster_bridge.overrides import resources_for
from examlops_dagster.dagster_bridge.pauses import long_wait, pause, stop_here
from examlops_dagster.dagster_bridge.pipes_said import Said
from examlops_dagster.dagster_bridge.products import Product
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.dagster_bridge.upstream_values import UpstreamValues
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.ledger.notes import Note
from examlops_dagster.ledger.tags import IN_PROCESS_TAG, ORCHESTRATOR_TAG
from examlops_dagster.orchestrators.registry import choose

JOBS = "scheduler"
"""The orchestrator whose builds may outlive who asked for them."""


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
        self.claim = NodeClaim(context, runtime, node, location.progress)
        self._values = UpstreamValues(context, location, runtime, node)
        self.said = Said(context.log, node, len(self.declaration.sinks))

    @property
    def declaration(self) -> Declaration:
        """What is declared of the asset."""
        return self._location.graph.declarations[self.node.asset]

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
            result = self._result(begun.orchestrator, self.request(judge, begun))
        except BaseException as error:
            self.said.end()
            self.fail(begun.attempt, error)
            raise
        return self.produced(begun, result)

    def _result(self, orchestrator: AssetOrchestrator, request: BuildRequest) -> BuildResult:
        """Have it built, unless a job does that which an earlier request sent elsewhere."""
        if orchestrator.name != JOBS and self._runtime.jobs.has_unclaimed(self.node):
            from examlops_dagster.orchestrators.scheduler import (  # noqa: PLC0415 - most need none
                SchedulerOrchestrator,
            )

            jobs = self.orchestrator(JOBS)
            assert isinstance(jobs, SchedulerOrchestrator)
            with long_wait(pauses=jobs.waits_by_pauses):
                found = jobs.taken_up(request)
            if found is not None:
                return found
        with long_wait(pauses=getattr(orchestrator, "waits_by_pauses", False)):
            return orchestrator.run(request)

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
        if not self.claim.is_ours:
            raise AssetBuildError(
                self.node.asset,
                "this process stood still for so long that another one took it over; what was "
                "built here is not recorded",
                partition=self.node.partition,
            )
        try:
            data_version = result_data_version(result, former, self.claim.token)
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
        found = emitted(self.node, self.declaration.outlets, result)
        declarations = self._location.graph.declarations
        return tuple(to_source(self.node, each, declarations, self._keys) for each in found)

    def _keys(self, name: str) -> Sequence[str]:
        dynamic = self._runtime.event_log.dynamic_keys()
        return self._location.nodes_at(Snapshot(utc_now(), dynamic=dynamic)).keys(name)

    def complete(self, product: Product) -> None:
        """Record the version, once its event is stored."""
        self._runtime.ledger.complete_all([product.completion])

    def fail(self, attempt: Attempt, error: BaseException) -> None:
        """Record the end of an attempt without success.

        A job that was left running has none; nor has what another process took over.
        """
        if getattr(error, LEFT_RUNNING, False) or not self.claim.is_ours:
            return
        state, notes = state_of(error), failure_notes(attempt, error)
        self._runtime.ledger.fail(attempt, state, last_line(error), notes)

    def _attempt(self, judge: Judge, read: Mapping[Node, Read], orchestrator: str) -> Attempt:
        return Attempt(
            self.node,
            self.claim.token,
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
                else self._values.load(upstream, records)
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
