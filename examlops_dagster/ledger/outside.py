"""What others made, as the ledger records it: a version, and the upstreams of its time.

Who takes an event over may not know the declaration (``exa`` without the module): then what it was
built from stays open, and the first process that knows it fills it in from the builds before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from examlops_dagster.core.graph import Graph, key_path
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import Node, Read, Record
from examlops_dagster.ledger.heads import advance_head, allot_version
from examlops_dagster.ledger.rows import dump_reads
from examlops_dagster.store.engine import Connection

NO_UPSTREAMS: Mapping[Node, Read] = {}


def record_outside(
    connection: Connection,
    nodes: Nodes,
    node: Node,
    data_version: str,
    at: datetime,
    *,
    event_id: int,
    run_id: str,
) -> None:
    """Give what others made a version, inside a write transaction; once for each event.

    Parameters
    ----------
    nodes
        The declared nodes; what is not among them has its inputs left open.
    at
        When the event was made (aware UTC datetime).
    event_id, run_id
        Of Dagster; the id alone does not tell an event, SQLite gives it anew.
    """
    build_id = f"outside-{event_id}-{at.timestamp():.6f}"
    if connection.execute("SELECT 1 FROM builds WHERE build_id = :id", id=build_id):
        return
    version = allot_version(connection, node, data_version, at)
    reads = reads_before(connection, nodes, node, event_id)
    advance_head(
        connection, node, Record(version, data_version, None, reads, at, run_id=run_id), event_id
    )
    connection.execute(
        "INSERT INTO builds (build_id, asset, partition, state, fingerprint, code_version, "
        "built_from, orchestrator, run_id, provenance, version, data_version, event_id, error, "
        "started_at, ended_at) VALUES (:build_id, :asset, :partition, 'succeeded', '', '', "
        ":built_from, 'outside', :run_id, '{}', :version, :data_version, :event_id, '', :at, :at)",
        build_id=build_id,
        **node._asdict(),
        built_from=dump_reads(reads or NO_UPSTREAMS),
        run_id=run_id,
        version=version,
        data_version=data_version,
        event_id=event_id,
        at=at.timestamp(),
    )


def reads_before(
    connection: Connection, nodes: Nodes, node: Node, event_id: int
) -> Mapping[Node, Read] | None:
    """Give the versions of the upstreams that were current when an event was stored.

    Not those in ``heads``: a build of ours sets its head before its event is read.

    Returns
    -------
    Mapping or None
        None where the node is not declared here.
    """
    if node.asset not in nodes.graph.declarations:
        return None
    reads: dict[Node, Read] = {}
    for edge, keys in nodes.upstreams(node):
        for key in keys:
            rows = connection.execute(
                "SELECT version, data_version FROM builds WHERE asset = :asset "
                "AND partition = :partition AND event_id < :event_id "
                "ORDER BY event_id DESC LIMIT 1",
                asset=edge.name,
                partition=key,
                event_id=event_id,
            )
            if rows:
                reads[Node(edge.name, key)] = Read(*rows[0])
    return reads


def open_inputs(connection: Connection, nodes: Nodes) -> list[tuple[Node, int]]:
    """Give the nodes that are declared here and whose inputs were left open, with the event."""
    rows = connection.execute(
        "SELECT asset, partition, event_id FROM heads WHERE built_from IS NULL"
    )
    declared = nodes.graph.declarations
    return [(Node(r[0], r[1]), r[2] or 0) for r in rows if r[0] in declared]


def fill_inputs(connection: Connection, nodes: Nodes) -> None:
    """Fill in what records of others were built from, where it was left open."""
    for node, event_id in open_inputs(connection, nodes):
        reads = reads_before(connection, nodes, node, event_id)
        connection.execute(
            "UPDATE heads SET built_from = :reads WHERE asset = :asset AND partition = :partition "
            "AND built_from IS NULL",
            **node._asdict(),
            reads=dump_reads(reads or NO_UPSTREAMS),
        )


def odd_keys(graph: Graph) -> dict[str, str]:
    """Give the declared names whose key is written otherwise, by how it is written.

    An event for ``s3://b/x`` is recorded as ``s3/b/x`` by who does not know the dataset.
    """
    keys = {"/".join(key_path(d)): name for name, d in graph.declarations.items()}
    return {written: name for written, name in keys.items() if written != name}


def misnamed(connection: Connection, graph: Graph) -> dict[str, str]:
    """Give the recorded names that stand for a declared one."""
    odd = odd_keys(graph)
    if not odd:
        return {}
    recorded = {row[0] for row in connection.execute("SELECT DISTINCT asset FROM heads")}
    return {written: name for written, name in odd.items() if written in recorded}


def rename(connection: Connection, names: Mapping[str, str]) -> None:
    """Give rows the declared name, unless that has rows of its own."""
    for wrong, right in names.items():
        for table in ("heads", "builds", "versions"):
            connection.execute(
                f"UPDATE {table} SET asset = :to_name WHERE asset = :from_name "  # noqa: S608
                f"AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.asset = :to_name)",
                to_name=right,
                from_name=wrong,
            )
