"""What policy would say to a request for a plan: asked of nobody, and recorded nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from examlops_dagster.core.approvals import Approval, Fingerprint
from examlops_dagster.core.plan import Plan
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge
from examlops_dagster.governance.decision import Action, Decision, Effect
from examlops_dagster.governance.refusals import Refusal
from examlops_dagster.governance.request_rows import AUTOMATION
from examlops_dagster.project.reader import ProjectReader


@dataclass(frozen=True)
class Foreseen:
    """What policy says of one asset that it does not plainly allow.

    Attributes
    ----------
    approval
        That is about it as it is now, or None.
    """

    asset: str
    decision: Decision
    approval: Approval | None = None

    @property
    def passes(self) -> bool:
        """Whether it may be built all the same."""
        return self.approval is not None and self.approval.is_granted

    @property
    def why(self) -> str:
        """What it says in words, as the request itself would be told."""
        reason = self.decision.reason
        if self.decision.effect is Effect.DENY:
            return str(Refusal(self.asset, self.decision.rule, reason))
        if self.approval is None:
            return f"needs approval: {reason}"
        return self.approval.note(reason) or f"approved ({self.approval.id}): {reason}"

    @property
    def as_json(self) -> dict[str, Any]:
        """As ``--json`` and the API show it."""
        return {
            "rule": self.decision.rule,
            "decision": self.decision.effect.value,
            "passes": self.passes,
            "approval": None if self.approval is None else self.approval.id,
            "why": self.why,
        }


def foreseen(
    project: ProjectReader, plan: Plan, *, actor: str | None = None, source: str = "exa"
) -> dict[str, Foreseen]:
    """Give what policy says of the assets of a plan, by name; nothing of what it allows.

    Parameters
    ----------
    actor, source
        Who would ask for it, and how; by default the actor of this home. For what is blocked in a
        plan of all that is due automation is the one who asks.
    """
    if project.governor.policy is None:
        return {}
    whole = {step.node for step in plan.steps}
    by_name: dict[str, set[Node]] = {}
    for node in whole:
        by_name.setdefault(node.asset, set()).add(node)
    # a request for names is asked for as a whole, all that is due asset by asset
    slices: Mapping[str, Collection[Node]] = dict.fromkeys(by_name, whole)
    found = _asked(
        project, slices if plan.targets else by_name, actor or project.home.actor, source
    )
    if not plan.targets:
        left = {blocked.node.asset: [blocked.node] for blocked in plan.blocked}
        found.update(_asked(project, left, AUTOMATION, AUTOMATION))
    return found


def _asked(
    project: ProjectReader, slices: Mapping[str, Collection[Node]], actor: str, source: str
) -> dict[str, Foreseen]:
    governor = project.governor
    decisions = governor.decide(project.wishes(slices), actor, source)
    fingerprint: Fingerprint | None = None
    found: dict[str, Foreseen] = {}
    for name, decision in decisions.items():
        approval = None
        if decision.effect is Effect.REQUIRE_APPROVAL:
            if fingerprint is None:
                snapshot = project.snapshot()
                fingerprint = Judge(project.graph, snapshot, project.code_versions).fingerprint
            approval = governor.approvals.standing(
                actor, Action.MATERIALIZE.value, slices[name], fingerprint
            )
        found[name] = Foreseen(name, decision, approval)
    return found
