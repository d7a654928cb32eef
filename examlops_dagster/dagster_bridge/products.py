"""What a build came to, and the event that tells Dagster of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster import AssetKey, AssetMaterialization

from examlops_dagster.core.records import Attempt, BuildState
from examlops_dagster.core.seams import Value
from examlops_dagster.dagster_bridge.pipes_metadata import as_metadata
from examlops_dagster.ledger.builds import Completion
from examlops_dagster.ledger.notes import Note
from examlops_dagster.ledger.rows import dump_reads
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    VERSION_TAG,
)


@dataclass(frozen=True)
class Product:
    """What a build came to, ready to be stored as an event.

    Attributes
    ----------
    value
        What is to be kept; None where nothing is.
    state
        SUCCEEDED, or UNCHANGED where the function was not called.
    notes
        Facts for its lineage.
    """

    attempt: Attempt
    version: int
    data_version: str
    value: Value | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    state: BuildState = BuildState.SUCCEEDED
    notes: tuple[Note, ...] = ()

    @property
    def completion(self) -> Completion:
        """What the ledger records of it."""
        return Completion(
            self.attempt,
            self.version,
            self.data_version,
            self.provenance,
            self.state,
            self.notes,
        )


def event_of(key: AssetKey, product: Product, facts: Mapping[str, Any]) -> AssetMaterialization:
    """Give the event of a build, for where Dagster makes none of an output."""
    return AssetMaterialization(
        key,
        partition=product.attempt.node.partition or None,
        metadata=facts,
        tags={
            **tags_of(product),
            DATA_VERSION_TAG: product.data_version,
            CODE_VERSION_TAG: product.attempt.code_version,
        },
    )


def facts_of(product: Product, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give the metadata of a build's event: what the function said, and what we know."""
    facts: dict[str, Any] = dict(as_metadata(said))
    facts.update({f"examlops/{name}": text for name, text in product.provenance.items()})
    facts["version"] = product.version
    facts[BUILT_FROM] = dump_reads(product.attempt.built_from)
    return facts


def tags_of(product: Product) -> dict[str, str]:
    """Give the tags by which a build's event is known again."""
    return {VERSION_TAG: str(product.version), BUILD_TAG: product.attempt.build_id}
