"""Writes values to the paths of sinks: any fsspec URL, the format by its suffix, atomically."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

from examlops_dagster.core.declarations import Sink
from examlops_dagster.core.sinks import PARTITION_FIELD, format_of
from examlops_dagster.values import write_atomically

_IMPORT_HINTS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_OBJECT_STORES = frozenset({*_IMPORT_HINTS, "abfs", "abfss", "az", "oci", "oss", "r2"})
"""They have no folders; a bucket that a path names by mistake must not be made."""


def write_sink(sink: Sink, value: Any, folder: Path, partition: str) -> str:
    """Write a value to one sink, and give the path or URL that was written.

    Parameters
    ----------
    sink
        URL and format.
    value
        What the production function returned.
    folder
        Where relative paths start.
    partition
        Key of the partition, for ``{key}``; empty without partitions.

    Raises
    ------
    ValueError, TypeError
        When the value cannot be written in that format.
    OSError, ImportError
        When the place cannot be written.
    """
    payload = render(value, format_of(sink))
    url = sink.url.replace(PARTITION_FIELD, _one_part(partition))
    if "://" not in url or url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        path = path if path.is_absolute() else folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, payload, mode=0o666)  # a report is for others too
        return str(path)
    _write_remote(url, payload)
    return url


def render(value: Any, form: str) -> bytes:
    """Write a value in a format of sinks: json, parquet, csv, txt or pickle.

    Raises
    ------
    ValueError, TypeError
        When the value has no such form.
    """
    if form == "json":
        return json.dumps(value, ensure_ascii=False, indent=2, default=_plain).encode()
    if form == "txt":
        return str(value).encode()
    if form == "pickle":
        return pickle.dumps(value)
    if form == "csv":
        return _csv(value).encode()
    if not hasattr(value, "to_parquet"):
        raise TypeError(f"a {type(value).__name__} is not a table, as parquet wants it")
    buffer = io.BytesIO()
    value.to_parquet(buffer)
    return buffer.getvalue()


def _one_part(key: str) -> str:
    """Keep a key from leading to another folder: whoever adds a dynamic one may not be trusted."""
    return (
        key.replace("%", "%25").replace("/", "%2F") if key.strip(".") else key.replace(".", "%2E")
    )


def _csv(value: Any) -> str:
    if hasattr(value, "to_csv"):
        return str(value.to_csv(index=False))
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise TypeError(
            f"a {type(value).__name__} is no table: csv wants a DataFrame or a list of dicts"
        )
    text = io.StringIO()
    columns = dict.fromkeys(name for row in value for name in row)
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(value)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Let json take what has a plain form of its own (numpy numbers, dates, frames)."""
    for method in ("isoformat", "tolist", "to_dict"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _write_remote(url: str, payload: bytes) -> None:
    """Write in one transaction of the file system: the object is there whole or not at all."""
    import fsspec  # noqa: PLC0415 - 70 ms that only remote sinks should pay

    protocol = url.partition("://")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = _IMPORT_HINTS.get(protocol)
        hint = f" → pip install 'examlops-dagster[{extra}]'" if extra else ""
        raise ImportError(f"{error}{hint}") from error
    if protocol not in _OBJECT_STORES:
        filesystem.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
    with filesystem.transaction, filesystem.open(path, "wb") as file:
        file.write(payload)
