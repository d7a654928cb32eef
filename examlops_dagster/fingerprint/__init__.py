"""Reads the user's code: says by which code an asset is produced, and whether it was edited."""

from examlops_dagster.fingerprint.code_versions import (
    Fingerprints,
    code_version,
    loaded_code_is_older,
)

__all__ = ["Fingerprints", "code_version", "loaded_code_is_older"]
