"""What the commands that only read show, as rows and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.plan import Plan
from examlops_dagster.core.status import State, Status
from examlops_dagster.errors import UsageError
from examlops_dagster.ledger.builds import Build
from examlops_dagster.project import Project

DASH = "—"
RUN_ID_SHOWN = 8


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


def status_table(verdicts: Iterable[Verdict], *, by_key: bool) -> Iterator[list[str]]:
    """Give the rows; a partitioned asset is one line unless ``by_key``."""
    by_asset: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_asset.setdefault(verdict.status.node.asset, []).append(verdict)
    for name, found in by_asset.items():
        if found[0].partitioned and not by_key:
            yield _summary(name, found)
            continue
        for verdict in found:
            status = verdict.status
            version = str(status.version or DASH)
            why = "; ".join(verdict.why) or DASH
            yield [str(status.node), version, status.shown, why]


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


def plan_rows(plan: Plan) -> list[list[str]]:
    """Give a plan as rows."""
    rows = [[str(s.node), s.action.value, "; ".join(s.why) or DASH] for s in plan.steps]
    rows += [[str(node), "skip", "fresh"] for node in plan.skipped]
    rows += [[str(b.node), "blocked", b.why] for b in plan.blocked]
    return rows


def plan_json(plan: Plan) -> dict[str, Any]:
    """Give a plan as JSON."""
    return {
        "targets": list(map(str, plan.targets)),
        "steps": [
            {
                "name": step.node.asset,
                "partition": step.node.partition or None,
                "action": step.action.value,
                "reasons": list(step.why),
            }
            for step in plan.steps
        ],
        "skipped": list(map(str, plan.skipped)),
        "blocked": [{"name": str(b.node), "reason": b.why} for b in plan.blocked],
    }


def history_rows(builds: Iterable[Build]) -> Iterator[list[str]]:
    """Give builds as rows."""
    for build in builds:
        moment = build.ended_at or build.started_at
        built_from = ", ".join(f"{n} v{r.version}" for n, r in build.built_from.items())
        yield [
            f"{moment.astimezone():%Y-%m-%d %H:%M:%S}",
            f"v{build.version}" if build.version else DASH,
            f"{build.state.value} ({build.node.partition})"
            if build.node.partition
            else build.state.value,
            build.orchestrator or DASH,
            built_from or DASH,
            build.run_id[:RUN_ID_SHOWN] or DASH,
            build.error or DASH,
        ]


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


def _summary(name: str, verdicts: list[Verdict]) -> list[str]:
    counts = Counter(v.status.shown for v in verdicts)
    words = ", ".join(f"{count} {shown}" for shown, count in counts.items()) or "no partitions"
    first = next((v for v in verdicts if v.status.state is State.FAILED), None)
    first = first or next((v for v in verdicts if v.why), None)
    why = f"{first.status.node.partition}: {'; '.join(first.why)}" if first else DASH
    version = max((v.status.version for v in verdicts), default=0)
    return [name, str(version or DASH), words, why]
