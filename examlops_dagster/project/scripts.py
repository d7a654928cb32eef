"""Opens projects, and the functions for scripts and notebooks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from examlops_dagster.core.declarations import DEFAULT_KIND
from examlops_dagster.core.plan import Plan
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import Status
from examlops_dagster.governance.lineage_courier import deliver_later
from examlops_dagster.home import Home, find_home
from examlops_dagster.loading import ModuleLike, configured_modules, load_modules
from examlops_dagster.project.project import Project

logger = logging.getLogger(__name__)


def open_project(
    modules: Iterable[ModuleLike] = (),
    *,
    file: str | None = None,
    reading: bool = True,
    home: Home | None = None,
) -> Project:
    """Open the project of the working directory.

    Parameters
    ----------
    modules
        Modules, or their names; with none (and no ``file``) those of ``EXAMLOPS_MODULES``, else of
        ``[tool.examlops] modules`` in pyproject.toml.
    file
        Path of a module, imported by its stem with its folder as import root.
    reading
        Whether the request writes nothing.
    home
        Where the project lives; found from the working directory by default.

    Raises
    ------
    UsageError
        If a module cannot be found.
    """
    home = home or find_home()
    wanted: list[ModuleLike] = list(modules)
    if not wanted and file is None:
        wanted = list(configured_modules(home))
    loaded = load_modules(wanted, file)
    project = Project(home, loaded, reading)
    project.catch_up()
    return project


def declare_asset(
    name: str,
    *,
    kind: str = DEFAULT_KIND,
    deps: Sequence[str] = (),
    description: str | None = None,
    partitions: str | None = None,
) -> None:
    """Declare an asset in platform.db, as ``exa assets declare`` does.

    Parameters
    ----------
    name
        Any printable text for a source; see `asset` for one with a function.
    kind
        dataset, feature, model, report, or any lower-case word.
    deps
        Names of its upstreams.
    description
        For people.
    partitions
        Text such as ``daily:2024-01-01``.

    Raises
    ------
    DefinitionError, UsageError
        If it cannot work.
    """
    project = Project(find_home(), reading=False)
    project.declare(name, kind=kind, deps=deps, description=description, partitions=partitions)
    project.close()


def asset_status(
    name: str | None = None, *, modules: Iterable[ModuleLike] = ()
) -> dict[Node, Status]:
    """Say of every node, or of those of one asset, whether it is stale and why.

    Parameters
    ----------
    name
        An asset; None for all.
    modules
        Where the assets are declared; the configured ones by default.
    """
    project = open_project(modules)
    try:
        if name is not None:
            project.declared(name)
        found = project.statuses()
        return {node: s for node, s in found.items() if name is None or node.asset == name}
    finally:
        project.close()


def plan(
    name: str | None = None,
    *,
    modules: Iterable[ModuleLike] = (),
    partition: str | None = None,
    force: bool = False,
    no_deps: bool = False,
) -> Plan:
    """Say what a request for ``name``, or for all that is due, would build; changes nothing."""
    project = open_project(modules)
    try:
        names = [name] if name is not None else []
        return project.plan(names, partition=partition, force=force, deps=not no_deps)
    finally:
        project.close()


def mark_source_changed(
    name: str, data_version: str | None = None, *, modules: Iterable[ModuleLike] = ()
) -> int:
    """Say that a source changed, and give its new version.

    Parameters
    ----------
    name
        A declared source.
    data_version
        Identifies the content; the same again changes nothing. None for "it is new".
    modules
        Where the assets are declared; the configured ones by default.
    """
    with changing(modules) as project:
        record, _ = project.advance(name, data_version)
        return record.version


@contextmanager
def changing(modules: Iterable[ModuleLike]) -> Iterator[Project]:
    """Open a project to change it without a build, and have the lineage of that delivered."""
    project = open_project(modules, reading=False)
    try:
        yield project
        deliver_later(project.database, project.home)
    finally:
        project.close()
