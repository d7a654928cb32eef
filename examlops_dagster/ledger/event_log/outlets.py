"""Events of datasets and aliases, as Dagster's event log has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagster import AssetKey, AssetMaterialization, DagsterInstance, MetadataValue

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.graph import key_path
from examlops_dagster.ledger.emissions import REPORTED
from examlops_dagster.ledger.outlets import Batch, Outlets
from examlops_dagster.ledger.tags import DATA_VERSION_TAG, OUTLET_TAG, VERSION_TAG

SHOWN_DATASETS = 100
"""URIs in the metadata of an alias's materialization."""


def materializations(batch: Batch) -> Iterator[AssetMaterialization]:
    """Give Dagster's events of what a build emitted: each of its own key, and of each alias one."""
    by_alias: dict[str, list[str]] = {}
    for event in batch.events:
        yield AssetMaterialization(
            _key(event.uri, NodeType.DATASET),
            partition=event.partition or None,
            description=f"event {event.version} of {event.uri}",
            metadata={
                "uri": event.uri,
                "extra": MetadataValue.json(dict(event.extra)),
                "dataset_extra": MetadataValue.json(dict(event.dataset_extra)),
                "aliases": MetadataValue.json(list(event.aliases)),
                "source": event.source,
                "source_partition": event.source_partition,
                "version": event.version,
            },
            tags={
                DATA_VERSION_TAG: event.data_version,
                VERSION_TAG: str(event.version),
                OUTLET_TAG: batch.build_id,
            },
        )
        for alias in event.aliases:
            by_alias.setdefault(alias, []).append(event.uri)
    if batch.build_id.startswith(REPORTED):
        return  # the alias's own event is what was reported
    for alias, (version, data_version) in batch.aliases.items():
        uris = by_alias[alias]
        yield AssetMaterialization(
            _key(alias, NodeType.ALIAS),
            description=f"resolved to {', '.join(uris[:3])}{', ...' if len(uris) > 3 else ''}",  # noqa: PLR2004 - fits a line
            metadata={
                "resolved_to": MetadataValue.json(uris[:SHOWN_DATASETS]),
                "datasets": len(uris),
                "version": version,
            },
            tags={
                DATA_VERSION_TAG: data_version,
                VERSION_TAG: str(version),
                OUTLET_TAG: batch.build_id,
            },
        )


def send_runless(instance: DagsterInstance, outlets: Outlets, batches: Sequence[Batch]) -> None:
    """Give Dagster events that no run can store any more, or that belong to none."""
    for batch in batches:
        for event in materializations(batch):
            instance.report_runless_asset_event(event)
        outlets.sent(batch.build_id)


def _key(name: str, node_type: NodeType) -> AssetKey:
    return AssetKey(list(key_path(Declaration(name, node_type))))
