"""Whether a run may build: asked once for all that it selects, before its first claim.

A run of ``exa`` acts for a request that was decided before; so does one that automation requested.
Which runs those are is in platform.db: nobody can say it of a run by its tags.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dagster import DagsterRun

from examlops_dagster.clock import utc_now
from examlops_dagster.core.approvals import Fingerprint
from examlops_dagster.core.asking import slices_to_ask
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.plan import Step
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import Judge
from examlops_dagster.core.verdicts import State, Status
from examlops_dagster.dagster_bridge.overrides import resources_for
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.governance.governor import Governor
from examlops_dagster.governance.refusals import with_remedy
from examlops_dagster.governance.request_rows import AUTOMATION, MATERIALIZED, Request
from examlops_dagster.governance.wishes import Wish, wishes_of
from examlops_dagster.ledger.tags import ORCHESTRATOR_TAG, PROCESS_TAG, SLICE_TAG
from examlops_dagster.orchestrators.registry import choose

CARRIED_FOR = timedelta(days=1)
"""How long a run may wait in the queue with what automation decided."""


def governor_of(runtime: Runtime) -> Governor:
    """Give policy, approvals and audit of a home."""
    return Governor(runtime.home, runtime.database)


def refusal_of(run: DagsterRun, location: Location, runtime: Runtime) -> str:
    """Say why a run may not build; empty where it may.

    The first step of a run that asks decides for all of them.
    """
    known = location.admitted.get(run.run_id)
    if known is None:
        known = _decided(run, location, runtime).refusal
        location.admitted[run.run_id] = known
    return known


def settle(run: DagsterRun, runtime: Runtime) -> None:
    """Record what a step has built, unless ``exa`` waits for its run and does."""
    if PROCESS_TAG not in run.tags:
        settle_all(runtime)


def settle_all(runtime: Runtime) -> None:
    """Record what nobody recorded: of dead processes too."""
    governor_of(runtime).settle()


def gates_of(location: Location, runtime: Runtime) -> Mapping[str, Any]:
    """Give what keeps automation from building each asset by itself."""
    governor = governor_of(runtime)
    if governor.policy is None:
        return {}
    return governor.gates(_wishes(location, location.graph.declarations, {}))


def note_gates(runtime: Runtime, judge: Judge, verdicts: Mapping[Node, Status]) -> None:
    """Record what policy keeps automation from building, and ask for the approvals it needs."""
    governor, declarations = governor_of(runtime), judge.nodes.graph.declarations
    for name, gate in judge.snapshot.gates.items():
        if gate.needs_approval or declarations[name].freshness is Manual:
            continue
        nodes = [
            node
            for node in judge.nodes.of(name)
            if (verdict := verdicts.get(node)) is not None
            and verdict.state is State.WAITING_FOR_REQUEST
            and _is_next(judge, node, verdicts)
        ]
        governor.note_denied(name, gate, nodes, judge.fingerprint)
    for asked in slices_to_ask(judge, verdicts):
        governor.ask_for_automation(asked.gate, asked.nodes, judge.fingerprint)


def _is_next(judge: Judge, node: Node, verdicts: Mapping[Node, Status]) -> bool:
    """Tell whether all above a node is built: what it would be built from is known then."""
    waiting = (
        verdict
        for name, keys in judge.nodes.reads(node).items()
        for key in keys
        if (verdict := verdicts.get(Node(name, key))) is not None and verdict.reasons
    )
    declarations = judge.nodes.graph.declarations
    return all(declarations[verdict.node.asset].is_source for verdict in waiting)


def requested_by_automation(runtime: Runtime, steps: Iterable[Step]) -> None:
    """Keep what automation decided for the nodes that it is about to request runs for."""
    governor = governor_of(runtime)
    nodes = {step.node: "" for step in steps}
    if governor.policy is None or not nodes:
        return
    request = Request(
        secrets.token_hex(16), MATERIALIZED, AUTOMATION, AUTOMATION, nodes, governor.clock()
    )
    governor.requests.note(request)


def _decided(run: DagsterRun, location: Location, runtime: Runtime) -> Request:
    governor = governor_of(runtime)
    found = governor.requests.of_run(run.run_id)
    planned = SLICE_TAG in run.tags
    if governor.policy is None:
        who, source = (AUTOMATION, AUTOMATION) if planned else (runtime.home.actor, "ui")
        return found or _note(run, governor, (), who, source)
    nodes = _selected(run, location, runtime)
    if found is not None and nodes <= found.nodes.keys():
        return found
    if planned:  # a tag that anybody can give a run: what automation decided is kept elsewhere
        built = {n for n in nodes if location.graph.declarations[n.asset].function is not None}
        found = _by_automation(run, governor, built)
        if found is not None:
            return found
    refusal = _asked(run, location, runtime, nodes)
    return _note(run, governor, nodes, runtime.home.actor, "ui", refusal)


def _note(
    run: DagsterRun,
    governor: Governor,
    nodes: Collection[Node],
    actor: str,
    source: str,
    refusal: str = "",
) -> Request:
    """Keep what was decided for a run; give what is kept, if another step was first."""
    request = Request(
        f"run {run.run_id}",
        MATERIALIZED,
        actor,
        source,
        dict.fromkeys(nodes, ""),
        governor.clock(),
        refusal,
    )
    return governor.requests.note(request, run.run_id)


def _by_automation(run: DagsterRun, governor: Governor, nodes: Collection[Node]) -> Request | None:
    """Give the request of automation that a run is made for, if there is one."""
    since = governor.clock() - CARRIED_FOR
    for request in governor.requests.latest(AUTOMATION, since):
        covered = set(nodes) <= request.nodes.keys()
        if covered and governor.requests.bind(request, run.run_id, nodes):
            return request
    return None


def _asked(run: DagsterRun, location: Location, runtime: Runtime, nodes: Collection[Node]) -> str:
    def fingerprint() -> Fingerprint:
        return _judge(location, runtime).fingerprint

    refused = governor_of(runtime).refusals(
        list(_wishes(location, [node.asset for node in nodes], run.tags)),
        sorted(nodes),
        fingerprint,
        actor=runtime.home.actor,
        source="ui",
        details={"run": run.run_id},
    )
    return "\n".join(with_remedy(each) for each in refused)


def refusal_of_probe(location: Location, runtime: Runtime, node: Node, judge: Judge) -> str:
    """Say why a sensor may not be probed in its tick; empty where it may."""
    governor = governor_of(runtime)
    if governor.policy is None:
        return ""
    refused = governor.refusals(
        list(_wishes(location, [node.asset], {})),
        [node],
        lambda: judge.fingerprint,
        actor=AUTOMATION,
        source=AUTOMATION,
    )
    return "\n".join(with_remedy(each) for each in refused)


def _wishes(location: Location, names: Iterable[str], tags: Mapping[str, str]) -> Iterator[Wish]:
    def orchestrator(declared: Declaration) -> str:
        asked = tags.get(ORCHESTRATOR_TAG)
        return choose(asked, declared.orchestrator, location.environment)[0]

    return wishes_of(
        location.graph, names, orchestrator, lambda declared: resources_for(declared, tags)
    )


def _selected(run: DagsterRun, location: Location, runtime: Runtime) -> set[Node]:
    """Give what a run builds of ours, and the sources that it would adopt."""
    graph = location.graph
    nodes = {
        node
        for node in runtime.event_log.planned(run)
        if (declared := graph.declarations.get(node.asset)) is not None
        and declared.function is not None
    }
    dynamic = runtime.event_log.dynamic_keys()
    everything = location.nodes_at(Snapshot(utc_now(), dynamic=dynamic))
    sources = {
        Node(edge.name, key)
        for node in nodes
        for edge, keys in everything.upstreams(node)
        if graph.declarations[edge.name].is_source
        and edge.name not in graph.undeclared
        and edge.name not in graph.declarations[node.asset].conditional
        for key in keys
    }
    return nodes | (
        sources - runtime.ledger.records(sources, graph.datasets).keys() if sources else set()
    )


def _judge(location: Location, runtime: Runtime) -> Judge:
    ledger = runtime.ledger
    dynamic: Mapping[str, Sequence[str]] = runtime.event_log.dynamic_keys()
    snapshot = Snapshot(
        utc_now(),
        runtime.home.zone,
        ledger.records(datasets=location.graph.datasets),
        first_seen=ledger.first_seen(),
        dynamic=dynamic,
    )
    return Judge(location.graph, snapshot, location.code_versions)
