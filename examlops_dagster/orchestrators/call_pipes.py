"""Dagster Pipes around the call of a function in a process that calls many."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.orchestrators.counted import Counted
from examlops_dagster.orchestrators.programs import pipes_context
from examlops_dagster.schedulers.job_pipes import JobPipes
from examlops_dagster.schedulers.messages import Message

if TYPE_CHECKING:
    from dagster_pipes import PipesContext
    from typing_extensions import Self

_logger = logging.getLogger(__name__)


class CallPipes(JobPipes):
    """Dagster Pipes of one call.

    Parameters
    ----------
    opens
        Gives its context; raises ImportError where there is no ``dagster_pipes``.
    """

    def __init__(self, opens: Callable[[], PipesContext]) -> None:
        super().__init__(_logger.warning)
        self._opens = opens
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if self._context is not None:
            from examlops_dagster.schedulers.pipes_current import entered  # noqa: PLC0415 - costs

            self._stack.enter_context(entered(self._context))
        return self

    def __exit__(self, *error: object) -> None:
        with self._stack:
            super().__exit__(*error)

    def _opened(self) -> PipesContext | None:
        try:
            return self._opens()
        except ImportError:  # of an installation without dagster: nobody listens
            return None


class CallHere:
    """Hears a function that is called in this process, at once and in its thread.

    No variables name its files: a program that it starts has no Pipes.

    Parameters
    ----------
    request
        The build.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._counted = Counted(request)
        self.pipes = CallPipes(self._context)

    def __enter__(self) -> Self:
        self.pipes.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pipes.__exit__(*error)

    def result(self, result: BuildResult) -> BuildResult:
        """Add what the function said; see Counted."""
        return self._counted.result(result)

    def _context(self) -> PipesContext:
        from dagster_pipes import (  # noqa: PLC0415 - there may be none
            PipesContext,
            PipesContextLoader,
            PipesMappingParamsLoader,
            PipesMessageWriter,
            PipesMessageWriterChannel,
            encode_param,
        )

        given, hear = self._request.pipes, self._hear

        class Context(PipesContextLoader):
            @contextmanager
            def load_context(self, params: Any) -> Iterator[Any]:
                del params
                yield pipes_context(request) if given is None else given

        class Channel(PipesMessageWriterChannel):
            def write_message(self, message: Any) -> None:
                hear(json.loads(json.dumps(message)))  # as it would cross a file

        class Writer(PipesMessageWriter[Channel]):
            @contextmanager
            def open(self, params: Any) -> Iterator[Channel]:
                del params
                yield Channel()

        request, nothing = self._request, encode_param({})
        names = ("DAGSTER_PIPES_CONTEXT", "DAGSTER_PIPES_MESSAGES")
        return PipesContext(
            PipesMappingParamsLoader(dict.fromkeys(names, nothing)), Context(), Writer()
        )

    def _hear(self, said: Mapping[str, Any]) -> None:
        try:
            self._counted.hear(Message(said["method"], said.get("params") or {}))
        except Exception:  # of who hears it; the function goes on
            _logger.exception("what %s says could not be passed on", self._request.node)
