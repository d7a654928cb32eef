"""Writes the value of a node to all its sinks, and remembers how each write ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.failures import last_line
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.sinks import SinkWrite, SinkWrites
from examlops_dagster.sinks import write_sink

NO_VALUE = "the function returned nothing to write"


def deliver(
    declaration: Declaration,
    node: Node,
    data_version: str,
    value: Any,
    *,
    folder: Path,
    writes: SinkWrites,
) -> list[SinkWrite]:
    """Write a value to the sinks of an asset; a sink that fails does not stop the next one.

    Parameters
    ----------
    data_version
        Of the value.
    value
        None when the function returned nothing, which no sink can write.
    folder
        Where relative paths start.
    writes
        Remembers the ends.
    """
    ended = []
    for number, sink in enumerate(declaration.sinks, start=1):
        url, error = sink.url, ""
        try:
            if value is None:
                raise ValueError(NO_VALUE)  # noqa: TRY301 - one way out for all failures
            url = write_sink(sink, value, folder, node.partition)
        except Exception as failure:  # noqa: BLE001 - file systems of others raise anything
            error = last_line(failure)
        ended.append(SinkWrite(node, number, url, data_version, error, utc_now()))
    writes.record(ended)
    return ended
