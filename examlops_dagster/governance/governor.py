"""Asks policy, and sees to it that what was asked and done is in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.approvals import Approval, ApprovalState, Fingerprint, Gate
from examlops_dagster.core.records import Node
from examlops_dagster.errors import PolicyError
from examlops_dagster.governance.approvals import Approvals
from examlops_dagster.governance.audit import Audit, Entry
from examlops_dagster.governance.audit_requests import Requests
from examlops_dagster.governance.decision import Action, Decision, Effect, Question
from examlops_dagster.governance.policy import Policy, load_policy
from examlops_dagster.governance.refusals import Refusal, with_remedy
from examlops_dagster.governance.request_rows import AUTOMATION, Request
from examlops_dagster.governance.wishes import Wish
from examlops_dagster.home import Home
from examlops_dagster.store.engine import Database

_logger = logging.getLogger(__name__)


class Governor:
    """Policy, approvals and audit of one home.

    Parameters
    ----------
    home
        Where ``policy.yaml`` is looked for; says who asks.
    database
        An open platform.db with its tables.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(
        self, home: Home, database: Database, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.home = home
        self.clock = clock
        self.audit = Audit(database, clock)
        self.approvals = Approvals(database, clock)
        self.requests = Requests(database, clock)

    @property
    def policy(self) -> Policy | None:
        """What is in force now; None allows everything."""
        return load_policy(self.home)

    def decide(self, wishes: Iterable[Wish], actor: str, source: str) -> dict[str, Decision]:
        """Give what policy says of each asset that it does not plainly allow; asks nobody else."""
        policy = self.policy
        if policy is None:
            return {}
        found = {wish.asset: policy.decide(wish.question(actor, source)) for wish in wishes}
        return {n: decision for n, decision in found.items() if decision.effect is not Effect.ALLOW}

    def refusals(
        self,
        wishes: Iterable[Wish],
        nodes: Collection[Node],
        fingerprint: Callable[[], Fingerprint],
        *,
        actor: str,
        source: str,
        details: Mapping[str, Any] | None = None,
    ) -> list[Refusal]:
        """Say why a slice may not be built; nothing where it may.

        What is denied is recorded; what needs an approval that nobody gave yet is asked for.

        Parameters
        ----------
        wishes
            Each asset of the slice.
        nodes
            The nodes of the slice.
        fingerprint
            Called only where an approval is needed.
        details
            For the audit log.
        """
        decisions = self.decide(wishes, actor, source)
        denied = {n: d for n, d in decisions.items() if d.effect is Effect.DENY}
        if denied:
            refused = [Refusal(name, d.rule, d.reason) for name, d in denied.items()]
            self._record_denial(Action.MATERIALIZE, refused, nodes, actor, source, details or {})
            return refused
        if not decisions:
            return []
        refusal = self._approved(
            Action.MATERIALIZE, next(iter(decisions.items())), nodes, fingerprint(), actor, source
        )
        if refusal is not None and not refusal.approval:
            self._record_denial(Action.MATERIALIZE, [refusal], nodes, actor, source, details or {})
        return [] if refusal is None else [refusal]

    def gates(self, wishes: Iterable[Wish]) -> dict[str, Gate]:
        """Give what keeps automation from building each asset by itself, for a Snapshot."""
        decisions = self.decide(wishes, AUTOMATION, AUTOMATION)
        if not decisions:
            return {}
        approvals = self.approvals.listed(
            actor=AUTOMATION, action=Action.MATERIALIZE.value, everything=False
        )
        return {
            name: Gate(
                decision.reason,
                decision.rule,
                decision.effect is Effect.REQUIRE_APPROVAL,
                tuple(a for a in approvals if any(n.asset == name for n in a.nodes)),
            )
            for name, decision in decisions.items()
        }

    def note_denied(
        self, asset: str, gate: Gate, nodes: Sequence[Node], fingerprint: Fingerprint
    ) -> None:
        """Record, once for a fingerprint, that automation was kept from building nodes."""
        entries = [
            Entry(
                f"{Action.MATERIALIZE.value}_denied",
                AUTOMATION,
                [asset],
                {"nodes": [str(node)], "reason": gate.reason, "source": AUTOMATION},
                once=f"denied {AUTOMATION} {node} {fingerprint(node, ())} {self._digest}",
            )
            for node in nodes
        ]
        if entries:
            self.keep(lambda: self.audit.append(*entries))

    def ask_for_automation(
        self, gate: Gate, nodes: Sequence[Node], fingerprint: Fingerprint
    ) -> None:
        """Ask for a slice that automation would build.

        Parameters
        ----------
        gate
            Of one of its assets.
        nodes
            What would be built, and adopted.
        """
        self.approvals.ask(
            AUTOMATION,
            Action.MATERIALIZE.value,
            {node: fingerprint(node, nodes) for node in nodes},
            Decision(Effect.REQUIRE_APPROVAL, gate.rule, gate.reason),
            AUTOMATION,
        )

    def require(self, action: Action, asset: str, source: str = "exa", **facts: Any) -> None:
        """Ask policy for anything but a build.

        Parameters
        ----------
        facts
            Further names of conditions: kind, resources, ...

        Raises
        ------
        PolicyError
            When it is denied, or waits for an approval; recorded.
        """
        policy = self.policy
        if policy is None:
            return
        actor = self.home.actor
        decision = policy.decide(Question(action, asset, actor, source, **facts))
        if decision.effect is Effect.ALLOW:
            return
        refusal: Refusal | None = Refusal(asset, decision.rule, decision.reason)
        if decision.effect is Effect.REQUIRE_APPROVAL:
            text = repr(sorted(facts.items()))
            refusal = self._approved(
                action, (asset, decision), [Node(asset)], lambda *_: text, actor, source
            )
        if refusal is None:
            return
        if not refusal.approval:
            self._record_denial(action, [refusal], [Node(asset)], actor, source, {})
        raise PolicyError(with_remedy(refusal))

    def settle_approval(self, id_: str, *, grant: bool, comment: str = "") -> Approval:
        """Grant or refuse an approval as the actor of this home.

        Raises
        ------
        UsageError
            When there is no such approval, or it was decided before.
        PolicyError
            When policy does not let this actor decide.
        """
        policy = self.policy or Policy(Path())
        if policy.problem:
            raise PolicyError(f"Blocked by policy: {policy.problem}")
        actor = self.home.actor
        if grant:
            for asset in self.approvals.assets_of(id_):
                decision = policy.decide(Question(Action.APPROVE, asset, actor))
                if decision.effect is not Effect.ALLOW:
                    raise PolicyError(f"Blocked by policy: {decision.reason}")
        return self.approvals.settle(
            id_,
            actor,
            grant=grant,
            comment=comment,
            valid_for=policy.valid_for,
            self_grant=policy.self_grant,
        )

    @contextmanager
    def recorded(
        self,
        action: Action,
        asset: str,
        *,
        actor: str | None = None,
        source: str = "exa",
        **details: Any,
    ) -> Iterator[dict[str, Any]]:
        """Record what is done inside, also if this process dies over it.

        Yields
        ------
        dict
            For what is known of it at the end.
        """
        nodes = {Node(asset): ""}
        who = actor or self.home.actor
        request = self.opened(action.value, who, source, nodes, details, brief=True)
        found: dict[str, Any] = {}
        try:
            yield found
        except BaseException as error:
            found["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.closed(request, found)

    def opened(self, *arguments: Any, **named: Any) -> Request | None:
        """Open a request (see `Requests.open`); None where the store does not take it."""
        found: Request | None = self.keep(lambda: self.requests.open(*arguments, **named))
        return found

    def acts_for(self, request: Request | None, run_id: str) -> None:
        """Note that a run acts for a request."""
        if request is not None:
            self.keep(lambda: self.requests.bind(request, run_id))

    def closed(self, request: Request | None, details: Mapping[str, Any]) -> None:
        """Record the end of a request."""
        if request is not None:
            self.keep(lambda: self.requests.close(request, details))

    def settle(self) -> None:
        """Record what nobody recorded."""
        self.keep(self.requests.settle)

    @staticmethod
    def keep(write: Callable[[], Any]) -> Any:
        """Write to the audit log; what it does not take is told, and stops nothing."""
        try:
            return write()
        except Exception:
            _logger.exception("a row of the audit log was lost")
            return None

    @property
    def _digest(self) -> str:
        policy = self.policy
        return policy.digest if policy is not None else ""

    def _approved(
        self,
        action: Action,
        asked: tuple[str, Decision],
        nodes: Collection[Node],
        fingerprint: Fingerprint,
        actor: str,
        source: str,
    ) -> Refusal | None:
        asset, decision = asked
        found = self.approvals.standing(actor, action.value, nodes, fingerprint)
        if found is None or (
            found.state is ApprovalState.PENDING and found.nodes.keys() != set(nodes)
        ):
            slice_ = {node: fingerprint(node, nodes) for node in nodes}
            found = self.approvals.ask(actor, action.value, slice_, decision, source)
        if found.state is ApprovalState.GRANTED:
            return None
        if found.state is ApprovalState.REFUSED:
            return Refusal(asset, decision.rule, found.words)
        return Refusal(asset, decision.rule, decision.reason, found.id)

    def _record_denial(
        self,
        action: Action,
        refused: Sequence[Refusal],
        nodes: Collection[Node],
        actor: str,
        source: str,
        details: Mapping[str, Any],
    ) -> None:
        told = {
            "source": source,
            "reason": refused[0].reason,
            "rule": refused[0].rule,
            "denied": [each.asset for each in refused],
            "nodes": list(map(str, nodes)),
            "policy": self._digest,
            **details,
        }
        assets = list(dict.fromkeys(node.asset for node in nodes))
        entry = Entry(f"{action.value}_denied", actor, assets, told)
        self.keep(lambda: self.audit.append(entry))


def require(
    place: Any,
    action: str,
    asset: str,
    *,
    source: str = "exa",
    **facts: Any,
) -> None:
    """Ask policy whether something may be done to an asset.

    Parameters
    ----------
    place
        A project, or anything else with a ``governor``.
    action
        As policy.yaml names it: declare, source_changed, snapshot, cancel, ...
    facts
        Further names of conditions, such as ``kind``.

    Raises
    ------
    PolicyError
        When policy denies it, or somebody has to approve it first.
    """
    governor: Governor = place.governor
    governor.require(Action.named(action), asset, source, **facts)
