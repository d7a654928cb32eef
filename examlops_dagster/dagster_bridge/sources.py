"""Gives sources that a build reads their first version."""

from __future__ import annotations

from examlops_dagster.clock import utc_now
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.dagster_bridge.build_context import BuildContext
from examlops_dagster.dagster_bridge.claims import NodeClaim
from examlops_dagster.dagster_bridge.runtime import Location, Runtime


def adopt_sources(context: BuildContext, location: Location, runtime: Runtime, node: Node) -> None:
    """Give the sources that ``node`` reads their first version, if nobody did."""
    graph, ledger = location.graph, runtime.ledger
    declaration = graph.declarations[node.asset]
    names = {
        edge.name
        for edge in declaration.upstreams
        if graph.declarations[edge.name].is_source
        and edge.name not in graph.undeclared
        and edge.name not in declaration.conditional
    }
    if not names:
        return
    dynamic = runtime.event_log.dynamic_keys()
    everything = location.nodes_at(Snapshot(utc_now(), dynamic=dynamic))
    sources = {
        Node(edge.name, key)
        for edge, keys in everything.upstreams(node)
        if edge.name in names
        for key in keys
    }
    datasets = names.intersection(graph.datasets)
    for source in sorted(sources - ledger.records(sources, datasets).keys()):
        with NodeClaim(context, runtime, source) as claim:
            if source not in ledger.records([source], datasets):
                runtime.event_log.report(ledger, source, claim.token)
                context.log.info("Adopted source %s as version 1", source)
