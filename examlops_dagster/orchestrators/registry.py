"""Which orchestrators there are, and which one a build goes to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from examlops_dagster.core.jobs import JobsLedger
from examlops_dagster.core.seams import (
    ORCHESTRATORS,
    AssetOrchestrator,
    Progress,
    unknown_orchestrator,
)
from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.settings import ASSET_ORCHESTRATOR

GROUP = "examlops_dagster.orchestrators"
DEFAULT = "local"


def known_orchestrators() -> frozenset[str]:
    """Give the names of our orchestrators and of those that installed packages register."""
    return ORCHESTRATORS | {point.name for point in entry_points(group=GROUP)}


def choose(
    argument: str | None, declared: str | None, environment: Mapping[str, str]
) -> tuple[str, str]:
    """Say which orchestrator a build goes to.

    Parameters
    ----------
    argument
        What the request names.
    declared
        What the asset names.
    environment
        ``EXAMLOPS_ASSET_ORCHESTRATOR`` sets it for every build that names none.

    Returns
    -------
    tuple
        The name, and why it is not the one that the variable names (empty if it is): an unknown
        value of the variable leaves the asset built, here, rather than routed to an engine that
        nobody configured.

    Raises
    ------
    UsageError
        If the request names one that does not exist.
    """
    asked = argument or environment.get(ASSET_ORCHESTRATOR)
    known = known_orchestrators() if asked else ORCHESTRATORS
    if argument:
        name = argument.strip().lower()
        if name not in known:
            raise UsageError(unknown_orchestrator(argument, known))
        return name, ""
    if declared:
        return declared, ""
    named = environment.get(ASSET_ORCHESTRATOR, "").strip().lower()
    if named and named not in known:
        return DEFAULT, (
            f"local ({ASSET_ORCHESTRATOR}={environment[ASSET_ORCHESTRATOR]!r} is unknown; known: "
            f"{', '.join(sorted(known))})"
        )
    return named or DEFAULT, ""


def make(
    name: str, *, jobs: JobsLedger | None = None, progress: Progress | None = None
) -> AssetOrchestrator:
    """Make an orchestrator.

    Parameters
    ----------
    jobs
        Remembers batch jobs.
    progress
        Told what a person who waits wants to know.

    Raises
    ------
    LaunchError
        If it cannot be loaded.
    """
    if name == "local":
        return LocalOrchestrator()
    if name == "scheduler":
        from examlops_dagster.orchestrators.scheduler import (  # noqa: PLC0415 - most need none
            SchedulerOrchestrator,
        )

        return SchedulerOrchestrator(jobs, progress=progress)
    if name == "prefect":
        from examlops_dagster.orchestrators.prefect import (  # noqa: PLC0415 - as above
            PrefectOrchestrator,
        )

        return PrefectOrchestrator()
    for point in entry_points(group=GROUP):
        if point.name == name:
            from examlops_dagster.orchestrators.examlops import adapted  # noqa: PLC0415 - as above

            return adapted(point.load()())
    raise LaunchError(f"orchestrator {name!r} is not installed → install the package that has it")
