"""Writes all that a job needs into its folder, and reads what it left there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT
from examlops_dagster.core.seams import BuildRequest, Value
from examlops_dagster.errors import AssetBuildError, ResultError, UsageError
from examlops_dagster.formats import SUFFIXES, decode, encode, is_plain
from examlops_dagster.orchestrators.calling import Outcome, describe, import_root
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.schedulers.base import Submission, job_name
from examlops_dagster.schedulers.folder import JobFolder, read_json, write_json
from examlops_dagster.schedulers.job import MAX_VALUE_VARIABLE, max_value_bytes
from examlops_dagster.schedulers.resources import Resources, parse_resources
from examlops_dagster.schedulers.script import (
    ScriptPlan,
    job_python,
    python_roots,
    render,
    rerooted,
    write_script,
)
from examlops_dagster.values import write_atomically

_LONGEST_ARGUMENT = 100_000
"""Linux takes 128 KiB for one argument or variable (MAX_ARG_STRLEN)."""

EXCLUDE_VARIABLE = "EXAMLOPS_HPC_ENV_EXCLUDE"


def resources_of(request: BuildRequest) -> Resources:
    """Read what a request asks for.

    Raises
    ------
    AssetBuildError
        Names every value that cannot be used.
    """
    try:
        return parse_resources(request.resources)
    except UsageError as error:
        raise build_error(request, f"resources: {error}") from error


def limit_seconds(request: BuildRequest) -> float | None:
    """Give the limit of a job's running time; None takes the partition's own.

    ``resources["time"]``, else a limit that somebody stated.
    """
    stated = resources_of(request).time_seconds
    if stated is not None:
        return stated
    if request.timeout_seconds is DEFAULT_TIMEOUT or request.timeout_seconds is None:
        return None
    return float(request.timeout_seconds)


def write_job(
    request: BuildRequest,
    token: str,
    folder: JobFolder,
    *,
    scheduler: str,
    entrypoint: Entrypoint | None,
    environment: Mapping[str, str],
    submitted_at: datetime,
) -> Submission:
    """Write the folder of a job, up to the intent to submit it.

    Raises
    ------
    AssetBuildError
        If the arguments cannot leave this process.
    """
    node, declaration = request.node, request.declaration
    folder.make()
    try:
        directory: str | None = rerooted(str(Path.cwd()), environment)
    except OSError:
        directory = None
    upstream = _versions(request)
    text = json.dumps(upstream, sort_keys=True)
    if len(text) > _LONGEST_ARGUMENT:  # versions of thousands of keys go into the call
        upstream, text = {}, "{}"
    variables = {
        "EXAMLOPS_ASSET": node.asset,
        "EXAMLOPS_PARTITION": node.partition,
        "EXAMLOPS_UPSTREAM": text,
        **_pipes(request, folder),
    }
    roots: list[str] | None = None
    if entrypoint is None:
        argv = list(declaration.command)
    else:
        roots = _roots(entrypoint, directory, environment)
        _write_call(request, folder, upstream, entrypoint, roots, environment)
        argv = [
            job_python(environment),
            "-m",
            "examlops_dagster.schedulers.job",
            *_option("--asset", node.asset),
            *_option("--entrypoint", entrypoint.name),
            "--upstream",
            text,
            *_option("--folder", str(folder.path)),
            *([] if directory is None else _option("--directory", directory)),
        ]
    limit = limit_seconds(request)
    plan = ScriptPlan(
        str(node),
        token,
        folder.path,
        argv,
        roots,
        variables,
        resources_of(request).setup,
        limit,
        scheduler,
        directory=directory if entrypoint is None else None,
    )
    write_script(folder.script, render(plan))
    write_json(folder.intent, _intent(request, token, scheduler, submitted_at))
    excluded = re.split(r"[\s,]+", environment.get(EXCLUDE_VARIABLE, ""))
    return Submission(
        token,
        job_name(node.asset, token),
        folder.script,
        folder.path,
        dict(request.resources),
        limit,
        environment={k: v for k, v in environment.items() if k not in excluded},
    )


def read_outcome(request: BuildRequest, folder: JobFolder) -> tuple[Outcome, str] | None:
    """Give what the function returned and the code version of what the job imported.

    None while the result is not there.

    Raises
    ------
    ResultError
        If it cannot be read here.
    """
    found = read_json(folder.outputs / "result.json")
    if not isinstance(found, dict):
        return None
    values: dict[str, Value] = {}
    extras: Mapping[str, Any] = {"metadata": {}, "events": []}
    try:
        for name, how in found["files"].items():
            payload = (folder.outputs / how["file"]).read_bytes()
            values[name] = Value(how["format"], payload)
        if "extras" in values:
            extras = decode(values["extras"])
    except Exception as error:
        reason = f"what the job left in {folder.outputs} cannot be read: {describe(error).reason}"
        raise build_error(request, reason, kind=ResultError) from error
    outcome = Outcome(
        values.get("value"),
        found["data_version"],
        extras["metadata"],
        tuple(extras["events"]),
        found["update_detected"],
    )
    return outcome, str(found.get("code_version") or "")


def build_error(
    request: BuildRequest,
    reason: str,
    details: str = "",
    kind: type[AssetBuildError] = AssetBuildError,
) -> AssetBuildError:
    """Give the error of a build."""
    node = request.node
    return kind(node.asset, reason, partition=node.partition, details=details)


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _versions(request: BuildRequest) -> dict[str, Any]:
    """Give the arguments that are versions of ``deps``: an integer each, or one for each key."""
    edges = {u.name for u in request.declaration.upstreams if u.parameter is None}
    return {n: given for n, given in request.arguments.items() if n in edges and _is_version(given)}


def _is_version(given: Any) -> bool:
    several = given.values() if isinstance(given, dict) else [given]
    return all(type(version) is int for version in several)


def _roots(
    entrypoint: Entrypoint, directory: str | None, environment: Mapping[str, str]
) -> list[str]:
    module = entrypoint.name.partition(":")[0]
    root = None if entrypoint.file is None else import_root(module, entrypoint.file)
    try:
        here: str | None = str(Path.cwd()) if directory is not None else None
    except OSError:
        here = None
    return python_roots(root, here, environment)


def _write_call(
    request: BuildRequest,
    folder: JobFolder,
    upstream: Mapping[str, Any],
    entrypoint: Entrypoint,
    roots: list[str],
    environment: Mapping[str, str],
) -> None:
    plain: dict[str, Any] = {}
    values: dict[str, dict[str, str]] = {}
    for number, (name, value) in enumerate(request.arguments.items()):
        if name in upstream:
            continue
        if is_plain(value) and not isinstance(value, (dict, list)):
            plain[name] = value
            continue
        try:
            kept = encode(value)
        except TypeError as error:
            reason = f"the argument {name} cannot be sent to a job: {error}"
            raise build_error(request, reason) from error
        _check_size(request, name, kept, environment)
        file = f"{number}{SUFFIXES[kept.format]}"
        write_atomically(folder.inputs / file, kept.payload)
        values[name] = {"file": file, "format": kept.format}
    file_there = None
    if entrypoint.file is not None:
        file_there = rerooted(entrypoint.file, environment)
    call = {
        "partition": request.node.partition,
        "node_type": request.declaration.node_type.value,
        "serializer": request.declaration.serializer,
        "file": file_there,
        "roots": roots,
        "arguments": plain,
        "values": values,
    }
    write_json(folder.inputs / "call.json", call)


def _check_size(
    request: BuildRequest, name: str, value: Value, environment: Mapping[str, str]
) -> None:
    limit = max_value_bytes(environment)
    if len(value.payload) > limit:
        raise build_error(
            request,
            f"the value of {name} has {len(value.payload)} bytes, more than {limit} "
            f"({MAX_VALUE_VARIABLE}) → keep it in a file, and use deps",
        )


def _pipes(request: BuildRequest, folder: JobFolder) -> dict[str, str]:
    """Give the variables by which a program opens Dagster Pipes, with files of its folder."""
    from dagster_pipes import encode_param  # noqa: PLC0415 - not needed to import this module

    node = request.node
    context = {
        "asset_keys": [node.asset],
        "code_version_by_asset_key": {node.asset: request.code_version or None},
        "provenance_by_asset_key": {node.asset: None},
        "partition_key": node.partition or None,
        "partition_key_range": (
            {"start": node.partition, "end": node.partition} if node.partition else None
        ),
        "partition_time_window": None,
        "run_id": request.run_id or request.build_id,
        "job_name": None,
        "retry_number": request.attempt - 1,
        "extras": {"upstream": _versions(request)},
    }
    path = folder.inputs / "pipes.json"
    write_json(path, context)
    return {
        "DAGSTER_PIPES_CONTEXT": encode_param({"path": str(path)}),
        "DAGSTER_PIPES_MESSAGES": encode_param({"path": str(folder.messages)}),
    }


def _intent(
    request: BuildRequest, token: str, scheduler: str, submitted_at: datetime
) -> dict[str, Any]:
    return {
        "token": token,
        "scheduler": scheduler,
        "submitted_at": submitted_at.isoformat(),
        "asset": request.node.asset,
        "partition": request.node.partition,
        "fingerprint": request.fingerprint,
        "build_id": request.build_id,
        "run_id": request.run_id,
        "resources": json.loads(json.dumps(dict(request.resources), default=str)),
        "host": os.uname().nodename,
        "pid": os.getpid(),
    }
