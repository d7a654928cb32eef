"""Says by what name a job finds a production function, or why it cannot."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entrypoint:
    """How a job finds a production function.

    Attributes
    ----------
    name
        ``module:qualname``.
    file
        Source of the module; None where it has none.
    """

    name: str
    file: str | None


def entrypoint_of(function: Callable[..., Any]) -> Entrypoint | str:
    """Say how a job finds a function, or why it cannot."""
    module_name = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    label = f"{module_name}:{qualname}"
    if not module_name or not qualname or module_name == "__main__" or "<" in qualname:
        return (
            f"{label if qualname else type(function).__name__} is not importable by a job; define "
            "the function at the top of a module"
        )
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        file = getattr(found, "__file__", None)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        return f"{label} does not resolve ({error})"
    if found is not function:
        return f"{label} resolves to a different object"
    return Entrypoint(label, file)
