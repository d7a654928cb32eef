"""Which Dagster Pipes context a function has, where one process calls many.

``dagster_pipes`` keeps one context for a process. Here each call has its own, also where several
threads call functions at one time, and what a module kept of one call serves the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dagster_pipes import (
    DagsterPipesError,
    PipesContext,
    PipesDefaultContextLoader,
    PipesDefaultMessageWriter,
    PipesMappingParamsLoader,
)


def context_of(variables: Mapping[str, str]) -> PipesContext:
    """Open the context of a call whose variables name its files."""
    return PipesContext(
        PipesMappingParamsLoader(variables),
        PipesDefaultContextLoader(),
        PipesDefaultMessageWriter(),
    )


class _Current(PipesContext):
    """The context of whoever asks."""

    def __init__(self) -> None:
        """Keep nothing: all that it has is that of a call."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # whoever looks at all objects of a process asks for no context
            return object.__getattribute__(self, name)
        return getattr(_open.of_caller(), name)


class _OpenContexts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here: ContextVar[PipesContext | None] = ContextVar("examlops_pipes", default=None)
        self._all: list[PipesContext] = []
        self._outer: PipesContext | None = None
        """That of the process, which Dagster may have started by Pipes itself."""

    @contextmanager
    def entered(self, context: PipesContext) -> Iterator[None]:
        with self._lock:
            if not self._all:
                is_open = PipesContext.is_initialized()
                self._outer = PipesContext.get() if is_open else None
                PipesContext.set(_Current())
            self._all.append(context)
        token = self._here.set(context)
        try:
            yield
        finally:
            self._here.reset(token)
            with self._lock:
                self._all.remove(context)
                if not self._all:
                    # its `set` takes no None
                    PipesContext._instance, self._outer = self._outer, None  # noqa: SLF001

    def of_caller(self) -> PipesContext:
        found = self._here.get()
        if found is not None:
            return found
        with self._lock:  # a thread that a function started
            if len(self._all) == 1:
                return self._all[0]
            count = len(self._all)
        raise DagsterPipesError(
            f"{count} functions are called in this process → give the thread the context that "
            "the function has: copy_context().run(...)"
            if count
            else "The call to which this PipesContext belonged is over."
        )


_open = _OpenContexts()
entered = _open.entered
"""Have a context be the one of this call, and of the threads that it starts."""
