"""Asset-centric pipelines for machine learning on HPC clusters, on Dagster.

Declare what a platform produces with `asset`, `sensor`, `task` and `sink`; ``exa`` and Dagster
know what is stale and why, and rebuild only that. Importing this package does no work and
imports no dagster; heavy names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from examlops_dagster.core.aliases import Dataset, DatasetAlias, Metadata
from examlops_dagster.core.declarations import DEFAULT_TIMEOUT, AssetOutput
from examlops_dagster.core.decorators import asset, sensor, sink, task
from examlops_dagster.core.freshness import Always, Manual, Schedule
from examlops_dagster.core.mappings import all_keys, each_event, keys, same_key
from examlops_dagster.core.partitions import daily, dynamic, hourly, monthly, partitions, weekly
from examlops_dagster.errors import (
    AssetBuildError,
    BuildTimeoutError,
    DefinitionError,
    ExamlopsError,
    UnknownAssetError,
    UsageError,
)
from examlops_dagster.version import __version__

if TYPE_CHECKING:
    from examlops_dagster.catalog.views import FeatureView
    from examlops_dagster.dagster_bridge.definitions import build_definitions
    from examlops_dagster.dagster_bridge.executor import waiting_executor
    from examlops_dagster.dagster_bridge.pipes import PipesFluxClient, PipesSlurmClient
    from examlops_dagster.dagster_bridge.run import materialize
    from examlops_dagster.project import asset_status, declare_asset, mark_source_changed, plan
    from examlops_dagster.project.datasets import apply_view, record_dataset_revision

_LAZY = {
    "FeatureView": "examlops_dagster.catalog.views",
    "PipesFluxClient": "examlops_dagster.dagster_bridge.pipes",
    "PipesSlurmClient": "examlops_dagster.dagster_bridge.pipes",
    "apply_view": "examlops_dagster.project.datasets",
    "asset_status": "examlops_dagster.project",
    "build_definitions": "examlops_dagster.dagster_bridge.definitions",
    "declare_asset": "examlops_dagster.project",
    "mark_source_changed": "examlops_dagster.project",
    "materialize": "examlops_dagster.dagster_bridge.run",
    "plan": "examlops_dagster.project",
    "record_dataset_revision": "examlops_dagster.project.datasets",
    "waiting_executor": "examlops_dagster.dagster_bridge.executor",
}

__all__ = [
    "DEFAULT_TIMEOUT",
    "Always",
    "AssetBuildError",
    "AssetOutput",
    "BuildTimeoutError",
    "Dataset",
    "DatasetAlias",
    "DefinitionError",
    "ExamlopsError",
    "FeatureView",
    "Manual",
    "Metadata",
    "PipesFluxClient",
    "PipesSlurmClient",
    "Schedule",
    "UnknownAssetError",
    "UsageError",
    "__version__",
    "all_keys",
    "apply_view",
    "asset",
    "asset_status",
    "build_definitions",
    "daily",
    "declare_asset",
    "dynamic",
    "each_event",
    "hourly",
    "keys",
    "mark_source_changed",
    "materialize",
    "monthly",
    "partitions",
    "plan",
    "record_dataset_revision",
    "same_key",
    "sensor",
    "sink",
    "task",
    "waiting_executor",
    "weekly",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
