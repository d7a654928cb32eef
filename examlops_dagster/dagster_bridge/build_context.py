"""What a build asks of the step, or of the tick, that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dagster import DagsterInstance


class BuildContext(Protocol):
    """What a build asks of the step, or of the tick, that it is part of."""

    @property
    def run(self) -> Any:
        """The run, of which the id and the tags count."""

    @property
    def log(self) -> Any:
        """Where it tells what it does."""

    @property
    def retry_number(self) -> int:
        """How often the step was retried."""

    @property
    def instance(self) -> DagsterInstance:
        """Dagster's instance."""

    @property
    def resources(self) -> Any:
        """Holds the I/O manager."""

    @property
    def load_asset_value(self) -> Callable[..., Any]:
        """Loads the value of an asset that is not ours."""
