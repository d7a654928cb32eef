"""Resources that a request asks for in place of an asset's own, for this one build.

They travel as a tag of the run. They are not part of a fingerprint: nothing is stale, or tried
again, because a build asked for something else once. No dagster is imported here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.errors import UsageError
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.registry import choose
from examlops_dagster.schedulers.resources import merged, parse_resources

RESOURCES_TAG = "examlops/resources"


def check_overrides(
    over: Mapping[str, Any],
    targets: Iterable[Declaration],
    orchestrator: str | None,
    environment: Mapping[str, str],
) -> None:
    """Refuse resources that the targets cannot be built with.

    Parameters
    ----------
    over
        What was asked for.
    targets
        The assets that it is meant for.
    orchestrator
        The one that was asked for.
    environment
        Of this process.

    Raises
    ------
    UsageError
        Names every value that cannot be used; or all targets are built here, where no resources
        are asked for.
    """
    parse_resources(over)
    declared = list(targets)
    for declaration in declared:
        try:
            parse_resources(merged(declaration.resources, over))
        except UsageError as error:
            raise UsageError(f"{declaration.name} with these resources: {error}") from error
    names = {choose(orchestrator, d.orchestrator, environment)[0] for d in declared}
    if names == {LocalOrchestrator.name}:
        raise UsageError(
            f"--resources {', '.join(over)}: {', '.join(d.name for d in declared)} would be built "
            "in this process, which asks for none → add --orchestrator scheduler"
        )


def overrides_tag(over: Mapping[str, Any], assets: Iterable[str]) -> dict[str, str]:
    """Give the tag of a run that carries them; none where nothing was asked for."""
    if not over:
        return {}
    asked = {"assets": sorted(set(assets)), "resources": dict(over)}
    return {RESOURCES_TAG: json.dumps(asked, default=_as_text)}


def resources_for(declaration: Declaration, tags: Mapping[str, str]) -> Mapping[str, Any]:
    """Give what the build of an asset in a run with these tags asks for."""
    text = tags.get(RESOURCES_TAG)
    if text is None:
        return declaration.resources
    asked = json.loads(text)
    if declaration.name not in asked["assets"]:
        return declaration.resources
    return merged(declaration.resources, asked["resources"])


def _as_text(value: object) -> str:
    return f"{math.ceil(value.total_seconds())}s" if isinstance(value, timedelta) else str(value)
