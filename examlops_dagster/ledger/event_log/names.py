"""The names of Dagster's keys, over one instance and one platform.db."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dagster import AssetKey, DagsterInstance

from examlops_dagster.clock import utc_now
from examlops_dagster.core.graph import Graph, key_path
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import DynamicSpace
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.store.engine import Database


class Names:
    """Knows which key stands for which declared name.

    Parameters
    ----------
    instance
        Dagster's instance; its storage may be any.
    database
        platform.db of the same home.
    graph
        Gives the declared names of keys, and what a record made outside was built from.
    """

    def __init__(self, instance: DagsterInstance, database: Database, graph: Graph) -> None:
        self.instance = instance
        self._database = database
        self._graph = graph
        self._names = {key_path(d): name for name, d in graph.declarations.items()}
        self._dynamic = sorted(
            {
                space.name
                for declaration in graph.declarations.values()
                if declaration.partitions is not None
                for _, space in declaration.partitions.dimensions
                if isinstance(space, DynamicSpace)
            }
        )
        self._home = Path(instance.root_directory)
        self._nodes = Nodes(graph, Snapshot(utc_now()))

    def key(self, name: str) -> AssetKey:
        """Give the Dagster key of a declared name."""
        return AssetKey(list(key_path(self._graph.declarations[name])))

    def name(self, key: AssetKey) -> str:
        """Give the declared name of a key; for a key that nobody declares, its parts."""
        return self._names.get(tuple(key.path), "/".join(key.path))

    def dynamic_keys(self) -> dict[str, Sequence[str]]:
        """Give the keys of every dynamic partition space that is declared."""
        return {name: self.instance.get_dynamic_partitions(name) for name in self._dynamic}
