"""What the commands that only read show, as rows and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from examlops_dagster.cli.common import DASH
from examlops_dagster.cli.times import local_time
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.verdicts import Status
from examlops_dagster.ledger.history import Build
from examlops_dagster.project import Project

RUN_ID_SHOWN = 8


def listed(project: Project, *, historical: bool) -> list[dict[str, Any]]:
    """Give every asset with its latest version."""
    rows: dict[str, dict[str, Any]] = {}
    failed_sinks = project.failed_sinks()
    for node, status in project.statuses().items():
        declaration = project.graph.declarations.get(node.asset)
        if declaration is None and not historical:
            continue
        row = rows.setdefault(node.asset, _listed(node.asset, status, declaration))
        row["version"] = max(row["version"], status.version)
        row["sinks"] += [f"failed: {w.url}" for w in failed_sinks.get(node, ())]
    return list(rows.values())


def _listed(name: str, status: Status, declaration: Declaration | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "version": 0, "state": status.state.value, "sinks": []}
    if declaration is None:
        return {**row, "kind": "", "freshness": "", "deps": []}
    freshness = str(declaration.freshness) if declaration.function is not None else ""
    deps = list(dict.fromkeys(edge.name for edge in declaration.upstreams))
    return {**row, "kind": declaration.kind, "freshness": freshness, "deps": deps}


def history_rows(builds: Iterable[Build]) -> Iterator[list[str]]:
    """Give builds as rows."""
    for build in builds:
        moment = build.ended_at or build.started_at
        built_from = ", ".join(f"{n} v{r.version}" for n, r in build.built_from.items())
        yield [
            local_time(moment),
            f"v{build.version}" if build.version else DASH,
            f"{build.state.value} ({build.node.partition})"
            if build.node.partition
            else build.state.value,
            build.orchestrator or DASH,
            built_from or DASH,
            build.run_id[:RUN_ID_SHOWN] or DASH,
            build.error or DASH,
        ]
