"""Requests for builds over HTTP: planned as ``exa`` plans them, and launched as Dagster runs."""

from __future__ import annotations

import secrets
import threading
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagster._core.workspace.context import IWorkspaceProcessContext

from examlops_dagster import settings
from examlops_dagster.clock import utc_now
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import Plan, Step, first_slices
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.verdicts import State
from examlops_dagster.dagster_bridge.governed import Governed
from examlops_dagster.dagster_bridge.run import refuse_blocked
from examlops_dagster.dagster_bridge.slices import slice_tags
from examlops_dagster.errors import ExamlopsError, PolicyError, UnknownAssetError, UsageError
from examlops_dagster.governance.refusals import with_remedy
from examlops_dagster.governance.request_rows import MATERIALIZED, Request
from examlops_dagster.ledger.orders import Order, Orders
from examlops_dagster.ledger.tags import ACTOR_TAG
from examlops_dagster.project import Project
from examlops_dagster.project.views import plan_json
from examlops_dagster.store.engine import Database
from examlops_dagster.web.runs import RefusedError, Runs

ACTOR = SOURCE = "api"


class Launcher:
    """Plans requests and launches their runs in the code location that holds the assets.

    Parameters
    ----------
    loaded
        The project whose code the server has loaded.
    context
        Dagster's workspace.
    """

    def __init__(self, loaded: Project, context: IWorkspaceProcessContext[Any]) -> None:
        self._loaded = loaded
        self._runs = Runs(context)
        self._lock = threading.Lock()

    def run(self, names: Sequence[str], prefix: str) -> dict[str, Any]:
        """Launch what is due, or what of it ``names`` are made from.

        Raises
        ------
        UnknownAssetError, UsageError
            For a name that nobody declared.
        RefusedError
            If a sensor or task that is named cannot be run by anybody, or policy refuses.
        """
        with self._lock:  # two requests at once would launch the same builds twice
            project = self._project()
            try:
                for name in names:
                    project.declared(name)
                project.see_schedules()
                plan = project.plan_due(names)
                if plan.targets:
                    _refuse_blocked(plan)
                plan, refused, _ = Governed(project, SOURCE).passed(plan)
                order = _order(names, due=True)
                found = self._launch(project, plan, prefix, order)
                return {**found, "refused": [with_remedy(each) for each in refused]}
            finally:
                project.close()

    def get(self, name: str, partition: str | None, prefix: str) -> dict[str, Any]:
        """Launch what makes an asset fresh.

        Raises
        ------
        UnknownAssetError, UsageError
            For a name or a partition that nobody knows.
        RefusedError
            If a part of it cannot be built by anybody, or policy refuses.
        """
        with self._lock:
            project = self._project()
            try:
                plan = project.plan([name], partition=partition, named=False)
                _refuse_blocked(plan)
                governed = Governed(project, SOURCE)
                refused = governed.refusals(plan)
                if refused:
                    waits = any(each.approval for each in refused)
                    raise RefusedError(409 if waits else 403, "\n".join(map(with_remedy, refused)))
                if plan.steps:
                    project.ledger.lift(step.node for step in plan.steps)
                else:
                    governed.nothing_to_do(plan)
                order = _order([name], partition)
                return {**self._launch(project, plan, prefix, order), "refused": []}
            finally:
                project.close()

    def carry_on(self, order: Order) -> None:
        """Launch what may be launched now of what a request has left.

        Raises
        ------
        ExamlopsError
            If it can be built no more, policy refuses by now, or Dagster does not launch it.
        """
        with self._lock:
            project = self._project()
            try:
                orders = Orders(project.database)
                if not orders.take(order):
                    return
                verdicts = project.statuses()
                states = {verdicts[node].state for node in order.later if node in verdicts}
                if State.RUNNING in states:  # the daemon was first
                    orders.keep(order)
                    return
                plan = self._left(project, order)
                if plan.is_empty:
                    left = sorted(n for n in order.later if n in verdicts and verdicts[n].reasons)
                    words = [f"{n}: {verdicts[n].shown}, {verdicts[n].why[0]}" for n in left]
                    orders.end(order, "; ".join(words))
                else:
                    self._launch(project, plan, "", order, carried_on=True)
                    orders.launched(order)
            finally:
                project.close()

    @staticmethod
    def _left(project: Project, order: Order) -> Plan:
        """Plan what is left of a request, and may be built."""
        if order.due:
            plan = project.plan_due(order.names)
        else:
            plan = project.plan(order.names, partition=order.partition, named=False)
        steps = tuple(step for step in plan.steps if step.node in order.later)
        deferred = tuple(each for each in plan.deferred if each.node in order.later)
        plan = replace(plan, steps=steps, deferred=deferred)
        governed = Governed(project, SOURCE)
        if order.due:
            return governed.passed(plan)[0]
        refused = governed.refusals(plan)
        if refused:
            raise PolicyError("; ".join(map(with_remedy, refused)))
        return plan

    def _project(self) -> Project:
        """Open platform.db for one request, with what is declared now."""
        loaded = self._loaded
        environment = ChainMap({settings.ACTOR: ACTOR}, dict(loaded.home.environment))
        home = replace(loaded.home, environment=environment)
        return loaded.over(Database(home.database), home, reading=False)

    def _launch(
        self,
        project: Project,
        plan: Plan,
        prefix: str,
        order: Order,
        *,
        carried_on: bool = False,
    ) -> dict[str, Any]:
        """Launch what waits for nothing else, and keep what does for later."""
        nodes = Nodes(project.graph, Snapshot(utc_now(), dynamic=project.dynamic_keys()))
        builds = {step.node for step in plan.builds}
        parts = [part.builds for part in first_slices(project.graph, nodes, plan)]
        parts = [steps for steps in parts if steps]
        now = {step.node for steps in parts for step in steps}
        later = frozenset(builds - now).union(each.node for each in plan.deferred)
        if not now:
            later = frozenset()
        orders = Orders(project.database)
        if later:  # kept before: who launches may be killed in between
            orders.keep(replace(order, runs=(), later=later | now), taken=True)
        launched: list[dict[str, Any]] = []
        left = later | now
        try:
            for steps in parts:
                keys = sorted({project.event_log.key(step.node.asset) for step in steps})
                run_id = self._runs.launch(keys, {**slice_tags(steps, nodes), ACTOR_TAG: ACTOR})
                _note(project, run_id, steps)
                assets = sorted({step.node.asset for step in steps})
                launched.append({"id": run_id, "url": f"{prefix}/runs/{run_id}", "assets": assets})
                left -= {step.node for step in steps}
        except ExamlopsError:
            if carried_on:
                runs = tuple(r["id"] for r in launched)
                orders.keep(replace(order, runs=runs, later=left), taken=True)
            else:  # who asked is told, and may ask again
                orders.forget(order)
            raise
        order = replace(order, runs=tuple(r["id"] for r in launched), later=later)
        if later:
            orders.keep(order)
        else:
            orders.end(order)
        return {
            "runs": launched,
            "plan": plan_json(plan),
            "later": order.assets,
            "order": order.id if later else None,
        }


def _order(names: Sequence[str], partition: str | None = None, *, due: bool = False) -> Order:
    return Order(secrets.token_hex(16), tuple(names), partition, due, (), frozenset(), utc_now())


def _note(project: Project, run_id: str, steps: Sequence[Step]) -> None:
    """Keep who asked for a run, and that policy let it pass; the run itself would ask again."""
    asked = dict.fromkeys((step.node for step in steps), "")
    governor = project.governor
    request = Request(f"run {run_id}", MATERIALIZED, ACTOR, SOURCE, asked, governor.clock())
    governor.keep(lambda: governor.requests.note(request, run_id))


def _refuse_blocked(plan: Plan) -> None:
    try:
        refuse_blocked(plan)
    except UnknownAssetError:
        raise
    except UsageError as error:
        raise RefusedError(409, str(error)) from error
