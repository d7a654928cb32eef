"""The plain walk over a plan, with any ledger and any orchestrator, and no dagster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from examlops_dagster.core.emissions import DatasetEvent, Emission, emitted
from examlops_dagster.core.failures import last_line, state_of
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.inlets import Outbox, event_arguments, new_events, next_reads
from examlops_dagster.core.inputs import arguments, inputs_as_read, values_by_parameter
from examlops_dagster.core.plan import Action, Plan, Step
from examlops_dagster.core.records import Attempt, Node, Read, Record
from examlops_dagster.core.seams import AssetOrchestrator, BuildRequest, BuildResult, Ledger, Value
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import Judge
from examlops_dagster.core.versions import keeps_former_value, result_data_version
from examlops_dagster.errors import AssetBuildError, LaunchError


class Values(Protocol):
    """Where the walk keeps values, and reads them for ``inputs``."""

    def keep(self, node: Node, value: Value) -> None:
        """Keep the value of a node."""
        ...

    def load(self, node: Node) -> Any:
        """Give the value of a node."""
        ...


@dataclass
class Outcome:
    """What a request did.

    Attributes
    ----------
    rebuilt
        Nodes whose function was called, and sources that were adopted, in order.
    unchanged
        Nodes that were no longer stale when their turn came.
    skipped
        Nodes of the slice that were fresh from the start.
    failed
        Nodes whose build failed, with the error.
    not_tried
        Nodes below a failed one.
    """

    rebuilt: list[Node] = field(default_factory=list)
    unchanged: list[Node] = field(default_factory=list)
    skipped: list[Node] = field(default_factory=list)
    failed: dict[Node, AssetBuildError | LaunchError] = field(default_factory=dict)
    not_tried: list[Node] = field(default_factory=list)


@dataclass
class Walk:
    """Builds the steps of a plan one after the other, in this process.

    Attributes
    ----------
    graph, code_versions
        What is declared and loaded.
    ledger, values, orchestrator
        Where builds are recorded, where values are kept, what runs a build.
    clock
        Gives the time as an aware UTC datetime.
    zone
        IANA name of the zone of schedules that name none.
    sleep
        Waits between attempts, for a number of seconds.
    first_seen, dynamic
        As in a Snapshot; the same as in the one that the plan was made from.
    outlets
        Where events of datasets and aliases go; None refuses to build what emits some.
    """

    graph: Graph
    ledger: Ledger
    values: Values
    orchestrator: AssetOrchestrator
    clock: Callable[[], datetime]
    code_versions: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"
    sleep: Callable[[float], None] = time.sleep
    first_seen: Mapping[Node, datetime] = field(default_factory=dict)
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outlets: Outbox | None = None

    def snapshot(self) -> Snapshot:
        """Take all that a verdict rests on, now."""
        return Snapshot(
            self.clock(),
            self.zone,
            self.ledger.records(),
            self.ledger.holds(),
            self.ledger.claims(),
            first_seen=self.first_seen,
            dynamic=self.dynamic,
        )

    def run(self, plan: Plan) -> Outcome:
        """Build the steps of ``plan``; a failure leaves what is below it untried."""
        outcome = Outcome(skipped=list(plan.skipped))
        failed: set[Node] = set()
        self.ledger.lift(step.node for step in plan.steps if plan.targets)
        for step in plan.steps:
            judge = Judge(self.graph, self.snapshot(), self.code_versions)
            above = {
                Node(edge.name, key)
                for edge, keys in judge.nodes.upstreams(step.node)
                for key in keys
            }
            if above & failed:
                failed.add(step.node)
                outcome.not_tried.append(step.node)
                continue
            if not step.forced and not judge.own_reasons(step.node):
                outcome.unchanged.append(step.node)
                continue
            try:
                self._build(step, judge)
                outcome.rebuilt.append(step.node)
            except (AssetBuildError, LaunchError) as error:
                outcome.failed[step.node] = error
                failed.add(step.node)
        return outcome

    def _build(self, step: Step, judge: Judge) -> None:
        node = step.node
        backoff = self.graph.declarations[node.asset].retry_backoff
        inputs_as_read(judge.nodes, node, self.ledger.records())  # no retry helps here
        held = self.ledger.holds([node]).get(node)
        while True:
            same = held is not None and held.fingerprint == judge.fingerprint(node)
            try:
                self._attempt(step, judge, 1 + (held.failures if held and same else 0))
            except AssetBuildError:
                held = self.ledger.holds([node]).get(node)
                if held is None or judge.is_held(node, held):
                    raise
                self.sleep(backoff * held.failures)
            else:
                return

    def _attempt(self, step: Step, judge: Judge, number: int) -> None:
        node = step.node
        token = secrets.token_hex(16)
        held = self.ledger.claim(node, token)
        if held is not None:
            raise LaunchError(f"{node} is being built by process {held.pid} on {held.host}")
        try:
            read = inputs_as_read(judge.nodes, node, self.ledger.records())
            former = self.ledger.records([node]).get(node)
            if self.outlets is not None:
                read = next_reads(self.outlets, judge.nodes, node, read, former)
            attempt = Attempt(
                node,
                token,
                judge.fingerprint(node),
                self.code_versions.get(node.asset, ""),
                read,
                self.orchestrator.name,
            )
            self.ledger.begin(attempt)
            try:
                result = (
                    BuildResult(data_version=token)
                    if step.action is Action.ADOPT
                    else self.orchestrator.run(self._request(attempt, judge, read, number, former))
                )
                found = self._emissions(node, result)
            except BaseException as error:
                self.ledger.fail(attempt, state_of(error), last_line(error))
                raise
            data_version = result_data_version(result, former, token)
            version = self.ledger.allot(attempt, data_version)
            if result.value is not None and not keeps_former_value(result, former):
                self.values.keep(node, result.value)
            self.ledger.complete(attempt, version, data_version, result.provenance)
            if self.outlets is not None:
                self.outlets.emit(node, token, found)
        finally:
            self.ledger.release(node, token)

    def _emissions(self, node: Node, result: BuildResult) -> Sequence[Emission]:
        found = emitted(node, self.graph.declarations[node.asset].outlets, result)
        if found and self.outlets is None:
            raise LaunchError(f"{node} emits events, and this walk has no outlets to keep them")
        return found

    def _request(
        self,
        attempt: Attempt,
        judge: Judge,
        read: Mapping[Node, Read],
        number: int,
        former: Record | None,
    ) -> BuildRequest:
        node = attempt.node
        declaration = self.graph.declarations[node.asset]
        events: Mapping[str, Sequence[DatasetEvent]] = {}
        if self.outlets is not None:
            events = new_events(self.outlets, judge.nodes, node, read, former)
        values = values_by_parameter(
            judge.nodes,
            node,
            lambda upstream: (
                events[upstream.asset] if upstream.asset in events else self.values.load(upstream)
            ),
        )
        return BuildRequest(
            declaration,
            node,
            number,
            attempt.build_id,
            {
                **arguments(judge.nodes, node, read, values, judge.moment(node)),
                **event_arguments(declaration, events),
            },
            read,
            declaration.timeout_seconds,
            declaration.resources,
        )
