"""Where the step of a build runs: it is known before it starts which orchestrator it goes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dagster import DagsterInstance, OpDefinition
from dagster._core.execution.context.system import PlanExecutionContext
from dagster._core.execution.plan.step import ExecutionStep

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.errors import ExamlopsError
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.registry import choose

ORCHESTRATOR_TAG = "examlops/orchestrator"
IN_PROCESS_TAG = "examlops/in_process"
_BUILDS = "examlops_builds"


class Place(Enum):
    """In which thread a step runs."""

    MAIN = "main"
    """Its function, or a plain Dagster asset, is called in this process."""
    HELPER = "helper"
    """Its function is called in a worker process: any thread can wait for that one."""
    WAITING = "waiting"
    """It waits for a job, in a thread of its own."""


@dataclass(frozen=True)
class Builds:
    """What an op builds, for who runs it without knowing it.

    Attributes
    ----------
    location, name
        Of the asset.
    """

    location: Location
    name: str


def mark(body: Callable[..., Any], builds: Builds) -> None:
    """Note on the body of an op what it builds; copies of the op keep their body."""
    setattr(body, _BUILDS, builds)


class Places:
    """Tells the place of each step of a run.

    Parameters
    ----------
    context
        Of the run.
    """

    def __init__(self, context: PlanExecutionContext) -> None:
        self._context = context
        self._chosen: dict[str | None, str] = {}
        self._places: dict[str, Place] = {}

    def of(self, step: ExecutionStep) -> Place:
        """Give the place of a step."""
        found = self._places.get(step.key)
        if found is None:
            found = self._places[step.key] = self._place(step)
        return found

    def _place(self, step: ExecutionStep) -> Place:
        builds = self._builds(step)
        if builds is None:
            return Place.MAIN
        location = builds.location
        declaration = location.graph.declarations[builds.name]
        try:
            name = self._orchestrator(declaration.orchestrator, location)
            if name != LocalOrchestrator.name and self._waits(name, location, declaration):
                return Place.WAITING
        except ExamlopsError:  # the body will meet it too, and reports it
            return Place.MAIN
        here = IN_PROCESS_TAG in self._context.run_tags and name == LocalOrchestrator.name
        limited = declaration.timeout_seconds is not None or declaration.command
        return Place.HELPER if limited and not here else Place.MAIN

    def _builds(self, step: ExecutionStep) -> Builds | None:
        definition = self._context.job_def.get_node(step.node_handle).definition
        if not isinstance(definition, OpDefinition):
            return None
        body = getattr(definition.compute_fn, "decorated_fn", None)
        return getattr(body, _BUILDS, None)

    def _orchestrator(self, declared: str | None, location: Location) -> str:
        found = self._chosen.get(declared)
        if found is None:
            asked = self._context.run_tags.get(ORCHESTRATOR_TAG)
            found, _ = choose(asked, declared, location.environment)
            self._chosen[declared] = found
        return found

    def _waits(self, name: str, location: Location, declaration: Declaration) -> bool:
        """Ask an orchestrator that may fall back to this process whether it is going to."""
        instance: DagsterInstance = self._context.instance
        orchestrator = location.orchestrator(name, location.runtime(instance).jobs)
        waits_for = getattr(orchestrator, "waits_for", None)
        return True if waits_for is None else bool(waits_for(declaration))
