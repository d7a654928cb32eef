"""What automation asks for: one approval for a slice, and none for what waits for other things."""

import pytest
from worlds import NOW, built, graph_of, names, record, snapshot, source

from examlops_dagster.core.approvals import Approval, ApprovalState, Gate
from examlops_dagster.core.asking import slices_to_ask
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.partitions import partitions
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge

CHAIN = (source("PM100"), built("a", "PM100"), built("b", "a"), built("c", "b"))


def judge_of(declarations, gated, records=None, denied=(), approvals=()):
    gates = {name: Gate("asked", "r", needs_approval=True, approvals=approvals) for name in gated}
    gates |= {name: Gate("denied", "d") for name in denied}
    return Judge(graph_of(*declarations), snapshot(records, gates=gates), {})


def asked(declarations, gated, records=None, **more):
    judge = judge_of(declarations, gated, records, **more)
    return [names(each.nodes) for each in slices_to_ask(judge, judge.all())]


def test_a_chain_is_asked_for_at_once_with_what_lies_between():
    assert asked(CHAIN, "ac") == [["PM100", "a", "b", "c"]]


def test_without_a_gate_nothing_is_asked_for():
    assert asked(CHAIN, "") == []


def test_slices_that_do_not_hang_together_are_asked_for_apart():
    declarations = (source("PM100"), built("a", "PM100"), built("b", "PM100"))
    assert asked(declarations, "ab") == [["PM100", "a"], ["PM100", "b"]]


def test_what_is_above_and_may_run_is_built_first():
    assert asked(CHAIN, "b") == []
    records = {"PM100": record(), "a": record(of={"PM100": (1, "d1")})}
    assert asked(CHAIN, "b", records) == [["b", "c"]]


def test_all_partitions_are_one_slice():
    space = {"k": partitions("xy")}
    declarations = (source("PM100"), built("a", "PM100", space=space))
    assert asked(declarations, "a") == [["PM100", "a[x]", "a[y]"]]


def test_a_source_is_asked_for_with_what_would_adopt_it_and_never_alone():
    assert asked(CHAIN[:2], ["PM100"]) == [["PM100", "a"]]
    assert asked((source("PM100"), built("a", "PM100", freshness=Manual)), ["PM100"]) == []


def test_what_is_denied_or_manual_is_in_no_slice():
    assert asked(CHAIN, "a", denied="b") == [["PM100", "a"]]
    below = built("b", "a", freshness=Manual)
    assert asked((*CHAIN[:2], below), "ab") == [["PM100", "a"]]


@pytest.mark.parametrize("state", [ApprovalState.PENDING, ApprovalState.REFUSED])
def test_what_was_asked_for_already_is_not_asked_for_again(state):
    judge = judge_of(CHAIN, "abc")
    [first] = slices_to_ask(judge, judge.all())
    nodes = {node: judge.fingerprint(node, first.nodes) for node in first.nodes}
    approval = Approval("1", "build", "automation", "automation", nodes, "r", "", state, NOW)
    assert asked(CHAIN, "abc", approvals=(approval,)) == []
    more = (*CHAIN, built("d", "c"), built("e", "PM100"))
    assert asked(more, "abcde", approvals=(approval,)) == [["PM100", "e"]]
    assert Node("e") not in nodes
