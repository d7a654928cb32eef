"""Approvals as data: what was asked for, by whom, and whether it may be done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from examlops_dagster.core.records import Node

Fingerprint = Callable[[Node, Collection[Node]], str]
"""Gives the fingerprint of a node in a slice: what the slice itself rebuilds does not change it."""


class ApprovalState(Enum):
    """What became of an approval; the value is what is stored."""

    PENDING = "pending"
    GRANTED = "granted"
    REFUSED = "refused"
    EXPIRED = "expired"
    USED = "used"


@dataclass(frozen=True)
class Approval:
    """One request for a slice that waits, or waited, for somebody.

    Attributes
    ----------
    actor, source
        Who asked, and how.
    nodes
        Fingerprint of each node of the slice.
    asked_at, decided_at, expires_at
        Aware UTC datetimes; the last is the end of a grant or a refusal.
    comment
        What who decided said.
    """

    id: str
    action: str
    actor: str
    source: str
    nodes: Mapping[Node, str]
    rule: str
    reason: str
    state: ApprovalState
    asked_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""
    comment: str = ""
    expires_at: datetime | None = None

    def covers(self, nodes: Collection[Node], fingerprint: Fingerprint) -> bool:
        """Tell whether it is about these nodes as they are now, or about more than these."""
        return all(
            node in self.nodes and self.nodes[node] == fingerprint(node, self.nodes)
            for node in nodes
        )

    @property
    def is_granted(self) -> bool:
        """Whether what it is about may be done."""
        return self.state is ApprovalState.GRANTED

    def note(self, reason: str) -> str:
        """Say what it holds up, for a reason in words; empty where it is granted."""
        if self.is_granted:
            return ""
        if self.state is ApprovalState.REFUSED:
            return f"Blocked by policy: {self.words}"
        return f"waiting for approval {self.id}: {reason} → exa approvals grant {self.id}"

    @property
    def words(self) -> str:
        """What a refused one says to who asks again."""
        said = f": {self.comment}" if self.comment else ""
        return f"approval {self.id} was refused by {self.decided_by}{said}"


@dataclass(frozen=True)
class Gate:
    """Why automation may not build an asset by itself.

    Attributes
    ----------
    reason
        The rule in words.
    rule
        Its label.
    needs_approval
        Whether somebody may let it pass.
    approvals
        Of this asset, asked for by automation, as they are now; newest first.
    """

    reason: str
    rule: str = ""
    needs_approval: bool = False
    approvals: tuple[Approval, ...] = ()

    def approval(self, node: Node, fingerprint: Fingerprint) -> Approval | None:
        """Give the approval that is about a node as it is now."""
        return next((a for a in self.approvals if a.covers([node], fingerprint)), None)

    def note(self, node: Node, fingerprint: Fingerprint) -> str:
        """Say what holds a node up; empty where it may be built."""
        if not self.needs_approval:
            return f"Blocked by policy: {self.reason}"
        found = self.approval(node, fingerprint)
        if found is None:
            return f"needs approval: {self.reason}"
        return found.note(self.reason)
