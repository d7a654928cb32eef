"""The reasons for which a node is stale, and those that do not hold for records made outside."""

from dataclasses import replace

import pytest
from situations import DAILY, TODAY_5, read
from worlds import built, judged, record, source

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.verdicts import State


def test_reason_1_it_was_never_materialized():
    verdict = judged([built("a")])["a"]
    assert verdict.why == ("never materialized",)
    assert verdict.version == 0


def test_reason_2_its_code_changed():
    verdict = judged([built("a")], {"a": record(code="old")}, {"a": "new"})["a"]
    assert verdict.why == ("code changed",)


@pytest.mark.parametrize(("recorded", "loaded"), [("x", {"a": "x"}), (None, {"a": "x"}), ("x", {})])
def test_code_that_is_equal_or_unknown_is_no_reason(recorded, loaded):
    assert judged([built("a")], {"a": record(code=recorded)}, loaded)["a"].state is State.FRESH


def test_reason_3_an_upstream_was_declared_since():
    verdict = judged([source("a"), built("b", "a")], {"a": record(), "b": record()})["b"]
    assert verdict.why == ("upstream a not recorded at build",)


def test_reason_4_an_upstream_changed():
    records = {"a": record(4), "b": record(of={"a": (3, "d3")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (3 → 4)",)


def test_an_upstream_with_a_new_number_and_the_same_content_is_no_reason():
    records = {"a": record(5, "same"), "b": record(of={"a": (3, "same")})}
    assert judged([source("a"), built("b", "a")], records)["b"].state is State.FRESH


def test_an_upstream_with_the_same_number_and_new_content_is_a_reason():
    records = {"a": record(3, "new"), "b": record(of={"a": (3, "old")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (3 → 3)",)


def test_reason_5_an_upstream_was_removed():
    verdict = judged([built("b")], {"b": record(of={"a": (1, "d1")})})["b"]
    assert verdict.why == ("upstream a removed",)


def test_reason_6_a_tick_passed():
    verdict = judged([built("a", freshness=DAILY)], {"a": record(at=TODAY_5)})["a"]
    assert verdict.why == ("tick 2026-01-05 06:00 passed",)


def test_reason_7_an_upstream_is_stale():
    verdicts = judged([source("a"), built("b", "a"), built("c", "b")], read("c", "b"))
    assert verdicts["c"].why == ("upstream b is stale",)


def test_all_reasons_are_given():
    declarations = [source("a"), built("b", "a"), built("new"), built("c", "b", "a", "new")]
    records = {
        "a": record(2),
        "b": record(of={"a": (1, "d1")}),
        "new": record(),
        "c": record(of={"b": (1, "d1"), "a": (1, "d1"), "gone": (1, "d1")}, code="old"),
    }
    verdict = judged(declarations, records, {"c": "new"})["c"]
    assert verdict.why == (
        "code changed",
        "upstream a changed (1 → 2)",
        "upstream new not recorded at build",
        "upstream gone removed",
        "upstream b is stale",
    )


def test_an_upstream_that_is_a_dep_and_an_input_gives_its_reasons_once():
    records = {"a": record(2), "b": record(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a", Upstream("a", "value"))], records)["b"]
    assert verdict.why == ("upstream a changed (1 → 2)",)


def test_what_was_built_from_what_exists_is_fresh():
    verdicts = judged([source("a"), built("b", "a")], read("b", "a"))
    assert [v.state for v in verdicts.values()] == [State.FRESH] * 4


def outside(**more):
    return record(build_id="", **more)


def test_rule_4_holds_for_a_record_made_outside_which_says_so():
    records = {"a": record(2), "b": outside(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a changed (1 → 2)", "inputs not recorded")


def test_rule_4_says_so_where_something_else_holds_it_up_too():
    records = {"a": record(2), "b": outside(of={"a": (1, "d1")})}
    verdict = judged([source("a"), built("b", "a", freshness=Manual)], records)["b"]
    assert verdict.note == "inputs not recorded; Manual: exa assets materialize b"


def test_rule_2_does_not_hold_for_a_record_made_outside():
    verdict = judged([built("a")], {"a": outside(code="old")}, {"a": "new"})["a"]
    assert verdict.state is State.FRESH


@pytest.mark.parametrize("of", [{}, {"other": (1, "d1")}])
def test_rule_3_does_not_hold_for_a_record_made_outside(of):
    declarations = [source("a"), source("other"), built("b", "a", *of)]
    records = {"a": record(), "other": record(), "b": outside(of=of)}
    assert judged(declarations, records)["b"].state is State.FRESH


def test_a_record_whose_inputs_nobody_knows_is_fresh():
    records = {"a": record(), "b": replace(outside(), built_from=None)}
    assert judged([source("a"), built("b", "a")], records)["b"].state is State.FRESH
