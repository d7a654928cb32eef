"""The call of a production function that a job makes, and its outcome, as files of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from examlops_dagster.core.seams import BuildRequest, Value
from examlops_dagster.errors import ResultError
from examlops_dagster.formats import SUFFIXES, decode, encode, is_plain
from examlops_dagster.orchestrators.calling import Outcome, describe
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.requests import build_error
from examlops_dagster.schedulers.folder import JobFolder, read_json, write_json
from examlops_dagster.schedulers.job import max_value_bytes
from examlops_dagster.schedulers.script import rerooted
from examlops_dagster.settings import HPC_MAX_VALUE
from examlops_dagster.values import write_atomically


def write_call(
    request: BuildRequest,
    folder: JobFolder,
    upstream: Mapping[str, Any],
    entrypoint: Entrypoint,
    roots: list[str],
    environment: Mapping[str, str],
) -> None:
    """Write the call that a job is to make, with the values that go into it.

    Parameters
    ----------
    upstream
        Arguments that are in the command line already.
    roots
        Folders from which the job imports.
    environment
        Of the submitter.

    Raises
    ------
    AssetBuildError
        If an argument cannot leave this process.
    """
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
        write_atomically(folder.inputs / file, kept.payload, durable=not folder.is_task)
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
    write_json(folder.inputs / "call.json", call, durable=not folder.is_task)


def _check_size(
    request: BuildRequest, name: str, value: Value, environment: Mapping[str, str]
) -> None:
    limit = max_value_bytes(environment)
    if len(value.payload) > limit:
        raise build_error(
            request,
            f"the value of {name} has {len(value.payload)} bytes, more than {limit} "
            f"({HPC_MAX_VALUE}) → keep it in a file, and use deps",
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
