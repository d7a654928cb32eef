"""How a declaration looks in Dagster; one method to override."""

from __future__ import annotations

import hashlib
import re

from dagster import AssetDep, AssetKey, AssetSpec
from dagster._core.definitions.utils import DISALLOWED_NAMES

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.graph import Graph, key_path
from examlops_dagster.dagster_bridge.partitions import partitions_def

NAME = "examlops/name"
_NOT_A_SLUG = re.compile(r"[^A-Za-z0-9_]")


class Translator:
    """Gives the AssetSpec of each declaration.

    Subclass it and override `get_asset_spec` to change groups, tags or metadata; keys must stay
    as they are.

    Parameters
    ----------
    graph
        The declared names and edges.
    code_versions
        Of the loaded production functions, by name.
    """

    def __init__(self, graph: Graph, code_versions: dict[str, str]) -> None:
        self.graph = graph
        self.code_versions = code_versions

    def get_asset_spec(self, declaration: Declaration) -> AssetSpec:
        """Give what Dagster shows of a declared node."""
        return AssetSpec(
            self.get_asset_key(declaration.name),
            deps=None
            if declaration.function is not None
            else [
                AssetDep(self.get_asset_key(name))
                for name in dict.fromkeys(edge.name for edge in declaration.upstreams)
            ],
            description=declaration.description or _description(declaration),
            metadata={NAME: declaration.name, **declaration.metadata},
            group_name=declaration.group,
            code_version=self.code_versions.get(declaration.name),
            owners=list(declaration.owners),
            tags=dict(declaration.tags),
            kinds={declaration.kind},
            partitions_def=partitions_def(declaration.partitions)
            if declaration.function is None
            else None,
        )

    def get_asset_key(self, name: str) -> AssetKey:
        """Give the key of a declared name."""
        return AssetKey(list(key_path(self.graph.declarations[name])))


def slug(name: str) -> str:
    """Give a name that Dagster takes for an op, an input or an output; different for each name."""
    plain = _NOT_A_SLUG.sub("_", name)
    if plain == name and name not in DISALLOWED_NAMES and "__h" not in name:
        return name
    return f"{plain}__h{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _description(declaration: Declaration) -> str | None:
    text = (getattr(declaration.function, "__doc__", None) or "").strip()
    if declaration.node_type is NodeType.SENSOR:
        return f"A sensor: it looks at the outside world each time it runs. {text}".strip()
    if declaration.node_type is NodeType.TASK:
        return f"A task: it has a side effect each time it runs. {text}".strip()
    return text or None
