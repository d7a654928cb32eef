"""Data versions, integer versions and the fingerprint of an attempt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.records import Node, Record
from examlops_dagster.core.seams import BuildResult, Value


def content_version(value: Value) -> str:
    """Give the data version of a value: sha256 of its content.

    The order of keys in a json object is not content.
    """
    payload = value.payload
    if value.format == "json":
        payload = json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(value.format.encode() + b"\0" + payload).hexdigest()


def attempt_fingerprint(
    declaration: Declaration,
    code_version: str,
    inputs: Mapping[Node, str],
    tick: datetime | None,
) -> str:
    """Give the fingerprint that the attempts without success of a node are counted by.

    Parameters
    ----------
    declaration
        Its resources, command, orchestrator and limit are part of it: a change of one of them is
        a reason to try again.
    code_version
        Of the loaded function.
    inputs
        Current data version of each upstream node; empty text where nothing was built.
    tick
        The tick that made a node stale that ticks by itself.
    """
    parts = [
        code_version,
        sorted((*node, data_version) for node, data_version in inputs.items()),
        tick.isoformat() if tick is not None else None,
        dict(declaration.resources),
        list(declaration.command),
        declaration.orchestrator,
        None if declaration.timeout_seconds is None else float(declaration.timeout_seconds),
    ]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def next_version(former: Record | None, highest: int, data_version: str) -> int:
    """Give the integer version of a result.

    Parameters
    ----------
    former
        What exists of the node.
    highest
        The highest number ever given to it; 0 if none was.
    data_version
        Of the new result; equal to the former one it keeps the former number.
    """
    if former is not None and former.data_version == data_version:
        return former.version
    return highest + 1


def result_data_version(result: BuildResult, former: Record | None, build_id: str) -> str:
    """Give the data version of a result.

    A sensor that saw something new always gets a new one, even if its output is equal, and one
    that saw nothing keeps the former; otherwise it is the one that the function gave, else the
    hash of the value, else one that belongs to this build alone.
    """
    if keeps_former_value(result, former) and former is not None:
        return former.data_version
    if result.update_detected:
        return build_id
    if result.data_version is not None:
        return result.data_version
    return content_version(result.value) if result.value is not None else build_id


def keeps_former_value(result: BuildResult, former: Record | None) -> bool:
    """Tell whether a sensor saw nothing new, so that downstream reads its last True tuple."""
    return result.update_detected is False and former is not None
