"""Datasets that a program says it wrote: lines of a file, or custom messages of Dagster Pipes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examlops_dagster.core.aliases import Metadata

OUTLET_MESSAGE = "examlops/outlet"
"""Key of a custom message that says the same."""

_LONGEST_LINE = 1 << 20
_SHOWN = 200

_logger = logging.getLogger(__name__)


def outlet_event(said: Any) -> Metadata:
    """Read what a program said of one dataset.

    Raises
    ------
    ValueError
        Says what is wrong, and what is expected.
    """
    if not isinstance(said, Mapping):
        raise ValueError('it is no object like {"dataset": "s3://bucket/key"}')  # noqa: TRY004
    unknown = said.keys() - {"dataset", "extra", "alias"}
    if unknown:
        raise ValueError(f"{min(unknown)!r} is not one of dataset, extra, alias")
    dataset, extra, alias = said.get("dataset"), said.get("extra"), said.get("alias")
    if not isinstance(dataset, str) or not dataset.strip():
        raise ValueError("its dataset is no URI")
    if not isinstance(extra, Mapping | None):
        raise ValueError("its extra is no object")  # noqa: TRY004 - of a file, not a type
    names = [alias] if isinstance(alias, str) else alias or []
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise ValueError("its alias is neither a name nor a list of names")
    return Metadata(dataset, dict(extra or {}), tuple(names))


def read_outlets(path: Path) -> tuple[tuple[Metadata, ...], list[str]]:
    """Read the file of a program that has ended.

    Returns
    -------
    tuple
        The events in order, and what is to be told of lines that say none: a program that writes
        something else there has built its asset all the same.
    """
    events: list[Metadata] = []
    problems: list[str] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                if not line.strip():
                    continue
                try:
                    events.append(outlet_event(json.loads(line)))
                except (ValueError, RecursionError) as error:
                    why = "it is no JSON" if isinstance(error, json.JSONDecodeError) else error
                    shown = line[:_SHOWN].decode(errors="replace").rstrip()
                    problems.append(f"line {number} of {path} is left out, {why}: {shown}")
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(f"{path} cannot be read: {error}")
    return tuple(events), problems
