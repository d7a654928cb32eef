"""Why something is not done, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why something is not done.

    Attributes
    ----------
    asset
        That it is about.
    rule
        Label of the rule; empty for a file that cannot be used.
    reason
        In words.
    approval
        Id of the approval that it waits for; empty where it is denied.
    """

    asset: str
    rule: str
    reason: str
    approval: str = ""

    def __str__(self) -> str:
        if self.approval:
            return f"Waiting for approval {self.approval}"
        return f"Blocked by policy: {self.reason}"


def with_remedy(refusal: Refusal) -> str:
    """Give a refusal in words, with what to do about it."""
    if not refusal.approval:
        return str(refusal)
    grant = f"exa approvals grant {refusal.approval}"
    return f"{refusal} ({refusal.reason}) → {grant}, then ask again"
