"""Writes all that a job needs into its folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.orchestrators.call_files import write_call
from examlops_dagster.orchestrators.calling import import_root
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.programs import speaking, versions_of
from examlops_dagster.orchestrators.requests import limit_seconds, resources_of
from examlops_dagster.schedulers.base import Submission, job_name
from examlops_dagster.schedulers.folder import JobFolder, write_json
from examlops_dagster.schedulers.script import (
    ScriptPlan,
    job_python,
    python_roots,
    quote,
    render,
    rerooted,
    write_script,
)
from examlops_dagster.schedulers.whole_numbers import whole_number
from examlops_dagster.settings import ARRAY_LIMIT, ASSET, HPC_ENV_EXCLUDE, PARTITION, UPSTREAM
from examlops_dagster.values import write_atomically

_LONGEST_ARGUMENT = 100_000
"""Linux takes 128 KiB for one argument or variable (MAX_ARG_STRLEN)."""


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
    folder.make()
    folder.inputs.mkdir(mode=0o700)
    upstream, text = _upstream(request)
    if entrypoint is not None:
        roots = _roots(entrypoint, _directory(environment), environment)
        write_call(request, folder, upstream, entrypoint, roots, environment)
    variables = _variables(request, folder, text)
    intent = _intent(request, token, scheduler, submitted_at)
    return _write_script(
        request,
        token,
        folder,
        scheduler=scheduler,
        entrypoint=entrypoint,
        environment=environment,
        upstream=text,
        variables=variables,
        intent={**intent, **_of_attempt(request)},
    )


def write_task(
    request: BuildRequest,
    folder: JobFolder,
    *,
    entrypoint: Entrypoint | None,
    environment: Mapping[str, str],
    former: JobFolder | None = None,
) -> None:
    """Write what one task of an array needs, into a folder that is there.

    Parameters
    ----------
    former
        Of a job of the same attempt, whose arguments are taken; the request holds none then.

    Raises
    ------
    AssetBuildError
        If the arguments cannot leave this process.
    """
    folder.inputs.mkdir(mode=0o700)
    if former is not None:
        shutil.copytree(former.inputs, folder.inputs, dirs_exist_ok=True)
    elif entrypoint is not None:
        roots = _roots(entrypoint, _directory(environment), environment)
        write_call(request, folder, {}, entrypoint, roots, environment)
    variables = _variables(request, folder, _upstream(request)[1])
    lines = [f"export {name}={quote(value)}\n" for name, value in variables.items()]
    payload = os.fsencode("".join(lines))
    write_atomically(folder.inputs / "variables.sh", payload, durable=False)


def write_array(
    requests: Sequence[BuildRequest],
    token: str,
    folder: JobFolder,
    *,
    scheduler: str,
    entrypoint: Entrypoint | None,
    environment: Mapping[str, str],
    submitted_at: datetime,
) -> Submission:
    """Write what the tasks of an array share, up to the intent to submit it.

    Their own is there already. All are of one asset, and ask for the same resources.
    """
    tasks = [_of_attempt(request) for request in requests]
    submission = _write_script(
        requests[0],
        token,
        folder,
        scheduler=scheduler,
        entrypoint=entrypoint,
        environment=environment,
        upstream="{}",
        variables={},
        intent={**_intent(requests[0], token, scheduler, submitted_at), "tasks": tasks},
        is_array=True,
    )
    at_once = whole_number(environment, ARRAY_LIMIT, 0) or None
    return replace(submission, array=len(requests), at_once=at_once)


def _write_script(
    request: BuildRequest,
    token: str,
    folder: JobFolder,
    *,
    scheduler: str,
    entrypoint: Entrypoint | None,
    environment: Mapping[str, str],
    upstream: str,
    variables: Mapping[str, str],
    intent: Mapping[str, Any],
    is_array: bool = False,
) -> Submission:
    node = request.node
    directory = _directory(environment)
    roots: list[str] | None = None
    if entrypoint is None:
        argv = list(request.declaration.command)
    else:
        roots = _roots(entrypoint, directory, environment)
        argv = [
            job_python(environment),
            "-m",
            "examlops_dagster.schedulers.job",
            *_option("--asset", node.asset),
            *_option("--entrypoint", entrypoint.name),
            "--upstream",
            upstream,
            *_option("--folder", str(folder.there)),
            *([] if directory is None else _option("--directory", directory)),
        ]
    limit = limit_seconds(request)
    plan = ScriptPlan(
        node.asset if is_array else str(node),
        token,
        folder.there,
        argv,
        roots,
        variables,
        resources_of(request).setup,
        limit,
        scheduler,
        is_array=is_array,
        takes_index=entrypoint is not None,
        directory=directory if entrypoint is None else None,
    )
    write_script(folder.script, render(plan))
    there = {"folder_there": str(folder.there)} if folder.far_end.host else {}
    write_json(folder.intent, {**intent, **folder.far_end.written, **there})
    excluded = re.split(r"[\s,]+", environment.get(HPC_ENV_EXCLUDE, ""))
    return Submission(
        token,
        job_name(node.asset, token),
        folder.seen_there.script,
        folder.there,
        dict(request.resources),
        limit,
        environment={
            **{k: v for k, v in environment.items() if k not in excluded},
            **request.environment,
        },
        own_variables=request.environment,
    )


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _directory(environment: Mapping[str, str]) -> str | None:
    """Give the working directory on the cluster; None where this process has none."""
    try:
        return rerooted(str(Path.cwd()), environment)
    except OSError:
        return None


def _upstream(request: BuildRequest) -> tuple[dict[str, Any], str]:
    """Give the versions that go into the command line, also as text."""
    versions = versions_of(request)
    text = json.dumps(versions, sort_keys=True)
    if len(text) > _LONGEST_ARGUMENT:  # versions of thousands of keys go into the call
        return {}, "{}"
    return versions, text


def _variables(request: BuildRequest, folder: JobFolder, upstream: str) -> dict[str, str]:
    return {
        ASSET: request.node.asset,
        PARTITION: request.node.partition,
        UPSTREAM: upstream,
        **_pipes(request, folder),
    }


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


def _pipes(request: BuildRequest, folder: JobFolder) -> dict[str, str]:
    """Give the variables by which a program speaks to us, with files of its folder."""
    return speaking(
        request,
        context=folder.inputs / "pipes.json",
        messages=folder.seen_there.messages,
        outlets=folder.seen_there.outlets,
        context_there=folder.seen_there.inputs / "pipes.json",
    )


def _intent(
    request: BuildRequest, token: str, scheduler: str, submitted_at: datetime
) -> dict[str, Any]:
    return {
        "token": token,
        "scheduler": scheduler,
        "submitted_at": submitted_at.isoformat(),
        "asset": request.node.asset,
        "run_id": request.run_id,
        "resources": json.loads(json.dumps(dict(request.resources), default=str)),
        "host": os.uname().nodename,
        "pid": os.getpid(),
    }


def _of_attempt(request: BuildRequest) -> dict[str, Any]:
    return {
        "partition": request.node.partition,
        "fingerprint": request.fingerprint,
        "build_id": request.build_id,
    }
