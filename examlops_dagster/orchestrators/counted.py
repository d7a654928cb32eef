"""What a function or a program said over Dagster Pipes, as far as it counts for its build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.orchestrators.reported import Reported
from examlops_dagster.orchestrators.requests import build_error
from examlops_dagster.schedulers.messages import Message

_FRAME = ("opened", "closed", "restarted")


class Counted:
    """Passes on what is said of one build, and holds its success against that.

    Dagster Pipes is opened and closed around every function: those that say nothing by it leave
    no trace of that.

    Parameters
    ----------
    request
        The build.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._reported = Reported.of(request)
        self._calls = not request.declaration.command
        self._held: list[tuple[str, Mapping[str, Any]]] | None = [] if self._calls else None
        self._is_open = False
        self._exception: Mapping[str, Any] | None = None

    def hear(self, message: Message) -> None:
        """Take one message."""
        if message.method in ("opened", "closed"):
            self._is_open = message.method == "opened"
            self._exception = message.exception
        self._reported.hear(message)
        self._tell(message.method, message.params)

    def restarted(self) -> None:
        """Forget what was said: it is another attempt."""
        self._reported.clear()
        self._is_open, self._exception = False, None
        self._tell("restarted", {})

    def result(self, result: BuildResult, events: Sequence[Metadata] = ()) -> BuildResult:
        """Add what was said to the result of what ended well.

        Parameters
        ----------
        events
            What it said elsewhere of datasets.

        Raises
        ------
        AssetBuildError
            If it opened Dagster Pipes and did not close it, or closed it with an exception.
        """
        what = "function" if self._calls else "program"
        if self._is_open:
            raise build_error(self._request, f"its {what} opened Dagster Pipes and never closed it")
        failed = self._exception
        if failed is not None:
            said = str(failed.get("message") or failed.get("name") or "failed").strip()
            raise build_error(self._request, f"its {what} closed Dagster Pipes with {said}")
        return replace(
            result,
            data_version=result.data_version or self._reported.data_version,
            metadata={**self._reported.metadata, **result.metadata},
            events=(*result.events, *events, *self._reported.events),
        )

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        heard = self._request.heard
        if heard is None:
            return
        if self._held is not None:
            if method in _FRAME:
                self._held.append((method, params))
                return
            held, self._held = self._held, None
            for each in held:
                heard(*each)
        heard(method, params)
