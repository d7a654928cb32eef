"""What a build reads of its upstreams, and how the production function gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import Node, Read, Record
from examlops_dagster.errors import AssetBuildError


def inputs_as_read(nodes: Nodes, node: Node, records: Mapping[Node, Record]) -> dict[Node, Read]:
    """Give the version and data version of everything a build of ``node`` is about to read.

    Raises
    ------
    AssetBuildError
        If an upstream was never built: there is nothing to read.
    """
    read: dict[Node, Read] = {}
    optional = nodes.graph.declarations[node.asset].conditional
    for edge, keys in nodes.upstreams(node):
        for key in keys:
            upstream = Node(edge.name, key)
            record = records.get(upstream)
            if record is None and edge.name in optional:
                continue
            if record is None:
                raise AssetBuildError(
                    node.asset,
                    f"upstream {upstream} was never built → exa assets materialize {edge.name}",
                    partition=node.partition,
                )
            read[upstream] = Read(record.version, record.data_version)
    return read


def arguments(
    nodes: Nodes,
    node: Node,
    read: Mapping[Node, Read],
    values: Mapping[str, Any],
    moment: datetime,
) -> dict[str, Any]:
    """Give the keyword arguments of the production function.

    Parameters
    ----------
    read
        As `inputs_as_read` gives it.
    values
        Values of ``inputs``, by parameter.
    moment
        The tick or the time of the run (aware), from which ``ds`` is taken where the partition
        has no date.
    """
    declaration = nodes.graph.declarations[node.asset]
    parameters = declaration.parameters
    given: dict[str, Any] = {}
    for edge, keys in nodes.upstreams(node):
        if edge.parameter is not None:
            continue
        if edge.name in parameters.names or parameters.takes_any:
            if nodes.graph.declarations[edge.name].partitions is None:
                found = read.get(Node(edge.name))
                given[edge.name] = None if found is None else found.version
            else:
                found_keys = {key: read[n] for key in keys if (n := Node(edge.name, key)) in read}
                given[edge.name] = {key: each.version for key, each in found_keys.items()}
    if declaration.partitions is not None:
        given.update(declaration.partitions.split(node.partition))
    if "ds" in parameters.names:
        given["ds"] = date_of(declaration, node, moment)
    given.update(values)
    return given


def date_of(declaration: Declaration, node: Node, moment: datetime) -> str:
    """Give ``ds``: the date of the partition's window, else of ``moment`` (ISO)."""
    if declaration.partitions is not None:
        for start, _ in declaration.partitions.windows(node.partition):
            return start.date().isoformat()
    return moment.date().isoformat()


def values_by_parameter(nodes: Nodes, node: Node, load: Callable[[Node], Any]) -> dict[str, Any]:
    """Load the values of ``inputs``: one value, or a dict by key where several keys are read."""
    values: dict[str, Any] = {}
    declarations = nodes.graph.declarations
    for edge, keys in nodes.upstreams(node):
        if edge.parameter is None:
            continue
        loaded = {key: load(Node(edge.name, key)) for key in keys}
        single = declarations[edge.name].partitions is None or (
            len(keys) == 1
            and declarations[node.asset].partitions is not None
            and (edge.mapped is None or edge.mapped.kind == "same_key")
        )
        values[edge.parameter] = next(iter(loaded.values())) if single else loaded
    return values
