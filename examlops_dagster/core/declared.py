"""Finds what was declared: by a function, and by a module."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from examlops_dagster.core.declarations import Declaration

DECLARED = "__examlops__"
"""Attribute of a decorated function, and global of a module, that hold declarations."""

_CELL = "<cell line:"
"""How IPython 8.0 names the code of a cell; all others, and Python, name it ``<module>``."""


def declared_on(thing: Any) -> tuple[Declaration, ...]:
    """Give the declarations of one decorated function, in the order in which they were made.

    A wrapper has a copy of the attribute (``functools.wraps``), but is not what was declared.
    """
    # things that answer to any name (mocks, expressions) and modules hold something else there
    found = getattr(thing, DECLARED, ())
    if not isinstance(found, tuple):
        return ()
    return tuple(d for d in found if isinstance(d, Declaration) and d.function is thing)


def declaration_of(thing: Any) -> Declaration | None:
    """Give the declaration of a decorated function; None for anything else."""
    declared = declared_on(thing)
    return declared[-1] if declared else None


def declarations_of(module: ModuleType) -> list[Declaration]:
    """Give what a module declares: made while it was executed, or held in its names."""
    namespace = vars(module)
    found: list[Declaration] = list(_module_list(namespace))
    # A cell whose function was renamed and that was run again has left the former one behind.
    replaced = {d.name for d in found} if _is_notebook(namespace) else set()
    for thing in list(namespace.values()):
        if callable(thing) and not isinstance(thing, type):
            own = getattr(thing, "__globals__", None) is namespace
            found.extend(d for d in declared_on(thing) if not own or d.name not in replaced)
    return list({id(d): d for d in found}.values())


def remember(declaration: Declaration) -> None:
    """Keep a declaration with the module that is being executed.

    So that declarations from a loop or a factory, which no name of the module holds, are found;
    a module executed anew (``importlib.reload``) starts an empty list, known by its new spec. In
    a notebook, where the same cell is run many times, the last declaration of a name counts.
    """
    frame = sys._getframe()  # noqa: SLF001 - the module that is being executed
    while not frame.f_code.co_name.startswith(("<module>", _CELL)):
        if frame.f_back is None:
            return
        frame = frame.f_back
    kept = _module_list(frame.f_globals)
    if declaration.where.startswith("<") or _is_notebook(frame.f_globals):
        kept[:] = [d for d in kept if d.name != declaration.name]
    kept.append(declaration)


def _is_notebook(namespace: dict[str, Any]) -> bool:
    """Whether a module is entered piece by piece, in a notebook or at a prompt.

    The name of a cell's file does not tell: ipykernel's is ``/tmp/ipykernel_1234/567.py``. But
    ``python x.py`` has a file of the whole module, and ``python -m x`` a spec.
    """
    if namespace.get("__name__") != "__main__" or namespace.get("__spec__") is not None:
        return False
    return "__file__" not in namespace or "get_ipython" in namespace


class _ModuleDeclarations(list[Declaration]):
    def __init__(self, spec: object) -> None:
        self.spec = spec
        super().__init__()


def _module_list(module_globals: dict[str, Any]) -> list[Declaration]:
    kept = module_globals.get(DECLARED)
    spec = module_globals.get("__spec__")
    if not isinstance(kept, _ModuleDeclarations) or kept.spec is not spec:
        kept = module_globals[DECLARED] = _ModuleDeclarations(spec)
    return kept
