"""From declarations to Dagster Definitions.

Annotations are real here, not strings: Dagster reads that of the op body.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from dagster import Any as DagsterAny
from dagster import (
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    Definitions,
    ExecutorDefinition,
    In,
    Nothing,
    Out,
    SourceAsset,
    op,
)
from dagster._utils.warnings import disable_dagster_warnings

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.declared import remember
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.sinks import check_name
from examlops_dagster.dagster_bridge.automation import (
    KeptFresh,
    choose_form,
    condition_sensor,
    plain_sensor,
)
from examlops_dagster.dagster_bridge.body import build
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager
from examlops_dagster.dagster_bridge.lineage import lineage_sensors
from examlops_dagster.dagster_bridge.partitions import partition_mapping, partitions_def
from examlops_dagster.dagster_bridge.places import Builds, mark
from examlops_dagster.dagster_bridge.probes import is_probed, probes
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.schedules import schedules
from examlops_dagster.dagster_bridge.translator import Translator, slug
from examlops_dagster.errors import UsageError
from examlops_dagster.loading import ModuleLike
from examlops_dagster.project import Project, open_project

OUTPUT = "result"
logger = logging.getLogger(__name__)
Automation: TypeAlias = Literal["conditions", "sensor", "off"]


def build_definitions(
    modules: Sequence[ModuleLike] | ModuleLike = (),
    *,
    into: Definitions | None = None,
    translator: type[Translator] = Translator,
    executor: ExecutorDefinition | None = None,
    automation: Automation | None = None,
    resources: Mapping[str, Any] | None = None,
    probe_sensors: bool = False,
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
    automation
        How assets are kept fresh: ``conditions`` (a history per asset in the UI, up to 500 assets
        and sinks), ``sensor`` (one plain sensor), ``off``; None takes conditions where Dagster
        allows them. With a bare ``Definitions.merge`` beside a sensor of conditions of your own,
        say ``sensor``.
    resources
        More resources; ``examlops_io`` replaces our I/O manager.
    probe_sensors
        Call sensors that have a Schedule inside the ticks of Dagster sensors (``probe_NAME``),
        without a run: for frequent and light checks.

    Raises
    ------
    DefinitionError
        With every problem of every declaration.
    UsageError
        If sensors are to be probed, and another I/O manager than ours keeps values.
    """
    if isinstance(modules, str) or not isinstance(modules, Sequence):
        modules = [modules]
    project = open_project(modules)
    if not os.environ.get("DAGSTER_HOME"):
        logger.warning(
            "DAGSTER_HOME is not set: Dagster's commands would use a temporary home and delete it "
            "→ run `exa init` in %s, and start them there (they read its .env)",
            project.home.folder,
        )
    for declaration in project.in_code:
        remember(declaration)  # so that `exa -m` finds them by the module that holds the result
    location = Location(project.graph, project.code_versions, os.environ, project.code_is_older)
    translate = translator(project.graph, project.code_versions)
    declared = project.graph.declarations.values()
    if probe_sensors:
        location.probed = frozenset(d.name for d in declared if is_probed(d))
    buildable = sum(1 + len(d.sinks) for d in declared if d.function is not None)
    form = choose_form(automation, buildable, into)
    ours = definitions_of(
        project,
        location,
        into=into,
        translate=translate,
        executor=executor,
        resources=resources,
        conditions=form == "conditions",
    )
    ours = Definitions.merge(ours, _automation(project, location, translate, form))
    lineage = lineage_sensors(project.home, location)
    if lineage:
        ours = Definitions.merge(ours, Definitions(sensors=lineage))
    if location.probed:
        manager = _our_manager(resources, into)
        ours = Definitions.merge(
            ours, Definitions(sensors=list(probes(location, translate, manager)))
        )
    project.close()
    return ours if into is None else Definitions.merge(into, ours)


def definitions_of(
    project: Project,
    location: Location,
    *,
    into: Definitions | None = None,
    translate: Translator | None = None,
    executor: ExecutorDefinition | None = None,
    resources: Mapping[str, Any] | None = None,
    conditions: bool = False,
) -> Definitions:
    """Give the assets of an open project, without what keeps them fresh.

    Parameters
    ----------
    into
        The user's Definitions, whose keys are left out; they are not merged here.
    conditions
        Whether each asset gets the automation condition of its freshness.
    """
    translate = translate or Translator(project.graph, project.code_versions)
    theirs = set() if into is None else keys_of(into)
    kept_fresh: dict[str, KeptFresh] = {}
    assets: list[AssetsDefinition | AssetSpec] = []
    for declaration in project.graph.declarations.values():
        spec = translate.get_asset_spec(declaration)
        if declaration.function is not None:
            if conditions and _is_kept(declaration, location):
                label = str(declaration.freshness)
                condition = kept_fresh.get(label) or KeptFresh(location, declaration.freshness)
                kept_fresh[label] = condition
                spec = spec.replace_attributes(automation_condition=condition)
            assets.append(_assets_definition(declaration, spec, translate, location))
        elif spec.key not in theirs and declaration.node_type is not NodeType.EXTERNAL:
            assets.append(spec)
    given = dict(resources or {})
    if into is None or IO_MANAGER_KEY not in (into.resources or {}):
        given.setdefault(IO_MANAGER_KEY, ExamlopsIOManager())
    return Definitions(assets=assets, resources=given, executor=executor)


def _automation(
    project: Project, location: Location, translate: Translator, form: str
) -> Definitions:
    """Give the sensor and the schedules that keep the assets of a location fresh."""
    declared = project.graph.declarations.values()
    kept = [translate.get_asset_key(d.name) for d in declared if _is_kept(d, location)]
    if form == "off" or not kept:
        return Definitions()
    sensor = (
        condition_sensor(location, kept) if form == "conditions" else plain_sensor(location, kept)
    )
    return Definitions(
        sensors=[sensor], schedules=list(schedules(location, translate, project.home.zone))
    )


def _is_kept(declaration: Declaration, location: Location) -> bool:
    """Tell whether automation may request runs of a node."""
    return (
        declaration.function is not None
        and declaration.freshness is not Manual
        and declaration.name not in location.probed
    )


def _our_manager(
    resources: Mapping[str, Any] | None, into: Definitions | None
) -> ExamlopsIOManager:
    theirs = into.resources if into is not None else None
    manager = {**(theirs or {}), **(resources or {})}.get(IO_MANAGER_KEY, ExamlopsIOManager())
    if not isinstance(manager, ExamlopsIOManager):
        raise UsageError(
            "probe_sensors=True keeps what sensors return by our own I/O manager, and "
            f"{IO_MANAGER_KEY!r} is a {type(manager).__name__}"
        )
    return manager


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


def _sink_checks(declaration: Declaration, spec: AssetSpec) -> list[AssetCheckSpec]:
    """Give the checks that report the sinks, with the asset's partitions.

    Dagster calls partitions of checks a preview; without them the last key would hide the others.
    """
    partitions: dict[str, Any] = {}
    if declaration.partitions is not None:
        partitions["partitions_def"] = partitions_def(declaration.partitions)
    with disable_dagster_warnings():
        return [
            AssetCheckSpec(
                check_name(number),
                asset=spec.key,
                description=f"The value is written to {sink.url} after each build.",
                **partitions,
            )
            for number, sink in enumerate(declaration.sinks, start=1)
        ]


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

    mark(body, Builds(location, name))
    keys = {f"up_{slug(upstream)}": translate.get_asset_key(upstream) for upstream in upstreams}
    checks = {check.get_python_identifier(): check for check in _sink_checks(declaration, spec)}
    # as multi_asset does it, which takes half as long again for the same result
    node = op(
        name=slug(name),
        ins={given: In(Nothing) for given in keys},
        out={
            OUTPUT: Out(DagsterAny, io_manager_key=IO_MANAGER_KEY),
            **dict.fromkeys(checks, Out(DagsterAny)),
        },
        required_resource_keys={IO_MANAGER_KEY},
        pool=declaration.pool,
    )(body)
    deps = [
        AssetDep(
            translate.get_asset_key(upstream),
            partition_mapping=partition_mapping(
                edges, declaration, translate.graph.declarations[upstream]
            ),
        )
        for upstream, edges in upstreams.items()
    ]
    space = partitions_def(declaration.partitions)
    return AssetsDefinition(
        keys_by_input_name=keys,
        keys_by_output_name={OUTPUT: spec.key},
        node_def=node,
        specs=[spec.replace_attributes(deps=deps, partitions_def=space)],
        check_specs_by_output_name=checks,
        backfill_policy=BackfillPolicy.single_run() if space is not None else None,
    )
