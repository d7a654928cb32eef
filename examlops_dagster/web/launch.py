"""Requests for builds over HTTP: planned as ``exa`` plans them, and launched as Dagster runs."""

from __future__ import annotations

import asyncio
import threading
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dagster import AssetKey
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster_graphql.schema import create_schema
from graphene import Schema

from examlops_dagster.core.graph import Nodes
from examlops_dagster.core.plan import Action, Plan, Step, first_slices
from examlops_dagster.core.seams import Snapshot
from examlops_dagster.dagster_bridge.execute import ACTOR_TAG
from examlops_dagster.dagster_bridge.governed import Governed
from examlops_dagster.dagster_bridge.run import refuse_blocked
from examlops_dagster.dagster_bridge.slices import slice_tags
from examlops_dagster.errors import ExamlopsError, LaunchError, UnknownAssetError, UsageError
from examlops_dagster.governance.audit_requests import MATERIALIZED, Request
from examlops_dagster.governance.governor import with_remedy
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.project import Project
from examlops_dagster.project.views import plan_json
from examlops_dagster.store.engine import Database

ACTOR = SOURCE = "api"

_LAUNCH = """
mutation($parameters: ExecutionParams!) {
  launchPipelineExecution(executionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on UnauthorizedError { message }
    ... on InvalidSubsetError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}
"""


class RefusedError(ExamlopsError):
    """A request that the server understood, and does not carry out.

    Attributes
    ----------
    code
        HTTP status.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


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
        self._context = context
        self._lock = threading.Lock()

    @cached_property
    def _schema(self) -> Schema:
        return create_schema()

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
                found = self._launch(project, plan, prefix)
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
                return {**self._launch(project, plan, prefix), "refused": []}
            finally:
                project.close()

    def _project(self) -> Project:
        """Open platform.db for one request, with what is declared now."""
        loaded = self._loaded
        environment = ChainMap({"EXAMLOPS_ACTOR": ACTOR}, dict(loaded.home.environment))
        home = replace(loaded.home, environment=environment)
        project = Project(home, loaded.modules, reading=False)
        project.__dict__.update(
            database=Database(home.database),
            in_code=loaded.in_code,
            fingerprints=loaded.fingerprints,
            code_versions=loaded.code_versions,
        )
        return project

    def _launch(self, project: Project, plan: Plan, prefix: str) -> dict[str, Any]:
        nodes = Nodes(project.graph, Snapshot(utc_now(), dynamic=project.dynamic_keys()))
        launched: list[dict[str, Any]] = []
        builds = {step.node for step in plan.steps if step.action is Action.BUILD}
        for part in first_slices(project.graph, nodes, plan):
            steps = [step for step in part.steps if step.action is Action.BUILD]
            if steps:
                run_id = self._launch_run(project, steps, nodes)
                _note(project, run_id, steps)
                assets = sorted({step.node.asset for step in steps})
                launched.append({"id": run_id, "url": f"{prefix}/runs/{run_id}", "assets": assets})
                builds -= {step.node for step in steps}
        later = sorted({node.asset for node in builds})
        return {"runs": launched, "plan": plan_json(plan), "later": later}

    def _launch_run(self, project: Project, steps: Sequence[Step], nodes: Nodes) -> str:
        keys = sorted({project.event_log.key(step.node.asset) for step in steps})
        tags = {**slice_tags(steps, nodes), ACTOR_TAG: ACTOR}
        with self._context.create_request_context() as context:
            location, repository = _where(context, keys[0])
            parameters = {
                "mode": "default",
                "executionMetadata": {
                    "tags": [{"key": key, "value": value} for key, value in tags.items()]
                },
                "runConfigData": "{}",
                "selector": {
                    "repositoryLocationName": location,
                    "repositoryName": repository,
                    "pipelineName": "__ASSET_JOB",
                    "assetSelection": [{"path": list(key.path)} for key in keys],
                    "assetCheckSelection": None,
                },
            }
            answer = asyncio.run(
                self._schema.execute_async(
                    _LAUNCH, variables={"parameters": parameters}, context=context
                )
            )
        if answer.errors:
            raise LaunchError(f"Dagster did not launch the run: {answer.errors[0].message}")
        found = (answer.data or {}).get("launchPipelineExecution", {})
        if "run" not in found:
            reasons = found.get("message") or found.get("errors") or found.get("__typename")
            raise LaunchError(f"Dagster did not launch the run: {reasons}")
        return str(found["run"]["runId"])


def _where(context: Any, key: AssetKey) -> tuple[str, str]:
    """Give the code location and the repository that hold an asset."""
    graph = context.asset_graph
    if not graph.has(key):
        raise RefusedError(
            409,
            f"no code location that Dagster has loaded holds {key.to_user_string()} → look at "
            "Deployment in its UI, and at workspace.yaml",
        )
    handle = graph.get(key).resolve_to_singular_repo_scoped_node().repository_handle
    return handle.location_name, handle.repository_name


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
