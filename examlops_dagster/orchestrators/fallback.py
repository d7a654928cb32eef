"""Whether a build that cannot go where it was sent is built here."""

from __future__ import annotations

from collections.abc import Mapping

FALLBACK_VARIABLE = "EXAMLOPS_ASSET_FALLBACK"

_BUILDS_HERE = ("", "local")
_REFUSES = "refuse"


def refusal(environment: Mapping[str, str]) -> str:
    """Say what forbids to build here instead; empty where nothing does.

    ``EXAMLOPS_ASSET_FALLBACK`` is local (the default) or refuse. A word that is neither was
    meant to say something: it refuses too, since a login node asks for that.
    """
    said = environment.get(FALLBACK_VARIABLE, "").strip()
    word = said.lower()
    if word in _BUILDS_HERE:
        return ""
    if word == _REFUSES:
        return f"{FALLBACK_VARIABLE}={_REFUSES}"
    return f"{FALLBACK_VARIABLE}={said} is unknown; known: local, refuse"
