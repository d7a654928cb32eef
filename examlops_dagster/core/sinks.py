"""What the path of a sink says: its format, and the place of the partition's key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from examlops_dagster.core.declarations import Declaration, Sink

FORMATS = {
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".txt": "txt",
    ".pkl": "pickle",
    ".pickle": "pickle",
}
PARTITION_FIELD = "{key}"


def format_of(sink: Sink) -> str:
    """Give the format of a sink: as declared, else by its suffix.

    Raises
    ------
    ValueError
        When neither says it.
    """
    name = sink.serializer or FORMATS.get(PurePosixPath(sink.url).suffix.lower())
    if name is None or name not in FORMATS.values():
        raise ValueError(
            f"sink {sink.url!r} has no known format; the suffix (or serializer=) may be "
            f"{', '.join(FORMATS)}"
        )
    return name


def sink_problems(declaration: Declaration) -> Iterator[str]:
    """Say what is wrong with the sinks of a declaration."""
    urls = [sink.url for sink in declaration.sinks]
    for sink in declaration.sinks:
        try:
            format_of(sink)
        except ValueError as error:
            yield str(error)
        if declaration.partitions is not None and PARTITION_FIELD not in sink.url:
            yield f"sink {sink.url!r} would be written by every partition; name it with {{key}}"
        if urls.count(sink.url) > 1:
            yield f"sink {sink.url!r} stands there twice"


def check_name(number: int) -> str:
    """Give the name of the asset check that reports the sink of that number, from 1 on."""
    return f"sink_{number}"
