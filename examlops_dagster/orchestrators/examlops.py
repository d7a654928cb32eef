"""Takes orchestrators that were written for ExaMLOps: ``run(definition, upstream) -> dict``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from examlops_dagster.core.seams import AssetOrchestrator, BuildRequest, BuildResult
from examlops_dagster.errors import AssetBuildError, LaunchError
from examlops_dagster.orchestrators.calling import describe
from examlops_dagster.orchestrators.programs import versions_of
from examlops_dagster.orchestrators.requests import build_error


@dataclass(frozen=True)
class AssetDef:
    """An asset as ExaMLOps describes it to its orchestrators.

    Attributes
    ----------
    name, kind, description
        Of the asset.
    deps
        Names of its upstreams.
    fn
        The production function itself, so that a job can find it by its module and name.
    resources
        What a job asks for.
    """

    name: str
    kind: str
    deps: list[str]
    fn: Callable[..., Any] | None
    description: str | None
    resources: dict[str, Any]


class ExamlopsStyle(Protocol):
    """What ExaMLOps calls an orchestrator."""

    name: str

    def run(self, definition: AssetDef, upstream: dict[str, Any]) -> Mapping[str, Any]:
        """Build, and give the provenance."""


class ExamlopsAdapter:
    """Runs builds by an orchestrator that was written for ExaMLOps.

    Such a one calls the function with versions alone and ignores what it returns, so the function
    does its own I/O: no value is kept, and each build is a new data version. The limits of the
    declaration are the other's business.

    Parameters
    ----------
    inner
        The other orchestrator.
    """

    def __init__(self, inner: ExamlopsStyle) -> None:
        self._inner = inner
        self.name = inner.name

    def run(self, request: BuildRequest) -> BuildResult:
        """Run one build and wait for its end.

        Raises
        ------
        AssetBuildError
            What the other raised, or when the function wants more than versions.
        LaunchError
            When there is no function.
        """
        declaration = request.declaration
        if declaration.function is None:
            raise LaunchError(
                f"{request.node.asset} has no production function that {self.name} could call"
            )
        upstream = versions_of(request)
        others = [name for name in request.arguments if name not in upstream]
        if others:
            raise build_error(
                request,
                f"{self.name} was written for ExaMLOps and passes versions of deps alone, not "
                f"{', '.join(others)} → use deps without partitions, or another orchestrator",
            )
        definition = AssetDef(
            declaration.name,
            declaration.kind,
            list(dict.fromkeys(edge.name for edge in declaration.upstreams)),
            declaration.function,
            declaration.description,
            dict(request.resources),
        )
        try:
            said = self._inner.run(definition, upstream)
        except AssetBuildError:
            raise
        except Exception as error:
            raise build_error(request, *describe(error)) from error
        facts = {str(key): str(value) for key, value in dict(said or {}).items()}
        return BuildResult(provenance={"orchestrator": self.name, **facts})


def adapted(orchestrator: Any) -> AssetOrchestrator:
    """Give an orchestrator of the seam, whichever of the two a package has brought.

    Raises
    ------
    LaunchError
        If it is neither.
    """
    run = getattr(orchestrator, "run", None)
    if not isinstance(getattr(orchestrator, "name", None), str) or not callable(run):
        raise LaunchError(f"{orchestrator!r} is no orchestrator: it needs a name and run(request)")
    needed = [
        p
        for p in inspect.signature(run).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    of_examlops = 2
    if len(needed) == of_examlops:
        return ExamlopsAdapter(orchestrator)
    found: AssetOrchestrator = orchestrator
    return found
