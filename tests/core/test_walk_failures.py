"""Builds that fail, are interrupted or are claimed by another."""

import pytest
from worlds import XY, World, built, fails, names, says, source

from examlops_dagster.core.failures import last_line, state_of
from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.verdicts import State
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
)


@pytest.fixture
def broken(clock):
    return World(
        clock,
        source("a"),
        built("b", "a", function=fails),
        built("c", "b"),
        built("beside", "a"),
        built("below", "c"),
    )


def test_a_failed_build_records_no_version(broken):
    broken.materialize("below")
    assert set(broken.ledger.records()) == {Node("a")}
    assert broken.ledger.attempts[-1][1] is BuildState.FAILED


def test_a_failed_build_shows_the_last_line_of_its_error(broken):
    broken.materialize("below")
    verdict = broken.status()[Node("b")]
    assert (verdict.state, verdict.note) == (State.FAILED, "ValueError: no luck")


def test_a_failed_build_lets_other_branches_go_on(broken):
    outcome = broken.materialize("below", "beside")
    assert names(outcome.rebuilt) == ["a", "beside"]
    assert names(outcome.failed) == ["b"]
    assert names(outcome.not_tried) == ["c", "below"]


def test_a_failed_partition_lets_the_others_go_on(clock):
    def picky(key):
        if key == "x":
            raise ValueError("not x")

    world = World(clock, built("a", function=picky, space=XY), built("b", "a", space=XY))
    outcome = world.materialize(*(Node("b", k) for k in "xy"))
    assert names(outcome.rebuilt) == ["a[y]", "b[y]"]
    assert (names(outcome.failed), names(outcome.not_tried)) == (["a[x]"], ["b[x]"])


def test_a_failed_build_gives_its_claim_back(broken):
    broken.materialize("below")
    assert broken.ledger.claims() == {}


def test_what_is_used_up_is_not_due_until_somebody_asks(broken):
    broken.materialize("b")
    assert "b" not in names(s.node for s in broken.due().steps)
    broken.materialize("b")
    assert broken.orchestrator.called == ["b", "b"]


def test_an_explicit_request_lifts_what_is_held_in_its_slice(broken):
    broken.materialize("b")
    broken.declare(source("a"), built("b", "a"), built("c", "b"))
    assert names(broken.materialize("c").rebuilt) == ["b", "c"]


def test_all_that_is_due_lifts_nothing(broken):
    broken.materialize("b")
    broken.run_due()
    assert broken.orchestrator.called == ["b", "beside"]


def test_a_success_forgets_the_failures(clock):
    answers = [fails, says(1)]
    world = World(clock, built("a", function=lambda **_: answers.pop(0)(), retries=1))
    world.materialize("a")
    assert world.ledger.holds() == {}
    assert [state for _, state in world.ledger.attempts] == [
        BuildState.FAILED,
        BuildState.SUCCEEDED,
    ]


def test_a_claim_of_another_is_no_attempt(world):
    world.ledger.claim(Node("features"), "theirs")
    outcome = world.materialize("model")
    assert isinstance(outcome.failed[Node("features")], LaunchError)
    assert names(outcome.not_tried) == ["model"]
    assert names(world.ledger.claims()) == ["features"]
    assert world.ledger.holds() == {}


def test_ctrl_c_ends_the_walk_and_holds_the_build_as_cancelled(clock):
    def interrupted(**upstream):
        raise KeyboardInterrupt

    world = World(clock, source("a"), built("b", "a", function=interrupted, retries=2))
    with pytest.raises(KeyboardInterrupt):
        world.materialize("b")
    assert names(world.ledger.records()) == ["a"]
    assert world.states()["b"] == "cancelled"
    assert world.ledger.claims() == {}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (AssetBuildError("a", "no"), BuildState.FAILED),
        (BuildTimeoutError("a", "no"), BuildState.TIMED_OUT),
        (BuildCancelledError("a", "no"), BuildState.CANCELLED),
        (LaunchError("no"), BuildState.FAILED),
        (KeyboardInterrupt(), BuildState.CANCELLED),
        (SystemExit(1), BuildState.CANCELLED),
        (ValueError("no"), BuildState.FAILED),
    ],
)
def test_an_error_says_in_which_state_a_build_ends(error, state):
    assert state_of(error) is state


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (AssetBuildError("a", "the reason"), "the reason"),
        (LaunchError("EXAMLOPS_HPC_SCHEDULER=slrum: no\nmore"), "EXAMLOPS_HPC_SCHEDULER=slrum: no"),
        (ValueError("one\ntwo\n"), "ValueError: one"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_the_line_that_names_an_error_is_shown(error, line):
    assert last_line(error) == line
