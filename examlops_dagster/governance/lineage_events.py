"""OpenLineage's events of an attempt: START, then one of COMPLETE, FAIL or ABORT.

Made when they are delivered or printed, always the same for the same attempt. The end repeats what
the start said, since a consumer may have missed that (OpenLineage issue 1726).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    base_subset_dataset,
    column_lineage_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    documentation_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    ownership_dataset,
    ownership_job,
    parent_run,
    processing_engine_run,
    schema_dataset,
    set_producer,
    symlinks_dataset,
    tags_job,
)

from examlops_dagster.core.records import BuildState, Node, Read
from examlops_dagster.governance.lineage_facets import (
    PRODUCER,
    ExamlopsBuildRunFacet,
    ExamlopsHpcJobRunFacet,
    ExamlopsVersionsDatasetFacet,
)
from examlops_dagster.governance.lineage_names import Named, Names, physical
from examlops_dagster.governance.lineage_rows import Facts
from examlops_dagster.version import __version__

INTEGRATION = "DAGSTER"
MOST_PARTITIONS = 1_000
RUN_IDS = uuid.UUID("5b5f6d2c-6f0f-5b0e-9d55-0f5e3c1c7a3d")
"""Of ours alone: with it the token of an attempt gives the same run id on every machine."""

EVENT_OF = {
    BuildState.SUCCEEDED: RunState.COMPLETE,
    BuildState.UNCHANGED: RunState.COMPLETE,
    BuildState.FAILED: RunState.FAIL,
    BuildState.TIMED_OUT: RunState.FAIL,
    BuildState.DIED: RunState.FAIL,
    BuildState.CANCELLED: RunState.ABORT,
}


def run_id_of(facts: Facts, *, recovered: bool = False) -> str:
    """Give the run id of an attempt; it is the same whenever, and wherever, it is asked for.

    Parameters
    ----------
    recovered
        Of the second run of an attempt that was told as failed, and whose event was found later.
    """
    again = "/recovered" if recovered else ""
    return str(uuid.uuid5(RUN_IDS, f"{facts.run_id}/{facts.build_id}{again}"))


def start_of(facts: Facts, names: Names, *, recovered: bool = False) -> RunEvent:
    """Give the START of an attempt."""
    return _event(facts, names, RunState.START, recovered=recovered)


def end_of(facts: Facts, names: Names, *, recovered: bool = False) -> RunEvent:
    """Give how an attempt ended; it must have."""
    return _event(facts, names, EVENT_OF[facts.state], recovered=recovered)


def _event(facts: Facts, names: Names, state: RunState, *, recovered: bool) -> RunEvent:
    set_producer(PRODUCER)
    moment = facts.started_at
    if state is not RunState.START:
        moment = facts.ended_at or facts.started_at
    return RunEvent(
        eventType=state,
        eventTime=moment.isoformat(timespec="microseconds"),
        run=Run(run_id_of(facts, recovered=recovered), dict(_run_facets(facts, names, state))),
        job=Job(names.namespace, names.job(facts.node.asset), dict(_job_facets(facts))),
        inputs=list(_inputs(facts, names)),
        outputs=list(_outputs(facts, names, state)),
        producer=PRODUCER,
    )


def _run_facets(facts: Facts, names: Names, state: RunState) -> Iterator[tuple[str, RunFacet]]:
    yield (
        "processing_engine",
        processing_engine_run.ProcessingEngineRunFacet(
            _version_of("dagster"), name="dagster", openlineageAdapterVersion=__version__
        ),
    )
    if facts.run_id:
        job = facts.run.get("job") or "dagster"
        root = parent_run.Root(
            parent_run.RootRun(_uuid(facts.run.get("root") or facts.run_id)),
            parent_run.RootJob(names.namespace, job),
        )
        yield (
            "parent",
            parent_run.ParentRunFacet(
                parent_run.Run(_uuid(facts.run_id)), parent_run.Job(names.namespace, job), root
            ),
        )
    nominal = facts.begun.get("nominal")
    if nominal:
        yield "nominalTime", nominal_time_run.NominalTimeRunFacet(*nominal)
    ended = state is not RunState.START
    yield "examlops_build", _build_facet(facts, ended=ended)
    scheduler = facts.provenance.get("scheduler") or facts.job.get("scheduler")
    job_id = facts.provenance.get("hpc_job_id") or facts.job.get("job_id")
    if scheduler and job_id:
        yield (
            "examlops_hpcJob",
            ExamlopsHpcJobRunFacet(
                scheduler,
                str(job_id),
                facts.provenance.get("cluster") or facts.job.get("cluster") or None,
                facts.provenance.get("node") or facts.job.get("hosts") or None,
                facts.job.get("state") or None,
            ),
        )
    if ended and EVENT_OF[facts.state] is not RunState.COMPLETE:
        yield (
            "errorMessage",
            error_message_run.ErrorMessageRunFacet(
                facts.error or facts.state.value, "PYTHON", facts.ended.get("trace")
            ),
        )


@cache
def _version_of(distribution: str) -> str:
    return version(distribution)


def _build_facet(facts: Facts, *, ended: bool) -> ExamlopsBuildRunFacet:
    return ExamlopsBuildRunFacet(
        facts.build_id,
        facts.state.value if ended else BuildState.RUNNING.value,
        facts.provenance.get("orchestrator") or facts.orchestrator or None,
        facts.provenance.get("fallback"),
        facts.provenance.get("prefect_flow_run_id"),
        facts.code_version or None,
        facts.begun.get("attempt"),
        facts.run.get("actor"),
        facts.run.get("backfill"),
        facts.run.get("schedule"),
        facts.run.get("sensor"),
        facts.node.partition or None,
    )


def _job_facets(facts: Facts) -> Iterator[tuple[str, JobFacet]]:
    noted = facts.of_asset(facts.node.asset)
    word = str(noted.get("type", "asset")).upper()
    yield "jobType", job_type_job.JobTypeJobFacet("BATCH", INTEGRATION, word)
    if noted.get("description"):
        yield "documentation", documentation_job.DocumentationJobFacet(noted["description"])
    if noted.get("owners"):
        owners = [ownership_job.Owner(_owner(name)) for name in noted["owners"]]
        yield "ownership", ownership_job.OwnershipJobFacet(owners)
    if noted.get("tags"):
        tags = [
            tags_job.TagsJobFacetFields(key, value or "true", INTEGRATION)
            for key, value in noted["tags"].items()
        ]
        yield "tags", tags_job.TagsJobFacet(tags)


def _inputs(facts: Facts, names: Names) -> Iterator[InputDataset]:
    """Give each upstream once, with the version of every partition of it that was read."""
    by_asset: dict[str, dict[Node, Read]] = {}
    for node, read in facts.built_from.items():
        by_asset.setdefault(node.asset, {})[node] = read
    for asset, reads in by_asset.items():
        noted = facts.of_asset(asset)
        named = names.dataset(asset, is_alias=noted.get("type") == "alias")
        facets = dict(_versions(reads))
        links = _symlinks(named, noted)
        if links is not None:
            facets["symlinks"] = links
        more: dict[str, InputDatasetFacet] = {}
        partitions = _partitions(list(reads), noted)
        if partitions is not None:
            more["subset"] = base_subset_dataset.InputSubsetInputDatasetFacet(partitions)
        yield InputDataset(named.namespace, named.name, more, facets=facets)


def _outputs(facts: Facts, names: Names, state: RunState) -> Iterator[OutputDataset]:
    """Give what was made: the asset, and on success the datasets that were written beside it."""
    if facts.is_emission:
        yield from _written(facts, names)
        return
    noted = facts.of_asset(facts.node.asset)
    named = names.dataset(facts.node.asset)
    made = state is RunState.COMPLETE
    facets = dict(_dataset_facets(facts, names, named, made=made))
    more: dict[str, OutputDatasetFacet] = {}
    partitions = _partitions([facts.node], noted)
    if partitions is not None:
        more["subset"] = base_subset_dataset.OutputSubsetOutputDatasetFacet(partitions)
    rows, size = facts.ended.get("rows"), facts.ended.get("bytes")
    if made and (rows is not None or size is not None):
        more["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows, size)
        )
    yield OutputDataset(named.namespace, named.name, more, facets=facets)
    if made:
        yield from _written(facts, names)


def _written(facts: Facts, names: Names) -> Iterator[OutputDataset]:
    """Give the datasets that were written, each once with its last version, and the aliases."""
    by_name: dict[str, dict[Node, Read]] = {}
    aliases: dict[str, Read] = {}
    for event in facts.written:
        by_name.setdefault(event.node.asset, {})[event.node] = event.read
        aliases.update(dict.fromkeys(event.aliases, event.read))
    for name, reads in by_name.items():
        named = names.dataset(name)
        more: dict[str, OutputDatasetFacet] = {}
        partitions = _partitions(list(reads), facts.of_asset(name))
        if partitions is not None:
            more["subset"] = base_subset_dataset.OutputSubsetOutputDatasetFacet(partitions)
        facets = dict(_versions(reads))
        yield OutputDataset(named.namespace, named.name, more, facets=facets)
    for alias, read in aliases.items():
        named = names.dataset(alias, is_alias=True)
        identity = dataset_version_dataset.DatasetVersionDatasetFacet(read.data_version)
        yield OutputDataset(named.namespace, named.name, facets={"version": identity})


def _dataset_facets(
    facts: Facts, names: Names, named: Named, *, made: bool
) -> Iterator[tuple[str, DatasetFacet]]:
    noted = facts.of_asset(facts.node.asset)
    if noted.get("kind"):
        kind = str(noted["kind"]).upper()
        yield "datasetType", dataset_type_dataset.DatasetTypeDatasetFacet(kind)
    if noted.get("description"):
        described = noted["description"]
        yield "documentation", documentation_dataset.DocumentationDatasetFacet(described)
    if noted.get("owners"):
        owners = [ownership_dataset.Owner(_owner(name)) for name in noted["owners"]]
        yield "ownership", ownership_dataset.OwnershipDatasetFacet(owners)
    links = _symlinks(named, noted, facts.ended if made else {})
    if links is not None:
        yield "symlinks", links
    if not made or facts.version is None or facts.data_version is None:
        return
    yield from _versions({facts.node: Read(facts.version, facts.data_version)})
    columns = facts.ended.get("columns")
    if columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in columns]
        yield "schema", schema_dataset.SchemaDatasetFacet(fields)
    columns_from = facts.ended.get("column_lineage")
    if columns_from:
        yield "columnLineage", _column_lineage(facts, names, columns_from)


def _column_lineage(
    facts: Facts, names: Names, columns: Mapping[str, Any]
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    declared = {tuple(noted.get("key", ())): name for name, noted in facts.assets.items()}
    fields: dict[str, column_lineage_dataset.Fields] = {}
    for column, deps in columns.items():
        inputs = []
        for key, name in deps:
            asset = declared.get(tuple(key), "/".join(key))
            named = names.dataset(asset)
            inputs.append(column_lineage_dataset.InputField(named.namespace, named.name, name))
        fields[column] = column_lineage_dataset.Fields(inputs)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields)


def _versions(reads: Mapping[Node, Read]) -> Iterator[tuple[str, DatasetFacet]]:
    """Give the content that was read or made; of several partitions one name for all of them."""
    ordered = sorted(reads.items())
    if len(ordered) == 1:
        identity = ordered[0][1].data_version
    else:
        text = "\n".join(f"{node.partition}\t{read.data_version}" for node, read in ordered)
        identity = str(uuid.uuid5(RUN_IDS, text))
    yield "version", dataset_version_dataset.DatasetVersionDatasetFacet(identity)
    versions: list[dict[str, Any]] = [
        {
            **({"partition": node.partition} if node.partition else {}),
            "version": read.version,
            "dataVersion": read.data_version,
        }
        for node, read in ordered[:MOST_PARTITIONS]
    ]
    yield "examlops_versions", ExamlopsVersionsDatasetFacet(versions, len(ordered))


def _partitions(
    nodes: list[Node], noted: Mapping[str, Any]
) -> base_subset_dataset.PartitionSubsetCondition | None:
    """Give the partitions of a dataset that are meant; None for all of it."""
    keys = [node.partition for node in nodes if node.partition]
    if not keys:
        return None
    dimensions = noted.get("dimensions") or ["partition"]
    partitions = []
    for key in sorted(keys)[:MOST_PARTITIONS]:
        parts = key.split("|", 1) if len(dimensions) > 1 else [key]
        by_name = dict(zip(dimensions, parts, strict=False))
        partitions.append(base_subset_dataset.Partition(by_name, key))
    return base_subset_dataset.PartitionSubsetCondition(partitions)


def _symlinks(
    named: Named, noted: Mapping[str, Any], said: Mapping[str, Any] | None = None
) -> symlinks_dataset.SymlinksDatasetFacet | None:
    """Give the physical names of an asset, by which other producers know it."""
    found: dict[tuple[Named, str], None] = {}
    for facts in (noted, said or {}):
        for uri in (*facts.get("uris", ()), *facts.get("sinks", ())):
            place = physical(uri)
            word = "TABLE" if place.namespace.startswith(_TABLES) else "LOCATION"
            found[place, word] = None
        if "table" in facts:
            found[Named(*facts["table"]), "TABLE"] = None
    identifiers = [
        symlinks_dataset.Identifier(place.namespace, place.name, word)
        for place, word in found
        if place != named
    ]
    return symlinks_dataset.SymlinksDatasetFacet(identifiers) if identifiers else None


_TABLES = ("postgres://", "mysql://", "trino://", "snowflake://", "bigquery", "redshift://")


def _owner(name: str) -> str:
    return name if ":" in name else f"user:{name}"


def _uuid(text: str) -> str:
    """Give the id of a Dagster run, which is a UUID unless somebody made it otherwise."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(RUN_IDS, text))
