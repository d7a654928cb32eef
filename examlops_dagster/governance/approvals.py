"""Approvals in platform.db: asked for by a request, granted or refused by somebody else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.approvals import Approval, ApprovalState, Fingerprint
from examlops_dagster.core.records import Node
from examlops_dagster.errors import PolicyError, UsageError
from examlops_dagster.governance.audit import Entry, append
from examlops_dagster.governance.decision import Decision
from examlops_dagster.ledger.rows import dump_fingerprints, from_epoch, load_fingerprints, select
from examlops_dagster.store.engine import Connection, Database

ID_BYTES = 4


class Approvals:
    """Who waits for whom; safe for many processes.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock

    def listed(
        self, *, actor: str | None = None, action: str | None = None, everything: bool = True
    ) -> list[Approval]:
        """Give approvals as they are now, newest first.

        Parameters
        ----------
        everything
            False gives those that wait, and the grants and refusals that still hold.
        """
        with self._database.read() as connection:
            return _listed(
                connection, self._clock(), actor=actor, action=action, everything=everything
            )

    def standing(
        self, actor: str, action: str, nodes: Collection[Node], fingerprint: Fingerprint
    ) -> Approval | None:
        """Give the approval that is about a slice as it is now: asked for, granted or refused."""
        found = self.listed(actor=actor, action=action, everything=False)
        return next((a for a in found if a.covers(nodes, fingerprint)), None)

    def ask(
        self,
        actor: str,
        action: str,
        nodes: Mapping[Node, str],
        decision: Decision,
        source: str = "exa",
    ) -> Approval:
        """Ask for a slice; who asks for the same again gets the same.

        Parameters
        ----------
        nodes
            Fingerprint of each node.
        decision
            The rule that wants it.
        """
        now = self._clock()
        with self._database.write() as connection:
            for former in _listed(connection, now, actor=actor, action=action, everything=False):
                if dict(former.nodes) == dict(nodes):
                    return former
            approval = Approval(
                secrets.token_hex(ID_BYTES),
                action,
                actor,
                source,
                dict(nodes),
                decision.rule,
                decision.reason,
                ApprovalState.PENDING,
                now,
            )
            connection.execute(
                "INSERT INTO approvals (id, action, actor, source, nodes, rule, reason, state, "
                "asked_at, decided_by, comment) VALUES (:id, :action, :actor, :source, :nodes, "
                ":rule, :reason, 'pending', :now, '', '')",
                id=approval.id,
                action=action,
                actor=actor,
                source=source,
                nodes=dump_fingerprints(nodes),
                rule=decision.rule,
                reason=decision.reason,
                now=now.timestamp(),
            )
            append(connection, [_entry("approval_requested", actor, approval)], now)
        return approval

    def assets_of(self, id_: str) -> list[str]:
        """Give the names of the assets of the approvals whose id begins so."""
        found = [a for a in self.listed() if a.id.startswith(id_)]
        return list(dict.fromkeys(node.asset for a in found for node in a.nodes))

    def settle(
        self,
        id_: str,
        actor: str,
        *,
        grant: bool,
        comment: str = "",
        valid_for: timedelta,
        self_grant: bool = False,
    ) -> Approval:
        """Grant or refuse what somebody asked for.

        Parameters
        ----------
        id_
            Of the approval; its first letters are enough where they are clear.
        actor
            Who decides.
        valid_for
            How long it holds.
        self_grant
            Whether that may be the one who asked. To refuse one's own request is to take it back.

        Raises
        ------
        UsageError
            When there is no such approval, or it was decided before.
        PolicyError
            When somebody grants what he asked for.
        """
        now = self._clock()
        with self._database.write() as connection:
            found = [a for a in _listed(connection, now) if a.id.startswith(id_)] if id_ else []
            if len(found) != 1:
                number = f"{len(found)} approvals begin with" if found else "there is no approval"
                raise UsageError(f"{number} {id_!r} → exa approvals list")
            [approval] = found
            if approval.state is not ApprovalState.PENDING:
                by = f" by {approval.decided_by}" if approval.decided_by else ""
                raise UsageError(f"approval {approval.id} is {approval.state.value} already{by}")
            if grant and not self_grant and actor == approval.actor:
                raise PolicyError(
                    f"Blocked by policy: {actor} asked for approval {approval.id} and cannot grant "
                    "it → another actor grants it (EXAMLOPS_ACTOR says who one is)"
                )
            state = ApprovalState.GRANTED if grant else ApprovalState.REFUSED
            decided = replace(
                approval,
                state=state,
                decided_at=now,
                decided_by=actor,
                comment=comment,
                expires_at=now + valid_for,
            )
            connection.execute(
                "UPDATE approvals SET state = :state, decided_at = :now, decided_by = :actor, "
                "comment = :comment, expires_at = :until WHERE id = :id",
                state=state.value,
                now=now.timestamp(),
                actor=actor,
                comment=comment,
                until=(now + valid_for).timestamp(),
                id=approval.id,
            )
            word = "approval_granted" if grant else "approval_refused"
            append(connection, [_entry(word, actor, decided)], now)
        return decided


_APPROVALS = (
    "SELECT id, action, actor, source, nodes, rule, reason, state, asked_at, decided_at, "
    "decided_by, comment, expires_at FROM approvals"
)


def _entry(action: str, actor: str, approval: Approval) -> Entry:
    details: dict[str, Any] = {
        "approval": approval.id,
        "of": approval.action,
        "asked_by": approval.actor,
        "source": approval.source,
        "rule": approval.rule,
        "reason": approval.reason,
        "nodes": {str(node): text for node, text in approval.nodes.items()},
    }
    if approval.comment:
        details["comment"] = approval.comment
    if approval.expires_at is not None:
        details["expires_at"] = approval.expires_at.isoformat()
    return Entry(action, actor, list(dict.fromkeys(n.asset for n in approval.nodes)), details)


def _listed(
    connection: Connection,
    now: datetime,
    *,
    actor: str | None = None,
    action: str | None = None,
    everything: bool = True,
) -> list[Approval]:
    clauses = [] if everything else ["(state = 'pending' OR expires_at > :now)"]
    named: dict[str, Any] = {} if everything else {"now": now.timestamp()}
    for column, value in (("actor", actor), ("action", action)):
        if value is not None:
            clauses.append(f"{column} = :{column}")
            named[column] = value
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    rows = connection.execute(f"{_APPROVALS}{where} ORDER BY asked_at DESC, id", **named)
    found = [_as_it_is(connection, _approval(row), now) for row in rows]
    over = (ApprovalState.EXPIRED, ApprovalState.USED)
    return found if everything else [a for a in found if a.state not in over]


def _approval(row: Any) -> Approval:
    nodes = load_fingerprints(row[4])
    return Approval(
        row[0],
        row[1],
        row[2],
        row[3],
        nodes,
        row[5],
        row[6],
        ApprovalState(row[7]),
        from_epoch(row[8]),
        None if row[9] is None else from_epoch(row[9]),
        row[10],
        row[11],
        None if row[12] is None else from_epoch(row[12]),
    )


def _as_it_is(connection: Connection, approval: Approval, now: datetime) -> Approval:
    """Give an approval with its state now: a grant ends with its time, or with its slice built."""
    if approval.expires_at is not None and approval.expires_at <= now:
        return replace(approval, state=ApprovalState.EXPIRED)
    if approval.state is ApprovalState.GRANTED and _is_built(connection, approval):
        return replace(approval, state=ApprovalState.USED)
    return approval


def _is_built(connection: Connection, approval: Approval) -> bool:
    if approval.decided_at is None or not approval.nodes:
        return False
    rows = select(
        connection,
        "SELECT asset, partition, started_at FROM builds WHERE state IN ('succeeded', 'unchanged')",
        approval.nodes,
    )
    since = approval.decided_at.timestamp()
    done = {Node(asset, partition) for asset, partition, started in rows if started >= since}
    return approval.nodes.keys() <= done
