"""Listens to another process of this machine, as to a job: over files of its own."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.orchestrators.counted import Counted
from examlops_dagster.orchestrators.outlets import read_outlets
from examlops_dagster.orchestrators.programs import about, speaking
from examlops_dagster.orchestrators.reported import exception_text
from examlops_dagster.schedulers.messages import Message, MessageFile

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOK_SECONDS = 0.2

_logger = logging.getLogger(__name__)


class Listening:
    """Passes on what a program or a function says while it runs; see Counted.

    Parameters
    ----------
    request
        The build; its ``heard`` is called in a thread of ours.

    Attributes
    ----------
    variables
        What it has to get.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._counted = Counted(request)
        self._ended = threading.Event()
        self._attempt = 0
        self.variables: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="examlops-"))
        self._outlets = self._folder / "outlets.jsonl"
        self._messages = MessageFile(self._folder / "messages.jsonl")
        try:
            self.variables = {
                **self._request.environment,
                **about(self._request),
                **speaking(
                    self._request,
                    context=self._folder / "pipes.json",
                    messages=self._messages.path,
                    outlets=self._outlets,
                ),
            }
            self._thread = threading.Thread(target=self._follow, name="examlops-pipes", daemon=True)
            self._thread.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self._finish()
            closed = self._messages.closed
            if (
                isinstance(error, AssetBuildError)
                and closed is not None
                # the exception of a function is told already, with its stack
                and (self._request.declaration.command or not error.details)
            ):
                told = exception_text(closed.exception)
                error.details = "\n".join(part for part in (told, error.details) if part)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def result(self, result: BuildResult) -> BuildResult:
        """Add what was said to the result of what ended well; see Counted."""
        self._finish()
        events, problems = read_outlets(self._outlets)
        for problem in problems:
            self._counted.hear(Message("log", {"level": "WARNING", "message": problem}))
        return self._counted.result(result, events)

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                self._pass_on(self._messages.read())
            except Exception:  # of who hears it; the program goes on, and so do we
                _logger.exception("what %s says could not be passed on", self._request.node)

    def _finish(self) -> None:
        """Take the last of what the program said, once."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._pass_on(self._messages.finish())

    def _pass_on(self, messages: list[Message]) -> None:
        if self._attempt != self._messages.attempt:
            self._attempt = self._messages.attempt
            self._counted.restarted()
        for message in messages:
            self._counted.hear(message)
