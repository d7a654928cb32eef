"""Listens to a program that runs on this machine, as to a job: over files of its own."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.orchestrators.outlets import read_outlets
from examlops_dagster.orchestrators.programs import speaking
from examlops_dagster.orchestrators.reported import Reported, exception_text
from examlops_dagster.schedulers.messages import Message, MessageFile

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_LOOK_SECONDS = 0.2

_logger = logging.getLogger(__name__)


class Listening:
    """Passes on what a program says while it runs, and holds its success against that.

    Parameters
    ----------
    request
        The build; its ``heard`` is called in a thread of ours.

    Attributes
    ----------
    variables
        What the program has to get.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._reported = Reported.of(request)
        self._ended = threading.Event()
        self._attempt = 0
        self.variables: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="examlops-"))
        self._outlets = self._folder / "outlets.jsonl"
        self._messages = MessageFile(self._folder / "messages.jsonl")
        try:
            self.variables = speaking(
                self._request,
                context=self._folder / "pipes.json",
                messages=self._messages.path,
                outlets=self._outlets,
            )
            self._thread = threading.Thread(target=self._follow, name="examlops-pipes", daemon=True)
            self._thread.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._finish()
            if isinstance(error, AssetBuildError) and self._messages.closed is not None:
                told = exception_text(self._messages.closed.exception)
                error.details = "\n".join(part for part in (told, error.details) if part)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def result(self, result: BuildResult) -> BuildResult:
        """Add what the program said to the result of one that ended well.

        Raises
        ------
        AssetBuildError
            If it opened Dagster Pipes and did not close it, or closed it with an exception.
        """
        self._finish()
        if self._messages.opened:
            closed = self._messages.closed
            if closed is None:
                raise self._error("its program opened Dagster Pipes and never closed it")
            failed = closed.exception
            if failed is not None:
                said = str(failed.get("message") or failed.get("name") or "failed").strip()
                raise self._error(f"its program closed Dagster Pipes with {said}")
        events, problems = read_outlets(self._outlets)
        for problem in problems:
            self._hear(Message("log", {"level": "WARNING", "message": problem}))
        return replace(
            result,
            data_version=self._reported.data_version,
            metadata=self._reported.metadata,
            events=(*events, *self._reported.events),
        )

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
            self._reported.clear()
            self._tell("restarted", {})
        for message in messages:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        self._reported.hear(message)
        self._tell(message.method, message.params)

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        if self._request.heard is not None:
            self._request.heard(method, params)

    def _error(self, reason: str) -> AssetBuildError:
        node = self._request.node
        return AssetBuildError(node.asset, reason, partition=node.partition)
