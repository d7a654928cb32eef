"""Runs that the server launches, through Dagster's own schema and in its workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from dagster import AssetKey, DagsterError
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster_graphql.schema import create_schema
from graphene import Schema

from examlops_dagster.errors import ExamlopsError, LaunchError

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

_MAY_PASS = ("PythonError", "InvalidSubsetError")
"""What Dagster answers for whatever goes wrong in it, while it asks a code server for the job too."""


class RefusedError(ExamlopsError):
    """A request that the server understood, and does not carry out.

    Attributes
    ----------
    code
        HTTP status.
    transient
        Whether the same request may succeed later.
    """

    def __init__(self, code: int, text: str, *, transient: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.transient = transient


class Runs:
    """Launches runs in the code location that holds their assets.

    Parameters
    ----------
    context
        Dagster's workspace.
    """

    def __init__(self, context: IWorkspaceProcessContext[Any]) -> None:
        self._context = context

    @cached_property
    def _schema(self) -> Schema:
        return create_schema()

    def launch(self, keys: Sequence[AssetKey], tags: Mapping[str, str]) -> str:
        """Launch one run over assets of one code location, and give its id.

        Raises
        ------
        RefusedError
            If no code location holds them.
        LaunchError
            If Dagster does not launch it; ``transient=True`` where something is away, such as the
            code server.
        """
        try:
            return self._launch(keys, tags)
        except DagsterError as error:
            raise LaunchError(f"Dagster did not launch the run: {error}", transient=True) from error

    def _launch(self, keys: Sequence[AssetKey], tags: Mapping[str, str]) -> str:
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
            reason = answer.errors[0].message
            raise LaunchError(f"Dagster did not launch the run: {reason}", transient=True)
        found = (answer.data or {}).get("launchPipelineExecution", {})
        if "run" not in found:
            kind = found.get("__typename")
            reasons = found.get("message") or found.get("errors") or kind
            raise LaunchError(
                f"Dagster did not launch the run: {reasons}", transient=kind in _MAY_PASS
            )
        return str(found["run"]["runId"])


def _where(context: Any, key: AssetKey) -> tuple[str, str]:
    """Give the code location and the repository that hold an asset."""
    graph = context.asset_graph
    if not graph.has(key):
        raise RefusedError(
            409,
            f"no code location that Dagster has loaded holds {key.to_user_string()} → look at "
            "Deployment in its UI, and at workspace.yaml",
            transient=True,
        )
    handle = graph.get(key).resolve_to_singular_repo_scoped_node().repository_handle
    return handle.location_name, handle.repository_name
