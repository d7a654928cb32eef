"""A request from the command line or a script: plan it, and build what is stale.

No dagster is imported here: a request that finds nothing to build must not pay for it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from examlops_dagster.core.plan import Plan, Step
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import Progress
from examlops_dagster.dagster_bridge.governed import Governed
from examlops_dagster.dagster_bridge.overrides import check_overrides
from examlops_dagster.dagster_bridge.report import Report
from examlops_dagster.errors import UsageError
from examlops_dagster.loading import ModuleLike
from examlops_dagster.orchestrators.registry import choose
from examlops_dagster.project import Project, open_project


def materialize(
    name: str | Sequence[str],
    *,
    modules: Iterable[ModuleLike] = (),
    partition: str | None = None,
    force: bool = False,
    no_deps: bool = False,
    orchestrator: str | None = None,
    in_process: bool = False,
    resources: Mapping[str, Any] | None = None,
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
    resources
        What the jobs of the targets ask for this once, over their own; what they are made from
        keeps its own. Nothing becomes stale by it.

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
            resources=resources,
            source="python",
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
    resources: Mapping[str, Any] | None = None,
    named: bool = True,
    source: str = "exa",
    progress: Progress | None = None,
) -> Report:
    """As `materialize`, over a project that is already open.

    Parameters
    ----------
    named
        Whether a person names the targets, so that sensors and tasks among them run in any case.
    source
        How it was asked for: exa or python.
    progress
        Told what is being built.
    """
    if orchestrator is not None:
        choose(orchestrator, None, os.environ)
    if resources:
        targets = [project.declared(name) for name in names]
        check_overrides(resources, targets, orchestrator, os.environ)
    plan = project.plan(names, partition=partition, force=force, deps=not no_deps, named=named)
    refuse_blocked(plan)
    governed = Governed(project, source, orchestrator, resources or {})
    if plan.is_empty:
        if named:
            governed.nothing_to_do(plan)
        return Report(plan.targets, skipped=list(plan.skipped))
    total = Report(plan.targets, skipped=list(plan.skipped))
    with governed.courier.recalled():
        while True:
            total.blocked += governed.refusals(plan)
            if total.blocked:
                return total
            report = governed.build(
                plan, in_process=in_process, resources=resources, progress=progress
            )
            total.add(replace(report, skipped=[]))
            total.deferred = {b.node: b.why for b in plan.deferred}
            emitters = [s for s in plan.steps if project.graph.declarations[s.node.asset].outlets]
            if no_deps or not report.ok or not (emitters or _by_event(project, plan)):
                return total
            plan = project.plan(names, partition=partition, named=False)
            plan = _following(project, plan, {*total.rebuilt, *total.unchanged})
            total.deferred = {b.node: b.why for b in (*plan.blocked, *plan.deferred)}
            if plan.is_empty:
                return total


def _following(project: Project, plan: Plan, done: Collection[Node]) -> Plan:
    """Keep of a plan what earlier parts of the request have made stale by what they emitted."""
    steps = tuple(s for s in plan.steps if s.node not in done or _reads_by_event(project, s))
    return replace(plan, steps=steps)


def _by_event(project: Project, plan: Plan) -> bool:
    return any(_reads_by_event(project, step) for step in plan.steps)


def _reads_by_event(project: Project, step: Step) -> bool:
    """Whether a step is built once for each event, so that it may be stale again."""
    edges = project.graph.upstreams(step.node.asset)
    return any(e.mapped is not None and e.mapped.kind == "each_event" for e in edges)


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
        Confine it to these and what they are made from; a sensor or task among them runs in any
        case.
    orchestrator, in_process, progress
        As for `materialize_in`.

    Returns
    -------
    Report
        Of all that was built. What became stale by it (below a sensor that saw something new) is
        built too; what failed stops only what is below it.

    Raises
    ------
    UsageError
        If a sensor or task that is named cannot be run.
    """
    if orchestrator is not None:
        choose(orchestrator, None, os.environ)
    for name in names:
        project.declared(name)
    project.see_schedules()
    governed = Governed(project, "exa", orchestrator, details={"due": True})
    total = Report()
    done: set[Node] = set()
    failed: set[Node] = set()
    with governed.courier.recalled():
        while True:
            plan = project.plan_due(names, done, failed)
            if plan.targets and not done:
                refuse_blocked(plan)
            plan, refused, left = governed.passed(plan)
            total.blocked += refused
            done |= left
            failed |= left
            if plan.is_empty:
                return total
            report = governed.build(plan, in_process=in_process, progress=progress)
            total.add(report)
            failed |= {each.node for each in report.failed}
            tried = {*report.rebuilt, *report.unchanged, *failed}
            if report.ok:
                tried.update(step.node for step in plan.steps)
            if report.cancelled or tried <= done:
                return total
            done |= tried


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
