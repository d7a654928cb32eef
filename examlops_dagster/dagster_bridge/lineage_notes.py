"""What a build notes for its lineage: plain facts, cheap to gather while it is built.

OpenLineage's events are made of them when they are delivered or printed; importing its client
takes as long as importing dagster.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dagster import TableColumnLineage, TableSchema

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.graph import Graph, key_path
from examlops_dagster.core.records import Attempt, Node
from examlops_dagster.core.seams import BuildResult, Value
from examlops_dagster.core.sinks import PARTITION_FIELD
from examlops_dagster.ledger.notes import Note, note
from examlops_dagster.ledger.tags import ACTOR_TAG

MOST_TEXT = 8_000
MOST_COLUMNS = 1_000
URI_KEYS = ("dagster/uri", "uri", "url")
TABLE_KEY = "dagster/table_name"
STORAGE_KEY = "dagster/storage_kind"
ROW_COUNT_KEYS = ("dagster/row_count", "row_count", "dagster/partition_row_count")
SCHEMA_KEYS = ("dagster/column_schema", "column_schema", "schema")
COLUMN_LINEAGE_KEY = "dagster/column_lineage"

RUN_TAGS = {
    ACTOR_TAG: "actor",
    "dagster/backfill": "backfill",
    "dagster/schedule_name": "schedule",
    "dagster/sensor_name": "sensor",
}

logger = logging.getLogger(__name__)


def begin_notes(
    graph: Graph,
    node: Node,
    run: Any,
    attempt: Attempt,
    *,
    folder: Path,
    moment: datetime,
    number: int = 1,
) -> list[Note]:
    """Note what is known when an attempt begins.

    Parameters
    ----------
    run
        The run that it belongs to.
    folder
        Of the project; sinks with a relative path start there.
    moment
        The tick that the build answers to (aware datetime).
    number
        Of the attempt, counted from 1 in its step.
    """
    try:
        return list(_begin_notes(graph, node, run, attempt, folder, moment, number))
    except Exception:
        logger.exception("some lineage facts of %s are lost", node)
        return []


def end_notes(attempt: Attempt, result: BuildResult) -> tuple[Note, ...]:
    """Note what is known of a result: what was written, its columns and its rows."""
    facts: dict[str, Any] = {}
    try:
        facts = {**_shape(result.value), **_said(result.metadata)}
    except Exception:
        logger.exception("some lineage facts of %s are lost", attempt.node)
    facts = {name: fact for name, fact in facts.items() if fact not in (None, [], {})}
    return (note("ended", attempt.build_id, facts),) if facts else ()


def failure_notes(attempt: Attempt, error: BaseException) -> tuple[Note, ...]:
    """Note the traceback of an attempt that failed."""
    details = getattr(error, "details", "") or "".join(traceback.format_exception(error))
    facts = {"trace": details[-MOST_TEXT:].encode("utf-8", "backslashreplace").decode()}
    return (note("ended", attempt.build_id, facts),)


def _begin_notes(
    graph: Graph,
    node: Node,
    run: Any,
    attempt: Attempt,
    folder: Path,
    moment: datetime,
    number: int,
) -> Iterator[Note]:
    declaration = graph.declarations[node.asset]
    yield _asset_note(declaration, folder)
    for edge in declaration.upstreams:
        upstream = graph.declarations[edge.name]
        if upstream.function is None:  # any other notes itself when it is built
            yield _asset_note(upstream, folder)
    tags = {name: run.tags[tag] for tag, name in RUN_TAGS.items() if tag in run.tags}
    if run.run_id:  # a sensor may be called in a tick, without one
        facts = {"job": run.job_name, "root": run.root_run_id, "parent": run.parent_run_id}
        yield note("run", run.run_id, {**facts, **tags})
    about = {**_nominal(declaration, node, moment), **({"attempt": number} if number > 1 else {})}
    if about:
        yield note("begun", attempt.build_id, about)


def _asset_note(declaration: Declaration, folder: Path) -> Note:
    described = declaration.description or inspect.getdoc(declaration.function) or ""
    if declaration.function is None:
        described = declaration.description or ""
    space = declaration.partitions
    facts: dict[str, Any] = {
        "type": declaration.node_type.value,
        "kind": declaration.kind,
        "key": list(key_path(declaration)),
        "description": described[:MOST_TEXT],
        "owners": list(declaration.owners),
        "tags": dict(declaration.tags),
        "sinks": [_location(sink.url, folder) for sink in declaration.sinks],
        "dimensions": [name for name, _ in space.dimensions] if space is not None else [],
        **_places(declaration.metadata),
    }
    return note("asset", declaration.name, {k: v for k, v in facts.items() if v})


def _nominal(declaration: Declaration, node: Node, moment: datetime) -> dict[str, Any]:
    """Give the time that a build is about: its window, else its tick."""
    if declaration.partitions is not None and node.partition:
        for start, end in declaration.partitions.windows(node.partition):
            return {"nominal": [start.isoformat(), end.isoformat()]}
        return {}
    if isinstance(declaration.freshness, Schedule):
        return {"nominal": [moment.isoformat()]}
    return {}


def _location(url: str, folder: Path) -> str:
    """Give the place of a sink; of one that is written for each key, the folder of all of them."""
    place = url.partition(PARTITION_FIELD)[0] if PARTITION_FIELD in url else url
    if PARTITION_FIELD in url:
        place = place.rpartition("/")[0]
    return place if "://" in place else str((folder / place).resolve())


def _shape(value: Value | None) -> dict[str, Any]:
    """Give the size of a kept value, and of a table its columns and rows."""
    if value is None:
        return {}
    facts: dict[str, Any] = {"bytes": len(value.payload)}
    if value.format == "parquet":
        import pyarrow as pa  # noqa: PLC0415 - only where a table was made
        import pyarrow.parquet  # noqa: PLC0415

        table = pyarrow.parquet.ParquetFile(pa.BufferReader(value.payload))
        facts["rows"] = table.metadata.num_rows
        facts["columns"] = [[f.name, str(f.type)] for f in table.schema_arrow][:MOST_COLUMNS]
    return facts


def _said(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the function said of its result, in the keys that Dagster's integrations use."""
    plain = {name: getattr(value, "value", value) for name, value in metadata.items()}
    facts = _places(plain)
    for key in ROW_COUNT_KEYS:
        if isinstance(plain.get(key), int):
            facts.setdefault("rows", plain[key])
    for key in SCHEMA_KEYS:
        schema = getattr(plain.get(key), "schema", plain.get(key))
        if isinstance(schema, TableSchema) and "columns" not in facts:
            columns = schema.columns[:MOST_COLUMNS]
            facts["columns"] = [[c.name, c.type, c.description] for c in columns]
    lineage = plain.get(COLUMN_LINEAGE_KEY)
    lineage = getattr(lineage, "column_lineage", lineage)
    if isinstance(lineage, TableColumnLineage):
        facts["column_lineage"] = {
            column: [[list(dep.asset_key.path), dep.column_name] for dep in deps]
            for column, deps in list(lineage.deps_by_column.items())[:MOST_COLUMNS]
        }
    return facts


def _places(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Give the physical names that metadata state."""
    plain = {name: getattr(value, "value", value) for name, value in metadata.items()}
    facts: dict[str, Any] = {}
    uris = [plain[key] for key in URI_KEYS if isinstance(plain.get(key), str)]
    if uris:
        facts["uris"] = list(dict.fromkeys(uris))
    if isinstance(plain.get(TABLE_KEY), str):
        facts["table"] = [str(plain.get(STORAGE_KEY) or "table"), plain[TABLE_KEY]]
    return facts
