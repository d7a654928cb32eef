"""Whether a build that cannot go where it was sent is built here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.orchestrators.requests import build_error
from examlops_dagster.settings import ASSET_FALLBACK

_BUILDS_HERE = ("", "local")
_REFUSES = "refuse"

_logger = logging.getLogger(__name__)


def fall_back(
    request: BuildRequest,
    why: str,
    run_here: Callable[[BuildRequest], BuildResult],
    *,
    instead_of: str,
    environment: Mapping[str, str],
) -> BuildResult:
    """Build here what cannot go where it was sent; its provenance says why.

    Parameters
    ----------
    instead_of
        What it was to be, in words.
    environment
        May forbid it; see `refusal`.

    Raises
    ------
    AssetBuildError
        If it is forbidden, or the build fails here.
    """
    if refused := refusal(environment):
        raise build_error(request, f"not built here instead of as {instead_of} ({refused}): {why}")
    _logger.warning("%s is built locally, not as %s: %s", request.node, instead_of, why)
    result = run_here(request)
    return replace(result, provenance={**result.provenance, "fallback": f"local ({why})"})


def refusal(environment: Mapping[str, str]) -> str:
    """Say what forbids to build here instead; empty where nothing does.

    ``EXAMLOPS_ASSET_FALLBACK`` is local (the default) or refuse. A word that is neither was
    meant to say something: it refuses too, since a login node asks for that.
    """
    said = environment.get(ASSET_FALLBACK, "").strip()
    word = said.lower()
    if word in _BUILDS_HERE:
        return ""
    if word == _REFUSES:
        return f"{ASSET_FALLBACK}={_REFUSES}"
    return f"{ASSET_FALLBACK}={said} is unknown; known: local, refuse"
