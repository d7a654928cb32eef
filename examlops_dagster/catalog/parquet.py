"""Schema and row count of Parquet files, from their footers, where pyarrow is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class Table:
    """What the footer of a Parquet file says.

    Attributes
    ----------
    rows
        Number of rows.
    columns
        Types by name, in order.
    error
        Why it could not be read; empty otherwise.
    """

    rows: int
    columns: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


def is_parquet(name: str) -> bool:
    """Tell whether a file is called one."""
    return name.lower().endswith(SUFFIXES)


def read_table(path: Path, file: IO[bytes] | Any) -> Table | None:
    """Read the footer of an open file; None without pyarrow.

    Parameters
    ----------
    path
        For messages.
    file
        The file, open for reading; where it stands afterwards is not said.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - 0.1 s that only Parquet should pay
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        return None
    try:
        with os.fdopen(os.dup(file.fileno()), "rb") as again, pq.ParquetFile(again) as found:
            schema = found.schema_arrow
            columns = {name: str(schema.field(n).type) for n, name in enumerate(schema.names)}
            return Table(int(found.metadata.num_rows), columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        return Table(0, error=f"{path} is no Parquet that can be read: {_first_line(error)}")


def merged_columns(tables: Iterable[Table]) -> dict[str, str]:
    """Join the columns of several files; one of several types has them all."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for name, kind in table.columns.items():
            kinds = found.setdefault(name, [])
            if kind not in kinds:
                kinds.append(kind)
    return {name: " | ".join(sorted(kinds)) for name, kinds in found.items()}


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
