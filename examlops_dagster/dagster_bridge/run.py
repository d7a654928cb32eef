"""A request from the command line or a script: plan it, and build what is stale.

No dagster is imported here: a request that finds nothing to build must not pay for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from examlops_dagster.core.plan import Plan
from examlops_dagster.core.seams import Node, Progress
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
    total = Report()
    done: set[Node] = set()
    failed: set[Node] = set()
    while True:
        plan = project.plan_due(names, done, failed)
        if plan.targets and not done:
            refuse_blocked(plan)
        if plan.is_empty:
            return total
        from examlops_dagster.dagster_bridge.execute import execute  # noqa: PLC0415 - dagster

        report = execute(
            project, plan, orchestrator=orchestrator, in_process=in_process, progress=progress
        )
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
