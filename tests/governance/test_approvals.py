from datetime import timedelta

import pytest
from clock import Clock
from worlds import NOW

from examlops_dagster.core.approvals import ApprovalState
from examlops_dagster.core.records import Attempt, Node
from examlops_dagster.errors import PolicyError, UsageError
from examlops_dagster.governance.approvals import Approvals
from examlops_dagster.governance.audit import Audit
from examlops_dagster.governance.decision import Decision, Effect
from examlops_dagster.ledger.builds import BuildsLedger

A, B, C = Node("a"), Node("b"), Node("c", "2026-01-05")
SLICE = {A: "fa", B: "fb"}
WANTED = Decision(Effect.REQUIRE_APPROVAL, "gpus", "a: matched policy rule 'gpus'")
DAY = timedelta(hours=24)


@pytest.fixture
def clock():
    return Clock(NOW)


@pytest.fixture
def approvals(any_database, clock):
    return Approvals(any_database, clock)


def asked(approvals, nodes=SLICE, actor="alice"):
    return approvals.ask(actor, "asset_materialize", nodes, WANTED)


def standing(approvals, nodes=SLICE, actor="alice", action="asset_materialize"):
    return approvals.standing(actor, action, nodes, lambda node, within: nodes[node])


def settled(approvals, approval, actor="bob", **how):
    how.setdefault("grant", True)
    return approvals.settle(approval.id, actor, valid_for=DAY, **how)


def built(database, clock, node):
    ledger = BuildsLedger(database, clock)
    attempt = Attempt(node, f"{node}{clock()}", "fp", "code", {}, "local")
    ledger.begin(attempt)
    ledger.complete(attempt, ledger.allot(attempt, "d"), "d", {})


def test_the_same_slice_asked_for_again_is_the_same_approval(approvals):
    first = asked(approvals)
    assert asked(approvals).id == first.id
    assert standing(approvals).state is ApprovalState.PENDING
    assert len(approvals.listed()) == 1


@pytest.mark.parametrize(
    ("nodes", "actor"),
    [({A: "fa", B: "changed"}, "alice"), (SLICE, "carol"), ({**SLICE, C: "fc"}, "alice")],
    ids=["another fingerprint", "another actor", "a larger slice"],
)
def test_a_grant_is_for_that_slice_and_that_actor(approvals, nodes, actor):
    settled(approvals, asked(approvals))
    assert standing(approvals).state is ApprovalState.GRANTED
    assert standing(approvals, nodes, actor) is None
    assert standing(approvals, action="declare") is None


def test_a_grant_covers_what_is_left_of_its_slice(approvals, any_database, clock):
    settled(approvals, asked(approvals))
    clock.advance(minutes=1)
    built(any_database, clock, A)
    assert standing(approvals, {B: "fb"}).state is ApprovalState.GRANTED


def test_a_grant_is_used_up_when_its_slice_is_built(approvals, any_database, clock):
    built(any_database, clock, A)
    built(any_database, clock, B)
    clock.advance(minutes=1)
    approval = settled(approvals, asked(approvals))
    clock.advance(minutes=1)
    assert standing(approvals) is not None
    built(any_database, clock, A)
    built(any_database, clock, B)
    assert standing(approvals) is None
    assert approvals.listed()[0].state is ApprovalState.USED
    assert asked(approvals).id != approval.id


def test_a_grant_ends_with_its_time(approvals, clock):
    settled(approvals, asked(approvals))
    clock.advance(hours=23, minutes=59)
    assert standing(approvals).state is ApprovalState.GRANTED
    clock.advance(minutes=1)
    assert standing(approvals) is None
    assert approvals.listed()[0].state is ApprovalState.EXPIRED
    assert approvals.listed(everything=False) == []


def test_a_refusal_holds_as_long_and_says_who_and_why(approvals, clock):
    approval = asked(approvals)
    settled(approvals, approval, grant=False, comment="too late")
    assert standing(approvals).words == f"approval {approval.id} was refused by bob: too late"
    clock.advance(hours=24)
    assert standing(approvals) is None


def test_nobody_grants_what_he_asked_for(approvals):
    approval = asked(approvals)
    with pytest.raises(PolicyError, match=f"alice asked for approval {approval.id}"):
        settled(approvals, approval, actor="alice")
    assert standing(approvals).state is ApprovalState.PENDING
    granted = settled(approvals, approval, actor="alice", self_grant=True)
    assert granted.decided_by == "alice"


def test_who_asked_may_take_it_back(approvals):
    settled(approvals, asked(approvals), actor="alice", grant=False)
    assert standing(approvals).state is ApprovalState.REFUSED


def test_what_was_decided_is_not_decided_again(approvals, clock):
    approval = asked(approvals)
    settled(approvals, approval)
    with pytest.raises(UsageError, match="is granted already by bob"):
        settled(approvals, approval, grant=False)
    clock.advance(days=2)
    with pytest.raises(UsageError, match="is expired already"):
        settled(approvals, approval)


def test_an_approval_is_named_by_how_its_id_begins(approvals):
    approval = asked(approvals)
    with pytest.raises(UsageError, match="there is no approval ''"):
        approvals.settle("", "bob", grant=True, valid_for=DAY)
    with pytest.raises(UsageError, match="there is no approval 'zz' → exa approvals list"):
        approvals.settle("zz", "bob", grant=True, valid_for=DAY)
    assert approvals.settle(approval.id[:6], "bob", grant=True, valid_for=DAY).id == approval.id


def test_request_grant_and_refusal_are_in_the_audit_log(approvals, any_database):
    settled(approvals, asked(approvals))
    settled(approvals, asked(approvals, {C: "fc"}), grant=False, comment="no")
    rows = list(Audit(any_database).rows())
    assert [(r.action, r.actor, r.assets) for r in rows] == [
        ("approval_requested", "alice", ("a", "b")),
        ("approval_granted", "bob", ("a", "b")),
        ("approval_requested", "alice", ("c",)),
        ("approval_refused", "bob", ("c",)),
    ]
    assert rows[-1].details["nodes"] == {"c[2026-01-05]": "fc"}
    assert rows[-1].details["comment"] == "no"
