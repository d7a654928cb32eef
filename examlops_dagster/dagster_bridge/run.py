"""A request from the command line or a script: plan it, and build what is stale.

No dagster is imported here: a request that finds nothing to build must not pay for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from examlops_dagster.core.plan import Plan
from examlops_dagster.core.seams import Node, Progress
from examlops_dagster.errors import UsageError
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.orchestrators.registry import choose
from examlops_dagster.project import ModuleLike, Project, open_project


@dataclass(frozen=True)
class Failed:
    """A node whose build failed.

    Attributes
    ----------
    reason
        Last line of the error.
    log
        Path of the file with the whole of it; empty if there is none.
    """

    node: Node
    reason: str
    log: str = ""


@dataclass
class Report:
    """What a request did.

    Attributes
    ----------
    targets
        What was asked for.
    rebuilt
        Nodes that were built, and sources that were adopted, in order.
    unchanged
        Nodes that turned out to be no longer stale when their turn came.
    skipped
        Nodes of the slice that were fresh from the start.
    failed
        Nodes that failed.
    failed_sinks
        Sinks that could not be written; the assets themselves were built.
    cancelled
        Whether somebody ended it: Ctrl-C, or Terminate in the UI.
    fallbacks
        Nodes that were built elsewhere than asked, with the reason.
    runs
        Ids of the Dagster runs.
    """

    targets: Sequence[Node] = ()
    rebuilt: list[Node] = field(default_factory=list)
    unchanged: list[Node] = field(default_factory=list)
    skipped: list[Node] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    failed_sinks: list[SinkWrite] = field(default_factory=list)
    cancelled: bool = False
    fallbacks: dict[Node, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Add what a further request did."""
        for mine in fields(self):
            if isinstance(getattr(self, mine.name), list):
                getattr(self, mine.name).extend(getattr(other, mine.name))
        self.fallbacks.update(other.fallbacks)
        self.cancelled = self.cancelled or other.cancelled

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for is fresh now."""
        return not self.failed and not self.cancelled


def materialize(
    name: str | Sequence[str],
    *,
    modules: Iterable[ModuleLike] = (),
    partition: str | None = None,
    force: bool = False,
    no_deps: bool = False,
    orchestrator: str | None = None,
    in_process: bool = False,
) -> Report:
    """Rebuild assets and their stale ancestors, dependencies first, and nothing else.

    Parameters
    ----------
    name
        One asset, or several.
    modules
        Where they are declared; the configured ones by default.
    partition
        One key of a partitioned asset; all that are stale by default.
    force
        Build the targets even if they are fresh.
    no_deps
        Build nothing but the targets.
    orchestrator
        local, scheduler, prefect, or one of an installed package.
    in_process
        Call the functions in this process, without their limits.

    Returns
    -------
    Report
        A failed build is in its ``failed``, and no exception.

    Raises
    ------
    UnknownAssetError, UsageError, DefinitionError
        If the request cannot be carried out as it was written.
    """
    names = [name] if isinstance(name, str) else list(name)
    project = open_project(modules, reading=False)
    try:
        return materialize_in(
            project,
            names,
            partition=partition,
            force=force,
            no_deps=no_deps,
            orchestrator=orchestrator,
            in_process=in_process,
        )
    finally:
        project.close()


def materialize_in(
    project: Project,
    names: Sequence[str],
    *,
    partition: str | None = None,
    force: bool = False,
    no_deps: bool = False,
    orchestrator: str | None = None,
    in_process: bool = False,
    named: bool = True,
    progress: Progress | None = None,
) -> Report:
    """As `materialize`, over a project that is already open.

    Parameters
    ----------
    named
        Whether a person names the targets, so that sensors and tasks among them run in any case.
    progress
        Told what is being built.
    """
    if orchestrator is not None:
        choose(orchestrator, None, os.environ)
    plan = project.plan(names, partition=partition, force=force, deps=not no_deps, named=named)
    refuse_blocked(plan)
    if plan.is_empty:
        return Report(plan.targets, skipped=list(plan.skipped))
    from examlops_dagster.dagster_bridge.execute import execute  # noqa: PLC0415 - imports dagster

    return execute(
        project, plan, orchestrator=orchestrator, in_process=in_process, progress=progress
    )


def run_due_in(
    project: Project,
    names: Sequence[str] = (),
    *,
    orchestrator: str | None = None,
    in_process: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Build everything that is due, each node once.

    Parameters
    ----------
    project
        An open project.
    names
        Confine it to these and what they are made from; a task among them runs in any case.
    orchestrator, in_process, progress
        As for `materialize_in`.

    Returns
    -------
    Report
        Of all that was built. What became stale by it (below a sensor that saw something new) is
        built too.
    """
    if orchestrator is not None:
        choose(orchestrator, None, os.environ)
    for name in names:
        project.declared(name)
    project.ledger.see(project.unseen_schedules(), utc_now())
    total = Report()
    done: set[Node] = set()
    while True:
        plan = project.plan_due(names, done)
        if plan.is_empty:
            return total
        from examlops_dagster.dagster_bridge.execute import execute  # noqa: PLC0415 - dagster

        report = execute(
            project, plan, orchestrator=orchestrator, in_process=in_process, progress=progress
        )
        done |= {step.node for step in plan.steps}
        total.add(report)
        if not report.ok:
            return total


def refuse_blocked(plan: Plan) -> None:
    """Refuse a request of which a part cannot be built by anybody.

    Raises
    ------
    UsageError
        With every blocked node and its remedy.
    """
    if plan.blocked:
        reasons = [b.why for b in plan.blocked if not b.why.endswith("is blocked")]
        raise UsageError("\n".join(dict.fromkeys(reasons)))


def as_json(report: Report) -> dict[str, Any]:
    """Give a report as ``--json`` shows it."""
    names = list(dict.fromkeys(node.asset for node in report.targets))
    return {
        "target": names[0] if len(names) == 1 else names,
        "rebuilt": list(map(str, report.rebuilt)),
        "skipped": list(map(str, report.skipped)),
        "unchanged": list(map(str, report.unchanged)),
        "failed": [{"name": str(f.node), "error": f.reason, "log": f.log} for f in report.failed],
        "failed_sinks": [
            {"name": str(w.node), "url": w.url, "error": w.error} for w in report.failed_sinks
        ],
        "cancelled": report.cancelled,
        "fallback": {str(node): why for node, why in report.fallbacks.items()},
        "runs": report.runs,
    }
