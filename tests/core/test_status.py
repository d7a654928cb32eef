"""The state of a node by itself and beside its upstreams, and which state goes before another."""

from dataclasses import replace

import pytest
from situations import BASE, CLAIM, DAILY, fingerprint, held, state, under
from worlds import XY, built, judged, record, source

from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import State


def test_below_a_runnable_node_is_runnable_too():
    verdicts = judged([built("a"), built("b", "a"), built("c", "b")])
    assert [verdicts[n].state for n in "abc"] == [State.RUNNABLE] * 3


def test_an_unadopted_source_is_settled():
    verdicts = judged([source("a"), built("b", "a")])
    assert [verdicts[n].state for n in "ab"] == [State.RUNNABLE] * 2


def test_an_unadopted_source_settles_even_where_it_is_manual():
    assert judged([source("a", freshness=Manual), built("b", "a")])["b"].state is State.RUNNABLE


def test_a_name_that_only_the_command_line_refers_to_is_undeclared():
    verdict = judged([source("b", upstreams=(Upstream("a b"),))])["a b"]
    assert state(verdict) == (State.UNDECLARED, "undeclared")
    assert verdict.note == "declare it: exa assets declare a b"


def test_below_an_undeclared_name_the_command_is_named():
    verdict = judged([source("b", upstreams=(Upstream("a"),))])["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.why[-1] == "upstream a is undeclared: exa assets declare a"


def test_a_record_that_nobody_declares_is_historical():
    verdicts = judged([built("a")], {"a": record(), "old": record(7)})
    assert state(verdicts["old"]) == (State.HISTORICAL, "historical")
    assert (verdicts["old"].version, verdicts["old"].why) == (7, ())


def test_a_partition_that_is_gone_is_historical():
    verdicts = judged([built("a", space=XY)], {Node("a", "z"): record()})
    assert verdicts[Node("a", "z")].state is State.HISTORICAL


def test_a_plain_dagster_asset_that_was_never_materialized_waits_for_request():
    external = Declaration("plain", NodeType.EXTERNAL)
    verdicts = judged([external, built("b", "plain")])
    assert verdicts["plain"].state is State.WAITING_FOR_REQUEST
    assert verdicts["b"].note == (
        "upstream plain is waiting for request: an asset of plain Dagster: materialize it there"
    )


def test_a_plain_dagster_asset_that_exists_is_fresh():
    external = Declaration("plain", NodeType.EXTERNAL)
    assert judged([external], {"plain": record()})["plain"].state is State.FRESH


@pytest.mark.parametrize(
    "how", [{"claims": {Node("a"): CLAIM}}, {"queued": frozenset([Node("a")])}], ids=str
)
@pytest.mark.parametrize("records", [{}, {"a": record()}], ids=["stale", "fresh"])
def test_what_is_claimed_or_queued_is_running(how, records):
    assert state(judged([built("a")], records, **how)["a"]) == (State.RUNNING, "running")


def test_below_a_running_node_waits_for_it():
    verdict = judged([built("a"), built("b", "a")], claims={Node("a"): CLAIM})["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.note == "upstream a is running"


def test_running_keeps_the_reasons():
    assert judged([built("a")], claims={Node("a"): CLAIM})["a"].why == ("never materialized",)


def test_a_stale_manual_node_waits_for_request_with_the_command():
    verdict = judged([built("a", freshness=Manual)])["a"]
    assert verdict.state is State.WAITING_FOR_REQUEST
    assert verdict.why == ("never materialized", "Manual: exa assets materialize a")


def test_a_fresh_manual_node_is_fresh():
    assert judged([built("a", freshness=Manual)], {"a": record()})["a"].state is State.FRESH


def test_a_stale_manual_node_blocks_what_is_below_transitively():
    declarations = [built("a", freshness=Manual), built("b", "a"), built("c", "b")]
    verdicts = judged(declarations, {"a": record(code="old")}, {"a": "new"})
    assert [verdicts[n].state for n in "bc"] == [State.WAITING_FOR_UPSTREAM] * 2
    assert verdicts["b"].note == "upstream a is waiting for request: exa assets materialize a"
    assert verdicts["c"].note == "upstream b is waiting for upstream: exa assets materialize b"


def test_a_fresh_manual_node_does_not_block():
    declarations = [built("a", freshness=Manual), built("b", "a")]
    assert judged(declarations, {"a": record()})["b"].state is State.RUNNABLE


def test_undeclared_goes_before_running():
    declarations = [source("b", upstreams=(Upstream("a"),))]
    verdict = judged(declarations, claims={Node("a"): CLAIM})["a"]
    assert verdict.state is State.UNDECLARED


def test_running_goes_before_failed():
    assert under(held(), claims={Node("b"): CLAIM}).state is State.RUNNING


def test_failed_goes_before_waiting_for_schedule():
    declaration = replace(BASE, freshness=DAILY)
    assert under(held(fingerprint=fingerprint(declaration)), declaration).state is State.FAILED


def test_waiting_for_schedule_goes_before_waiting_for_upstream():
    verdict = judged([built("a", freshness=Manual), built("b", "a", freshness=DAILY)])["b"]
    assert verdict.state is State.WAITING_FOR_SCHEDULE


def test_waiting_for_upstream_goes_before_waiting_for_request():
    verdict = judged([built("a", freshness=Manual), built("b", "a", freshness=Manual)])["b"]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
