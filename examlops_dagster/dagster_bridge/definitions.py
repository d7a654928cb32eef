"""From declarations to Dagster Definitions.

Annotations are real here, not strings: Dagster reads that of the op body.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    Any as DagsterAny,
)
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetOut,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    Definitions,
    ExecutorDefinition,
    Nothing,
    SourceAsset,
    multi_asset,
)

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream, remember
from examlops_dagster.dagster_bridge.body import build
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager
from examlops_dagster.dagster_bridge.partitions import partition_mapping, partitions_def
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.translator import Translator, slug
from examlops_dagster.project import ModuleLike, Project, open_project

OUTPUT = "result"


def build_definitions(
    modules: Sequence[ModuleLike] | ModuleLike = (),
    *,
    into: Definitions | None = None,
    translator: type[Translator] = Translator,
    executor: ExecutorDefinition | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Definitions:
    """Turn the declarations of modules, and those made from the command line, into Definitions.

    Parameters
    ----------
    modules
        Modules or their names; the configured ones by default.
    into
        Your own Definitions; the result is the two merged, and a key that yours has is left out
        of ours.
    translator
        How declarations look in Dagster.
    executor
        None brings none.
    resources
        More resources; ``examlops_io`` replaces our I/O manager.

    Raises
    ------
    DefinitionError
        With every problem of every declaration.
    """
    if isinstance(modules, str) or not isinstance(modules, Sequence):
        modules = [modules]
    project = open_project(modules)
    for declaration in project.in_code:
        remember(declaration)  # so that `exa -m` finds them by the module that holds the result
    location = Location(project.graph, project.code_versions, os.environ)
    return definitions_of(
        project, location, into=into, translator=translator, executor=executor, resources=resources
    )


def definitions_of(
    project: Project,
    location: Location,
    *,
    into: Definitions | None = None,
    translator: type[Translator] = Translator,
    executor: ExecutorDefinition | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Definitions:
    """As `build_definitions`, over a project that is already open."""
    translate = translator(project.graph, project.code_versions)
    theirs = set() if into is None else keys_of(into)
    assets: list[AssetsDefinition | AssetSpec] = []
    for declaration in project.graph.declarations.values():
        spec = translate.get_asset_spec(declaration)
        if declaration.function is not None:
            assets.append(_assets_definition(declaration, spec, translate, location))
        elif spec.key not in theirs and declaration.node_type is not NodeType.EXTERNAL:
            assets.append(spec)
    given = dict(resources or {})
    if into is None or IO_MANAGER_KEY not in (into.resources or {}):
        given.setdefault(IO_MANAGER_KEY, ExamlopsIOManager())
    ours = Definitions(assets=assets, resources=given, executor=executor)
    return ours if into is None else Definitions.merge(into, ours)


def keys_of(definitions: Definitions) -> set[AssetKey]:
    """Give the keys that Definitions define, without resolving them.

    The user's assets may read ours, so that their Definitions cannot be resolved without ours.
    """
    keys: set[AssetKey] = set()
    for thing in definitions.assets or ():
        if isinstance(thing, AssetsDefinition):
            keys |= thing.keys
        elif isinstance(thing, (AssetSpec, SourceAsset)):
            keys.add(thing.key)
    return keys


def _assets_definition(
    declaration: Declaration, spec: AssetSpec, translate: Translator, location: Location
) -> AssetsDefinition:
    name = declaration.name
    upstreams: dict[str, list[Upstream]] = {}
    for edge in declaration.upstreams:
        upstreams.setdefault(edge.name, []).append(edge)

    # Definitions name the function after the asset in tracebacks and in the UI's code view
    def body(context: AssetExecutionContext) -> Iterator[Any]:
        yield from build(context, location, name)

    decorate = multi_asset(
        name=slug(name),
        outs={
            OUTPUT: AssetOut.from_spec(spec, dagster_type=DagsterAny, io_manager_key=IO_MANAGER_KEY)
        },
        ins={
            f"up_{slug(upstream)}": AssetIn(
                key=translate.get_asset_key(upstream),
                dagster_type=Nothing,
                partition_mapping=partition_mapping(
                    edges, declaration, translate.graph.declarations[upstream]
                ),
            )
            for upstream, edges in upstreams.items()
        },
        partitions_def=partitions_def(declaration.partitions),
        backfill_policy=BackfillPolicy.single_run() if declaration.partitions else None,
        required_resource_keys={IO_MANAGER_KEY},
        pool=declaration.pool,
    )
    return decorate(body)
