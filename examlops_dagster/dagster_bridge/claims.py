"""The right to build a node, which one build at a time has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from examlops_dagster.core.records import Claim, Node
from examlops_dagster.core.seams import Progress
from examlops_dagster.dagster_bridge.build_context import BuildContext
from examlops_dagster.dagster_bridge.pauses import pause
from examlops_dagster.dagster_bridge.runtime import Runtime

if TYPE_CHECKING:
    from typing_extensions import Self

CLAIM_POLL_SECONDS = 0.5


class NodeClaim:
    """Keeps everybody else from building a node; as a context, taken and given back.

    Parameters
    ----------
    context, runtime
        Of the step, or of the tick.
    node
        Asset and partition.
    progress
        Told whom it waits for, besides the log.
    """

    def __init__(
        self,
        context: BuildContext,
        runtime: Runtime,
        node: Node,
        progress: Progress | None = None,
    ) -> None:
        self.node = node
        self.token = os.urandom(16).hex()
        self._context = context
        self._runtime = runtime
        self._progress = progress

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def try_to_take(self) -> bool:
        """Claim the node, unless somebody else builds it now."""
        return self._asked() is None

    def take(self) -> None:
        """Claim the node; waits for who builds it now."""
        told: Claim | None = None
        while True:
            held = self._asked()
            if held is None:
                if told is not None:  # what others wrote meanwhile
                    self._runtime.event_log.sync()
                return
            if told is None or told.token != held.token:
                told = held
                text = f"{self.node} is being built by {_shown(held)}; waiting for it"
                self._context.log.info(text)
                if self._progress is not None:
                    self._progress(text)
            pause(CLAIM_POLL_SECONDS)

    @property
    def is_ours(self) -> bool:
        """Whether nobody took it over meanwhile."""
        return self._runtime.ledger.is_claimed(self.node, self.token)

    def release(self) -> None:
        """Give the claim back."""
        self._runtime.ledger.release(self.node, self.token)

    def _asked(self) -> Claim | None:
        return self._runtime.ledger.claim(self.node, self.token, self._context.run.run_id)


def _shown(claim: Claim) -> str:
    run = f"run {claim.run_id}, " if claim.run_id else ""
    return f"{run}process {claim.pid} on {claim.host}"
