"""What is shown of a verdict, a plan and a build, the same on the command line and in the web."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from examlops_dagster.core.emissions import DatasetEvent
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.plan import Plan
from examlops_dagster.core.verdicts import State, Status
from examlops_dagster.errors import UsageError
from examlops_dagster.ledger.history import Build
from examlops_dagster.project import Project
from examlops_dagster.project.foreseen import Foreseen


@dataclass(frozen=True)
class Verdict:
    """A status with the kind of its asset."""

    status: Status
    kind: str
    partitioned: bool
    failed_sinks: tuple[str, ...] = ()

    @property
    def why(self) -> tuple[str, ...]:
        """Why it is stale, what holds it up, and which of its sinks failed."""
        return (*self.status.why, *self.failed_sinks)

    @property
    def as_json(self) -> dict[str, Any]:
        """As ``--json`` and the API show it."""
        status = self.status
        return {
            "name": status.node.asset,
            "partition": status.node.partition or None,
            "kind": self.kind,
            "version": status.version,
            "fresh": status.state is State.FRESH,
            "state": status.state.value,
            "reasons": list(self.why),
        }

    @property
    def row(self) -> dict[str, Any]:
        """As a table shows it: the JSON, with the words for the state."""
        return {**self.as_json, "shown": self.status.shown, "partitioned": self.partitioned}


def status_rows(project: Project, name: str | None, partition: str | None) -> list[Verdict]:
    """Judge all that is declared, or one asset; what is only recorded shows in ``list --all``."""
    if name is not None and name not in project.graph.undeclared:
        project.declared(name)
    if partition is not None and name is None:
        raise UsageError("--partition needs the name of an asset")
    wanted = None if name is None or partition is None else project.nodes_of(name, partition)
    declarations = project.graph.declarations
    failed_sinks = project.failed_sinks()
    found = []
    for node, status in project.statuses().items():
        declaration = declarations.get(node.asset)
        if declaration is None or (name is not None and node.asset != name):
            continue
        if wanted is not None and node not in wanted:
            continue
        partitioned = declaration.partitions is not None
        failed = tuple(f"sink {w.url} failed: {w.error}" for w in failed_sinks.get(node, ()))
        found.append(Verdict(status, declaration.kind, partitioned, failed))
    return found


def edges_of(graph: Graph) -> dict[str, list[str]]:
    """Give the names that each asset is made from, each once."""
    return {
        name: list(dict.fromkeys(edge.name for edge in declaration.upstreams))
        for name, declaration in graph.declarations.items()
    }


def roles_of(graph: Graph) -> dict[str, str]:
    """Say of each asset what the graph calls it: undeclared, source, root or derived."""
    return {
        name: "undeclared"
        if name in graph.undeclared
        else "derived"
        if declaration.upstreams
        else "root"
        if declaration.is_root
        else "source"
        for name, declaration in graph.declarations.items()
    }


def plan_json(plan: Plan, policy: Mapping[str, Foreseen] | None = None) -> dict[str, Any]:
    """Give a plan as JSON, with what policy says of assets that it does not plainly allow."""
    said = {name: each.as_json for name, each in (policy or {}).items()}
    return {
        "targets": list(map(str, plan.targets)),
        "steps": [
            {
                "name": step.node.asset,
                "partition": step.node.partition or None,
                "action": step.action.value,
                "reasons": list(step.why),
                "policy": said.get(step.node.asset),
            }
            for step in plan.steps
        ],
        "skipped": list(map(str, plan.skipped)),
        "blocked": [
            {"name": str(b.node), "reason": b.why, "policy": said.get(b.node.asset)}
            for b in plan.blocked
        ],
    }


def history_json(build: Build) -> dict[str, Any]:
    """Give a build as JSON."""
    return {
        "name": build.node.asset,
        "partition": build.node.partition or None,
        "build_id": build.build_id,
        "state": build.state.value,
        "version": build.version,
        "data_version": build.data_version,
        "built_from": {str(n): r.version for n, r in build.built_from.items()},
        "orchestrator": build.orchestrator,
        "provenance": dict(build.provenance),
        "run_id": build.run_id or None,
        "error": build.error or None,
        "started_at": build.started_at.isoformat(),
        "ended_at": build.ended_at.isoformat() if build.ended_at else None,
    }


def event_as_json(event: DatasetEvent) -> dict[str, Any]:
    """Give an event as ``--json`` and the API show it."""
    return {
        "dataset": event.uri,
        "partition": event.partition or None,
        "version": event.version,
        "extra": dict(event.extra),
        "dataset_extra": dict(event.dataset_extra),
        "aliases": list(event.aliases),
        "source": event.source or None,
        "source_partition": event.source_partition or None,
        "run_id": event.run_id or None,
        "at": event.at.isoformat(),
    }
