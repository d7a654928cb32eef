"""Serializers: how a value becomes bytes that cross a process and are stored, and back."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from io import BytesIO
from typing import Any

from examlops_dagster.core.seams import Value

SUFFIXES = {"json": ".json", "pickle": ".pkl", "parquet": ".parquet"}
"""Suffix of a file in each format, by the format's name."""

_JSON_DEPTH = 200
"""Levels of nesting up to which JSON is chosen; its parser gives up near 1000, less the stack."""

_TABLE = b"examlops.table"
"""Key in the file's metadata that tells a pyarrow Table from a DataFrame."""


def encode(value: Any, serializer: str | None = None) -> Value:
    """Serialize a value.

    Parameters
    ----------
    value
        What a production function returned.
    serializer
        ``json`` takes what ``json.dumps`` takes: tuples come back as lists, keys as text.
        ``parquet`` takes a pandas DataFrame or a pyarrow Table. ``pickle`` takes nearly all.
        None picks what gives the value back exactly: json for plain dicts, lists, text, finite
        numbers, booleans and None; parquet for tables that survive it; pickle for the rest.

    Raises
    ------
    TypeError
        When the value cannot be serialized this way; the text says what can be done.
    ValueError
        When there is no such serializer.
    """
    if serializer is None:
        return _exact(value)
    if serializer not in _ENCODERS:
        raise ValueError(f"serializer {serializer!r} is not one of {', '.join(SUFFIXES)}")
    try:
        return Value(serializer, _ENCODERS[serializer](value))
    except Exception as error:
        raise TypeError(_cannot(value, serializer, error)) from error


def decode(value: Value) -> Any:
    """Give the value back that was serialized.

    Raises
    ------
    ValueError
        When the format is not one of ours.
    Exception
        Whatever the format's own reader raises for bytes that it cannot read, and ImportError
        when a class or library of the value is missing here.
    """
    if value.format not in _DECODERS:
        raise ValueError(f"format {value.format!r} is not one of {', '.join(SUFFIXES)}")
    return _DECODERS[value.format](value.payload)


def _exact(value: Any) -> Value:
    if is_plain(value):
        try:
            return Value("json", _to_json(value))
        except ValueError:  # lone surrogates, integers of thousands of digits
            pass
    elif _is_table(value):
        payload = _to_surviving_parquet(value)
        if payload is not None:
            return Value("parquet", payload)
    try:
        return Value("pickle", _to_pickle(value))
    except Exception as error:
        raise TypeError(_cannot(value, "pickle", error)) from error


def _cannot(value: Any, serializer: str, error: Exception) -> str:
    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the error is the user's class
        reason = type(error).__name__
    return (
        f"a {type(value).__name__} cannot be kept as {serializer} ({reason}); choose another "
        "serializer= (json, pickle, parquet), or store it in the function and return nothing or "
        "AssetOutput(data_version=...). timeout_seconds=None spares a value the way out of the "
        "worker process, but not being stored"
    )


def dumps(value: Any) -> bytes:
    """Pickle for another process of this user: by value what it could not import.

    Raises
    ------
    Exception
        Whatever the value's own pickling raises.
    """
    return pickle.dumps(value, protocol=5) if is_plain(value) else _to_pickle(value)


def is_plain(value: Any) -> bool:
    """Whether the value is of dicts, lists and scalars that JSON gives back exactly.

    A list or dict that is met twice is not: it would come back as two. So cycles end here too.
    """
    seen: set[int] = set()
    level = [value]
    for _ in range(_JSON_DEPTH):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                if any(type(key) is not str for key in item):
                    return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is float:
                if item - item != 0.0:  # infinite, or not a number
                    return False
            elif kind is not str and kind is not int and kind is not bool and item is not None:
                return False
            if kind is dict or kind is list:
                if id(item) in seen:
                    return False
                seen.add(id(item))
        if not below:
            return True
        level = below
    return False


def _to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _to_pickle(value: Any) -> bytes:
    import cloudpickle  # noqa: PLC0415 - 20 ms that JSON values need not wait for

    payload: bytes = cloudpickle.dumps(value, protocol=5)
    return payload


def _is_table(value: Any) -> bool:
    """Whether it is exactly a DataFrame or a Table; who has one has imported its library."""
    return any(
        module is not None and type(value) is getattr(module, name, None)
        for module, name in (
            (sys.modules.get("pandas"), "DataFrame"),
            (sys.modules.get("pyarrow"), "Table"),
        )
    )


def _to_parquet(value: Any) -> bytes:
    if not _is_table(value):
        raise TypeError("parquet holds a pandas DataFrame or a pyarrow Table")
    sink = BytesIO()
    if type(value).__name__ == "DataFrame":
        value.to_parquet(sink, engine="pyarrow")
        return sink.getvalue()
    import pyarrow.parquet  # noqa: PLC0415 - heavy and optional

    marked = value.replace_schema_metadata({**(value.schema.metadata or {}), _TABLE: b"1"})
    pyarrow.parquet.write_table(marked, sink)
    return sink.getvalue()


def _from_parquet(payload: bytes) -> Any:
    import pyarrow.parquet  # noqa: PLC0415 - heavy and optional

    table = pyarrow.parquet.read_table(pyarrow.BufferReader(payload))
    metadata = dict(table.schema.metadata or {})
    if metadata.pop(_TABLE, None) is not None:
        return table.replace_schema_metadata(metadata or None)
    import pandas as pd  # noqa: PLC0415 - heavy and optional

    return pd.read_parquet(BytesIO(payload), engine="pyarrow")


def _to_surviving_parquet(value: Any) -> bytes | None:
    """Give the bytes only if they read back as the very same table."""
    is_frame = type(value).__name__ == "DataFrame"
    if is_frame and not _is_simple(value):
        return None
    try:
        payload = _to_parquet(value)
        back = _from_parquet(payload)
        same = _is_same(value, back) if is_frame else back.equals(value, check_metadata=True)
    except Exception:  # noqa: BLE001 - whatever the libraries raise, it does not survive
        return None
    return payload if same else None


def _is_simple(frame: Any) -> bool:
    index = frame.index
    return (
        type(index).__name__ == "RangeIndex"
        and (index.start, index.step, index.name) == (0, 1, None)
        and all(type(name) is str for name in frame.columns)
        and is_plain(frame.attrs)
    )


def _is_same(frame: Any, back: Any) -> bool:
    return (
        frame.equals(back)
        and list(frame.dtypes) == list(back.dtypes)
        and frame.columns.dtype == back.columns.dtype
        and frame.columns.names == back.columns.names
        and frame.attrs == back.attrs
        and all(
            type(left) is type(right)
            for name in frame.columns[[str(dtype) == "object" for dtype in frame.dtypes]]
            for left, right in zip(frame[name], back[name], strict=True)
        )
    )


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "json": _to_json,
    "pickle": _to_pickle,
    "parquet": _to_parquet,
}
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "pickle": pickle.loads,
    "parquet": _from_parquet,
}
