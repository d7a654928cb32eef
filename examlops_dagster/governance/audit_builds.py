"""What the audit log tells of builds, from the rows of ``builds`` that it has not told of yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.governance.audit import Entry
from examlops_dagster.governance.request_rows import AUTOMATION, MATERIALIZED, Request
from examlops_dagster.ledger.history import NOT_BUILT
from examlops_dagster.store.engine import Connection

ENDINGS = {BuildState.CANCELLED: "asset_build_cancelled"}
FAILED = "asset_build_failed"
RECORDED = "asset_recorded"

_BUILDS = (
    "SELECT build_id, asset, partition, state, version, orchestrator, run_id, provenance, error, "
    "started_at FROM builds"
)


@dataclass(frozen=True)
class EndedBuild:
    """A row of ``builds`` that has ended, as far as the audit log tells of it."""

    build_id: str
    node: Node
    state: BuildState
    version: int | None
    orchestrator: str
    run_id: str
    provenance: Mapping[str, str]
    error: str
    started_at: float

    @property
    def facts(self) -> dict[str, Any]:
        """What the log says of a build: where it ran, and what became of it."""
        found: dict[str, Any] = {
            "state": self.state.value,
            "version": self.version,
            "orchestrator": self.orchestrator,
            "run": self.run_id,
            "build": self.build_id,
        }
        for name in ("hpc_job_id", "scheduler", "prefect_flow_run_id", "fallback"):
            if self.provenance.get(name):
                found[name] = self.provenance[name]
        return found


def failure_entry(build: EndedBuild, request: Request | None) -> Entry:
    """Give the row of a build that did not succeed."""
    details = {**build.facts, "error": build.error, "node": str(build.node)}
    if request is not None:
        details.update(source=request.source, request=request.id)
    action = ENDINGS.get(build.state, FAILED)
    actor = request.actor if request is not None else ""
    return Entry(action, actor, [build.node.asset], details)


def entries_of_run(run_id: str, builds: list[EndedBuild], request: Request | None) -> list[Entry]:
    """Give the rows of builds that were made without a request of ours, an asset at a time."""
    entries = [failure_entry(each, request) for each in builds if each.state.holds]
    good = [each for each in builds if not each.state.holds]
    by_asset: dict[str, list[EndedBuild]] = {}
    for each in good:
        by_asset.setdefault(each.node.asset, []).append(each)
    for asset, found in by_asset.items():
        details: dict[str, Any] = {"run": run_id} if run_id else {}
        for word, state in (("rebuilt", BuildState.SUCCEEDED), ("unchanged", BuildState.UNCHANGED)):
            details[word] = [str(each.node) for each in found if each.state is state]
        details["builds"] = {str(each.node): each.facts for each in found}
        if request is not None:
            details.update(source=request.source, request=request.id)
        ours = found[0].orchestrator not in NOT_BUILT
        probed = ours and not run_id
        action = MATERIALIZED if ours else RECORDED
        who = request.actor if request else AUTOMATION if probed else ""
        entries.append(Entry(action, who, [asset], details))
    return entries


def done_by(connection: Connection, request: Request) -> dict[str, Any]:
    """Give what a request that never ended has built, from what it left."""
    rows = connection.execute(
        "SELECT asset, partition, state FROM builds WHERE run_id IN (SELECT run_id FROM "
        "request_runs WHERE request_id = :id) ORDER BY id",
        id=request.id,
    )
    if request.action != MATERIALIZED:
        return {}
    words: dict[str, list[str]] = {"rebuilt": [], "unchanged": [], "failed": []}
    for asset, partition, state in rows:
        word = {"succeeded": "rebuilt", "unchanged": "unchanged"}.get(state, "failed")
        words[word].append(str(Node(asset, partition)))
    return dict(words)


def unaudited(connection: Connection, where: str = "1 = 1", **named: Any) -> list[EndedBuild]:
    """Give the builds that ended and of which the log does not tell yet, run by run."""
    rows = connection.execute(
        f"{_BUILDS} WHERE audited = 0 AND state <> 'running' AND {where} ORDER BY run_id, id",
        **named,
    )
    return [
        EndedBuild(
            row[0], Node(row[1], row[2]), BuildState(row[3]), row[4], row[5], row[6],
            json.loads(row[7]), row[8], row[9],
        )
        for row in rows
    ]  # fmt: skip


def mark_audited(connection: Connection, builds: Iterable[EndedBuild]) -> None:
    """Note that the log tells of builds, in the transaction that adds its rows."""
    connection.execute_many(
        "UPDATE builds SET audited = 1 WHERE build_id = :id",
        [{"id": each.build_id} for each in builds],
    )
