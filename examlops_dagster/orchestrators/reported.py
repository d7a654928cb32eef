"""What a program said about its asset over Dagster Pipes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.orchestrators.outlets import OUTLET_MESSAGE, outlet_event
from examlops_dagster.schedulers.messages import Message

INFER = "__infer__"
"""Type that Pipes gives to metadata of which the program named none."""

_LEVELS = {
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
}
_DEEPEST = 20
"""Exceptions in a chain that are shown."""

_logger = logging.getLogger(__name__)


class Reported:
    """Collects metadata, data version and outlet events of one asset; logs what the job logs.

    Parameters
    ----------
    asset
        Its name; what is reported of others is told and left.
    keys
        More assets that the program may report: those of a step that is not ours, which takes
        what it wants from the messages itself.

    Attributes
    ----------
    metadata
        By name; a value whose type the program named is ``{"raw_value": ..., "type": ...}``.
    data_version
        The last one; None if none was reported.
    events
        Datasets that were written, in order.
    """

    def __init__(self, asset: str, keys: Sequence[str] = ()) -> None:
        self._asset = asset
        self._keys = frozenset(keys)
        self.metadata: dict[str, Any] = {}
        self.data_version: str | None = None
        self.events: tuple[Metadata, ...] = ()

    @staticmethod
    def of(request: BuildRequest) -> Reported:
        """Give what collects for a request."""
        keys = (request.pipes or {}).get("asset_keys") or ()
        return Reported(request.node.asset, keys)

    def clear(self) -> None:
        """Forget what a former attempt said."""
        self.metadata = {}
        self.data_version = None
        self.events = ()

    def hear(self, message: Message) -> None:
        """Take one message."""
        params = message.params
        if message.method == "log":
            level = _LEVELS.get(str(params.get("level", "")).upper(), logging.INFO)
            _logger.log(level, "%s: %s", self._asset, params.get("message"))
        elif message.method == "report_asset_materialization":
            self._materialization(params)
        elif message.method == "report_custom_message":
            self._custom(params.get("payload"))

    def _materialization(self, params: Mapping[str, Any]) -> None:
        key = params.get("asset_key")
        if key not in (None, self._asset):
            if key not in self._keys:
                _logger.warning("%s: its job reported %s, which is not its own", self._asset, key)
            return
        version = params.get("data_version")
        self.data_version = version if isinstance(version, str) else self.data_version
        found = params.get("metadata")
        if isinstance(found, dict):
            self.metadata.update({name: _typed(value) for name, value in found.items()})

    def _custom(self, payload: Any) -> None:
        if not isinstance(payload, dict) or OUTLET_MESSAGE not in payload:
            return
        try:
            self.events += (outlet_event(payload[OUTLET_MESSAGE]),)
        except ValueError as error:
            _logger.warning(
                "%s: an outlet event is left out, %s: %.200r", self._asset, error, payload
            )


def exception_text(found: Mapping[str, Any] | None) -> str:
    """Put the exception that a ``closed`` carries in words, as Python prints it; empty for None."""
    return "\n\n".join(_chain(found, _DEEPEST)).rstrip()


def _chain(found: Any, deepest: int) -> list[str]:
    if not isinstance(found, Mapping) or not deepest:
        return []
    stack = found.get("stack")
    name, message = str(found.get("name") or ""), str(found.get("message") or "").strip()
    if name.rpartition(".")[2] not in message.partition(":")[0]:
        message = f"{name}: {message}" if message else name
    lines = [str(line).rstrip("\n") for line in stack] if isinstance(stack, list) else []
    head = ["Traceback (most recent call last):"] if lines else []
    text = "\n".join((*head, *lines, message))
    cause, context = found.get("cause"), found.get("context")
    if cause:
        why = "The above exception was the direct cause of the following exception:"
        return [*_chain(cause, deepest - 1), why, text]
    if context:
        why = "During handling of the above exception, another exception occurred:"
        return [*_chain(context, deepest - 1), why, text]
    return [text]


def _typed(value: Any) -> Any:
    """Give a value without what Pipes wraps it in, unless that says more than the value does."""
    if isinstance(value, dict) and "raw_value" in value and value.get("type", INFER) == INFER:
        return value["raw_value"]
    return value
