"""The facets of ours, each with the schema that ``schemas`` holds.

Only who makes events imports this, since OpenLineage's client takes a second.
"""

from __future__ import annotations

from typing import Any

import attr
from openlineage.client.facet_v2 import DatasetFacet, RunFacet

from examlops_dagster.version import __version__

PRODUCER = f"urn:examlops-dagster:{__version__}"
_SCHEMAS = "urn:examlops-dagster:openlineage:1-0-0"


def schema_url(file: str, name: str) -> str:
    """Give the URL of a facet's schema; ``$id`` of a file in ``schemas``, which never changes."""
    return f"{_SCHEMAS}:{file}#/$defs/{name}"


@attr.define
class ExamlopsBuildRunFacet(RunFacet):
    """How an attempt was built, and what became of it."""

    buildId: str  # noqa: N815 - OpenLineage writes its names so
    state: str
    orchestrator: str | None = None
    fallback: str | None = None
    prefect_flow_run_id: str | None = None
    codeVersion: str | None = None  # noqa: N815
    attempt: int | None = None
    actor: str | None = None
    backfill: str | None = None
    schedule: str | None = None
    sensor: str | None = None
    partition: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("build-run", "ExamlopsBuildRunFacet")


@attr.define
class ExamlopsHpcJobRunFacet(RunFacet):
    """The batch job in which the production function ran."""

    scheduler: str
    jobId: str  # noqa: N815
    cluster: str | None = None
    node: str | None = None
    state: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("hpc-job-run", "ExamlopsHpcJobRunFacet")


@attr.define
class ExamlopsVersionsDatasetFacet(DatasetFacet):
    """The integer versions that people read, of each partition that was read or made."""

    versions: list[dict[str, Any]] = attr.field(factory=list)
    total: int = 0

    @staticmethod
    def _get_schema() -> str:
        return schema_url("versions-dataset", "ExamlopsVersionsDatasetFacet")
