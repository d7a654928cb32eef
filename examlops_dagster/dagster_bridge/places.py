"""Where the step of a build runs: it is known before it starts which orchestrator it goes to."""

from __future__ import annotations

import inspect
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
from examlops_dagster.ledger.tags import IN_PROCESS_TAG, ORCHESTRATOR_TAG
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.registry import choose

WAITS_TAG = "examlops/waits"
"""Of an op that is not ours: ``true`` or ``false``, whether it waits in a thread."""
_BUILDS = "examlops_builds"
_SAID = {"true": True, "false": False}


class Place(Enum):
    """In which thread a step runs."""

    MAIN = "main"
    """Its function, or a plain Dagster asset, is called in this process."""
    HELPER = "helper"
    """Its function is called in a worker process: any thread can wait for that one."""
    WAITING = "waiting"
    """It waits for a job, in a thread of its own; a plain Dagster asset by one of our clients."""


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

    def is_ours(self, step: ExecutionStep) -> bool:
        """Tell whether a step builds an asset of ours."""
        return self._builds(step) is not None

    def _place(self, step: ExecutionStep) -> Place:
        builds = self._builds(step)
        if builds is None:
            return Place.WAITING if self._waits_by_itself(step) else Place.MAIN
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

    def _waits_by_itself(self, step: ExecutionStep) -> bool:
        """Tell whether the function of a step that is not ours may be called in a thread.

        It is where a resource of the step waits by our pauses, as our clients of Pipes do, unless
        its tag says otherwise.
        """
        op = self._op(step)
        if op is None or _is_async(_function(op)):  # Dagster has one event loop for a run
            return False
        said = step.tags.get(WAITS_TAG)
        if said in _SAID:
            return _SAID[said]
        if said is not None:
            text = f"{step.key}: the tag {WAITS_TAG} is {said!r} → true or false; it is left out"
            self._context.log.warning(text)
        resources = self._context.scoped_resources_builder.resource_instance_dict
        return any(
            getattr(resources.get(key), "waits_by_pauses", False) is True
            for key in op.required_resource_keys
        )

    def _builds(self, step: ExecutionStep) -> Builds | None:
        op = self._op(step)
        return None if op is None else getattr(_function(op), _BUILDS, None)

    def _op(self, step: ExecutionStep) -> OpDefinition | None:
        definition = self._context.job_def.get_node(step.node_handle).definition
        return definition if isinstance(definition, OpDefinition) else None

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


def _function(op: OpDefinition) -> Any:
    return getattr(op.compute_fn, "decorated_fn", None)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
