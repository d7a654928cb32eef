"""What a job said about its asset over Dagster Pipes."""

from __future__ import annotations

import logging
from typing import Any

from examlops_dagster.schedulers.messages import Message

_LEVELS = {
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
}

_logger = logging.getLogger(__name__)


class Reported:
    """Collects metadata and data version of one asset; logs what the job logs.

    Parameters
    ----------
    asset
        Its name; what is reported of others is told and left.
    """

    def __init__(self, asset: str) -> None:
        self._asset = asset
        self.metadata: dict[str, Any] = {}
        self.data_version: str | None = None

    def clear(self) -> None:
        """Forget what a former attempt said."""
        self.metadata = {}
        self.data_version = None

    def hear(self, message: Message) -> None:
        """Take one message."""
        params = message.params
        if message.method == "log":
            level = _LEVELS.get(str(params.get("level", "")).upper(), logging.INFO)
            _logger.log(level, "%s: %s", self._asset, params.get("message"))
        elif message.method == "report_asset_materialization":
            key = params.get("asset_key")
            if key not in (None, self._asset):
                _logger.warning("%s: its job reported %s, which is not its own", self._asset, key)
                return
            version = params.get("data_version")
            self.data_version = version if isinstance(version, str) else self.data_version
            found = params.get("metadata")
            if isinstance(found, dict):
                self.metadata.update({name: _raw(value) for name, value in found.items()})


def _raw(value: Any) -> Any:
    """Give a value without the type that Pipes wraps it in."""
    return value["raw_value"] if isinstance(value, dict) and "raw_value" in value else value
