"""What functions and programs say about their assets, as Dagster's metadata; nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from dagster import MetadataValue
from dagster._core.definitions.metadata import normalize_metadata_value
from dagster._core.definitions.metadata.external_metadata import metadata_value_from_external

_TYPED = {"raw_value", "type"}
_LONGEST = 100_000
"""Characters of a value that Dagster does not know, as text."""


def as_metadata(said: Mapping[str, Any]) -> dict[str, MetadataValue[Any]]:
    """Give metadata that Dagster can store, whatever was said.

    ``{"raw_value": ..., "type": "url"}``, as Pipes writes it, gets that type. What Dagster has no
    type for becomes JSON or text: hours of work do not fail over the type of a remark.
    """
    return {str(name): _as_value(value) for name, value in said.items()}


def _as_value(value: Any) -> MetadataValue[Any]:
    if isinstance(value, dict) and value.keys() == _TYPED:
        try:
            return metadata_value_from_external(value["raw_value"], value["type"])
        except Exception:  # noqa: BLE001 - of Dagster's checks, and of the program's types
            value = value["raw_value"]
    with suppress(Exception):  # of the user's classes too
        return normalize_metadata_value(value)
    with suppress(Exception):
        return normalize_metadata_value(_plain(value))
    return MetadataValue.text(_shown(value))


def _plain(value: Any) -> Any:
    """Give the nearest thing that Dagster has a type for."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return MetadataValue.timestamp(value)
    if callable(getattr(value, "item", None)) and getattr(value, "size", 1) == 1:
        return value.item()  # a scalar of numpy or torch
    if isinstance(value, (tuple, set, frozenset)):
        return sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    return _shown(value)


def _shown(value: Any) -> str:
    try:
        return str(value)[:_LONGEST]
    except Exception:  # noqa: BLE001 - its class is the user's
        return f"<{type(value).__name__}>"
