"""A project: what it is, what changes it, and the functions for scripts."""

from examlops_dagster.project.project import Project
from examlops_dagster.project.scripts import (
    asset_status,
    declare_asset,
    mark_source_changed,
    open_project,
    plan,
)

__all__ = [
    "Project",
    "asset_status",
    "declare_asset",
    "mark_source_changed",
    "open_project",
    "plan",
]
