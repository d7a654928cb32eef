"""What a program is told by variables: its asset, what it reads, and how to speak to us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.core.windows import TimeWindowSpace
from examlops_dagster.schedulers.folder import write_json
from examlops_dagster.settings import ASSET, OUTLET_EVENTS, PARTITION, UPSTREAM

_LONGEST_VARIABLE = 100_000


def versions_of(request: BuildRequest) -> dict[str, Any]:
    """Give the arguments that are versions of ``deps``: an integer each, or one for each key."""
    edges = {u.name for u in request.declaration.upstreams if u.parameter is None}
    return {n: given for n, given in request.arguments.items() if n in edges and _is_version(given)}


def about(request: BuildRequest) -> dict[str, str]:
    """Give the variables that say what is built, and from what.

    The versions of thousands of keys are too long for one, and stand in the context of Pipes.
    """
    upstream = json.dumps(versions_of(request))
    return {
        ASSET: request.node.asset,
        PARTITION: request.node.partition,
        UPSTREAM: upstream if len(upstream) <= _LONGEST_VARIABLE else "{}",
    }


def _is_version(given: Any) -> bool:
    several = given.values() if isinstance(given, dict) else [given]
    return all(type(version) is int for version in several)


def speaking(
    request: BuildRequest,
    *,
    context: Path,
    messages: Path,
    outlets: Path,
    context_there: Path | None = None,
) -> dict[str, str]:
    """Give the variables by which a program speaks Dagster Pipes and names what it wrote.

    Parameters
    ----------
    context
        File for the context, written here: in a variable it would have to stay below 128 KiB.
    messages, outlets
        Files that the program appends to.
    context_there
        Where the program finds the context; None for the same path.
    """
    try:
        from dagster_pipes import encode_param  # noqa: PLC0415 - not needed to import this module
    except ImportError:  # an installation without dagster: nobody listens
        return {OUTLET_EVENTS: str(outlets)}
    given = request.pipes
    # thousands of tasks have one each, and a job without it fails and is built again
    write_json(context, pipes_context(request) if given is None else given, durable=False)
    return {
        "DAGSTER_PIPES_CONTEXT": encode_param({"path": str(context_there or context)}),
        "DAGSTER_PIPES_MESSAGES": encode_param({"path": str(messages)}),
        OUTLET_EVENTS: str(outlets),
    }


def pipes_context(request: BuildRequest) -> dict[str, Any]:
    """Give what `dagster_pipes.PipesContext` tells the program of its step."""
    node = request.node
    alone = {"start": node.partition, "end": node.partition} if node.partition else None
    return {
        "asset_keys": [node.asset],
        "code_version_by_asset_key": {node.asset: request.code_version or None},
        "provenance_by_asset_key": {node.asset: None},
        "partition_key": node.partition or None,
        "partition_key_range": alone,
        "partition_time_window": _window(request),
        "run_id": request.run_id or request.build_id,
        "job_name": None,
        "retry_number": request.attempt - 1,
        "extras": {"upstream": versions_of(request)},
    }


def _window(request: BuildRequest) -> dict[str, str] | None:
    space = request.declaration.partitions
    if space is None or len(space.dimensions) != 1 or not request.node.partition:
        return None
    [(_, dimension)] = space.dimensions
    if not isinstance(dimension, TimeWindowSpace):
        return None
    start, end = dimension.window(request.node.partition)
    return {"start": start.isoformat(), "end": end.isoformat()}
