"""What is shown of each asset and of each partition, by the API and on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State
from examlops_dagster.project import Project
from examlops_dagster.project.views import Verdict, edges_of, roles_of, status_rows
from examlops_dagster.shown import summary_why, summary_words

WORST_FIRST = (
    State.FAILED,
    State.RUNNING,
    State.RUNNABLE,
    State.WAITING_FOR_UPSTREAM,
    State.WAITING_FOR_SCHEDULE,
    State.WAITING_FOR_REQUEST,
    State.FRESH,
)
"""Which state of its partitions an asset is shown in."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """One row an asset in the order of the graph, and one a partition.

    Attributes
    ----------
    assets
        What ``/api/assets`` gives of each asset, by name.
    verdicts
        Of each asset's nodes, by name.
    """

    assets: Mapping[str, Row]
    verdicts: Mapping[str, Sequence[Verdict]]

    @staticmethod
    def of(project: Project) -> Rows:
        """Make the rows of a project at one moment."""
        by_name: dict[str, list[Verdict]] = {name: [] for name in project.graph.declarations}
        for verdict in status_rows(project, None, None):
            by_name[verdict.status.node.asset].append(verdict)
        built = {node: r.built_at for node, r in project.snapshot().records.items()}
        edges, roles = edges_of(project.graph), roles_of(project.graph)
        assets = {
            name: {
                **_asset(project.graph.declarations[name], verdicts, built),
                "role": roles[name],
                "deps": edges[name],
                "dependents": sorted(project.graph.downstreams[name]),
                "undeclaredDeps": [dep for dep in edges[name] if roles[dep] == "undeclared"],
            }
            for name, verdicts in by_name.items()
        }
        return Rows(assets, by_name)

    def by_partition(self, name: str) -> list[Row]:
        """Give the rows of an asset's partitions; the asset's own where it has none."""
        asset = self.assets[name]
        if not asset["partitioned"]:
            return [asset]
        return [{**asset, **verdict.row, "partitions": None} for verdict in self.verdicts[name]]

    @property
    def counts(self) -> Row:
        """Count the assets: in all, fresh, not fresh, and by state."""
        states = Counter(row["state"] for row in self.assets.values())
        total = len(self.assets)
        fresh = states[State.FRESH.value]
        return {"total": total, "stale": total - fresh, "fresh": fresh, "states": dict(states)}


def _asset(
    declaration: Declaration, verdicts: Sequence[Verdict], built: Mapping[Node, datetime]
) -> Row:
    times = [built[v.status.node] for v in verdicts if v.status.node in built]
    return {
        **_judged(declaration, verdicts),
        "nodeType": declaration.node_type.value,
        "description": declaration.description,
        "freshness": str(declaration.freshness) if declaration.function is not None else None,
        "lastMaterializedAt": max(times).isoformat() if times else None,
    }


def _judged(declaration: Declaration, verdicts: Sequence[Verdict]) -> Row:
    if declaration.partitions is None:
        [verdict] = verdicts
        return {**verdict.row, "partitions": None}
    rows = [verdict.row for verdict in verdicts]
    states = Counter(v.status.state for v in verdicts)
    worst = next((state for state in WORST_FIRST if states[state]), State.FRESH)
    return {
        "name": declaration.name,
        "partition": None,
        "kind": declaration.kind,
        "version": max((v.status.version for v in verdicts), default=0),
        "fresh": worst is State.FRESH,
        "state": worst.value,
        "reasons": summary_why(rows),
        "shown": summary_words(rows),
        "partitioned": True,
        "partitions": {state.value: count for state, count in states.items()},
    }
