"""Which steps of an execution may start now, asked for by kind.

Rests on `ActiveExecution` of Dagster 1.13, the state machine of all its executors.
"""

from __future__ import annotations

from collections.abc import Callable

from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.step import ExecutionStep


class StepsByKind(ActiveExecution):
    """Dagster's state of an execution, which can be asked for steps of one kind."""

    _frozen = False

    def take(
        self, wanted: Callable[[ExecutionStep], bool], limit: int | None
    ) -> list[ExecutionStep]:
        """Take steps of a kind that may start; claims their places in pools.

        Those of another kind stay as they are, without a place that others may need.

        Parameters
        ----------
        limit
            How many; None for all.
        """
        self._update()
        chosen = {key for key in self._executable if wanted(self.get_step_by_key(key))}
        others = [key for key in self._executable if key not in chosen]
        self._executable = [key for key in self._executable if key in chosen]
        self._frozen = True
        try:
            return list(self.get_steps_to_execute(limit))
        finally:
            self._frozen = False
            self._executable += others

    @property
    def has_to_look(self) -> bool:
        """Whether a step may start though nothing happens: at a time, or by other runs."""
        pools = self._instance_concurrency_context
        return bool(self._waiting_to_retry or (pools is not None and pools.has_pending_claims()))

    def _update(self) -> None:
        if not self._frozen:
            super()._update()
