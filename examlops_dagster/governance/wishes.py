"""What policy is asked of assets that would be built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.graph import Graph
from examlops_dagster.governance.decision import Action, Question


@dataclass(frozen=True)
class Wish:
    """An asset that would be built, and how.

    Attributes
    ----------
    orchestrator
        Where it would run.
    resources
        What its job would ask for.
    """

    declaration: Declaration
    orchestrator: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asset(self) -> str:
        """Name of the asset."""
        return self.declaration.name

    def question(self, actor: str, source: str) -> Question:
        """Give what policy is asked."""
        declared = self.declaration
        return Question(
            Action.MATERIALIZE,
            declared.name,
            actor,
            source,
            declared.kind,
            self.orchestrator,
            self.resources,
            declared.group or "",
            tuple(declared.owners),
            declared.tags,
        )


def wishes_of(
    graph: Graph,
    names: Iterable[str],
    orchestrator: Callable[[Declaration], str],
    resources: Callable[[Declaration], Mapping[str, Any]] = lambda declared: declared.resources,
) -> Iterator[Wish]:
    """Give the wish for each of the assets that we build or adopt.

    Parameters
    ----------
    orchestrator, resources
        Say of an asset where it would run, and what its job would ask for.
    """
    for name in dict.fromkeys(names):
        declared = graph.declarations.get(name)
        if declared is None or name in graph.undeclared:
            continue
        if declared.function is not None:
            yield Wish(declared, orchestrator(declared), resources(declared))
        elif declared.is_source:
            yield Wish(declared)
