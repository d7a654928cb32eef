import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from clock import Clock
from hypothesis import given
from hypothesis import strategies as st
from strategies import pipelines
from worlds import NOW, InPlace, World, built, names, sensor_of, source, task_of

from examlops_dagster.core.declarations import AssetOutput, Upstream
from examlops_dagster.core.freshness import Manual, Schedule
from examlops_dagster.core.partitions import daily, partitions
from examlops_dagster.core.plan import Action, Plan, Step
from examlops_dagster.core.seams import AssetOrchestrator, Attempt, BuildState, Node
from examlops_dagster.core.status import MAX_DEATHS, Judge, State
from examlops_dagster.core.walk import last_line, state_of
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
)

XY = {"key": partitions(["x", "y"])}


def says(value):
    """A production function that returns ``value``."""

    def produce(**upstream):
        return value

    return produce


def fails(**upstream):
    raise ValueError("no luck")


@pytest.fixture
def world(clock):
    """PM100 -> features -> model, and a branch beside them."""
    return World(
        clock,
        source("PM100"),
        built("features", "PM100"),
        built("model", "features"),
        built("beside", "PM100"),
    )


# the first seed's story


def test_the_first_materialize_builds_everything_in_order(world):
    outcome = world.materialize("model")
    assert names(outcome.rebuilt) == ["PM100", "features", "model"]
    assert world.orchestrator.called == ["features", "model"]
    assert (outcome.skipped, outcome.unchanged, outcome.failed) == ([], [], {})


def test_the_second_materialize_builds_nothing(world):
    world.materialize("model")
    outcome = world.materialize("model")
    assert (outcome.rebuilt, names(outcome.skipped)) == ([], ["PM100", "features", "model"])
    assert world.states() == {
        "PM100": "fresh",
        "features": "fresh",
        "model": "fresh",
        "beside": "never built",
    }


def test_a_changed_source_makes_its_downstreams_stale_with_why(world):
    world.materialize("model", "beside")
    world.change_source("PM100")
    assert world.why("features") == ("upstream PM100 changed (1 → 2)",)
    assert world.why("model") == ("upstream features is stale",)


def test_a_changed_source_rebuilds_only_the_stale_slice(world):
    world.materialize("model", "beside")
    world.change_source("PM100")
    outcome = world.materialize("model")
    assert names(outcome.rebuilt) == ["features", "model"]
    assert names(outcome.skipped) == ["PM100"]
    assert world.states()["beside"] == "stale"


def test_versions_are_counted_from_one(world):
    world.materialize("model")
    world.change_source("PM100")
    world.materialize("model")
    assert [world.version(n) for n in ("PM100", "features", "model")] == [2, 2, 2]


def test_nothing_is_built_without_a_function(clock):
    world = World(clock, source("a"), source("b", upstreams=(Upstream("a"),)))
    assert names(world.materialize("b").rebuilt) == ["a"]
    assert Node("b") not in world.ledger.records()


# what is given to a function, and what is recorded


def test_versions_of_deps_are_given_and_recorded(world):
    world.materialize("model")
    [request] = [r for r in world.orchestrator.requests if r.node.asset == "model"]
    read = world.ledger.records()[Node("model")].built_from
    assert request.arguments == {"features": 1}
    assert request.built_from == read
    assert read[Node("features")].version == 1


def test_values_of_inputs_are_given(clock):
    world = World(
        clock,
        built("prices", function=says({"apple": 3})),
        built("report", Upstream("prices", "value"), function=lambda value: value["apple"] * 2),
    )
    world.materialize("report")
    assert world.ledger.value(Node("report")).payload == b"6"


def test_a_function_that_returns_nothing_keeps_no_value(world):
    world.materialize("model")
    assert world.ledger.value(Node("model")) is None


def test_the_request_holds_the_limits_of_the_declaration(clock):
    world = World(clock, built("a", timeout_seconds=7.0, resources={"gpus": 1}))
    world.materialize("a")
    [request] = world.orchestrator.requests
    assert (request.timeout_seconds, request.resources, request.attempt) == (7.0, {"gpus": 1}, 1)


@pytest.mark.parametrize(
    ("freshness", "zone", "ds"),
    [
        (Manual, "UTC", "2026-01-05"),
        (Manual, "Pacific/Kiritimati", "2026-01-06"),
        (Schedule("0 18 * * *"), "UTC", "2026-01-04"),
        (Schedule("0 6 * * *", "Asia/Tokyo"), "UTC", "2026-01-05"),
    ],
)
def test_ds_is_the_date_of_the_tick_or_the_run_in_its_zone(clock, freshness, zone, ds):
    seen = []
    asks = built("a", function=lambda ds: seen.append((ds,)), freshness=freshness)
    first_seen = {Node("a"): datetime(2026, 1, 1, tzinfo=timezone.utc)}
    World(clock, asks, zone=zone, first_seen=first_seen).materialize("a")
    assert seen == [(ds,)]


def test_ds_is_the_date_of_the_partition(clock):
    seen = []
    space = {"day": daily("2024-02-03", "2024-02-05")}
    world = World(clock, built("a", function=lambda day, ds: seen.append((day, ds)), space=space))
    world.materialize(Node("a", "2024-02-04"))
    assert seen == [("2024-02-04", "2024-02-04")]


# moving upstreams, W1


def test_an_upstream_that_moves_during_the_build_leaves_the_result_stale(clock):
    world = World(clock, source("a"), built("b", "a"))
    world.materialize("b")

    def slow(**upstream):
        world.change_source("a")
        seen.append(upstream)

    seen = []
    world.change_source("a")
    world.declare(source("a"), built("b", "a", function=slow))
    outcome = world.materialize("b")
    assert names(outcome.rebuilt) == ["b"]
    assert seen == [{"a": 2}]
    assert world.why("b") == ("upstream a changed (2 → 3)",)


def test_an_upstream_that_moves_before_its_turn_is_read_as_it_is_then(clock):
    world = World(clock, source("a"), source("other"), built("b", "other"), built("c", "a", "b"))

    def moves(**upstream):
        world.change_source("a")

    world.materialize("c")
    world.change_source("other")
    world.declare(
        source("a"), source("other"), built("b", "other", function=moves), built("c", "a", "b")
    )
    world.materialize("c")
    assert world.orchestrator.requests[-1].arguments == {"a": 2, "b": 2}
    assert world.states()["c"] == "fresh"


# early cut-off, W6


def test_an_equal_result_leaves_what_is_below_unchanged(clock):
    world = World(clock, source("a"), built("b", "a", function=says([1, 2])), built("c", "b"))
    world.materialize("c")
    world.change_source("a")
    outcome = world.materialize("c")
    assert (names(outcome.rebuilt), names(outcome.unchanged)) == (["b"], ["c"])
    assert world.orchestrator.called == ["b", "c", "b"]
    assert (world.version("b"), world.version("c")) == (1, 1)
    assert set(world.states().values()) == {"fresh"}


def test_a_data_version_that_the_function_gives_cuts_off_too(clock):
    world = World(
        clock,
        source("a"),
        built("b", "a", function=says(AssetOutput(data_version="same"))),
        built("c", "b"),
    )
    world.materialize("c")
    world.change_source("a")
    assert names(world.materialize("c").unchanged) == ["c"]


def test_a_function_that_returns_nothing_is_new_each_time(clock):
    world = World(clock, source("a"), built("b", "a"), built("c", "b"))
    world.materialize("c")
    world.change_source("a")
    assert names(world.materialize("c").rebuilt) == ["b", "c"]


def test_content_that_comes_back_gets_a_new_number_and_is_seen(clock):
    world = World(clock, source("a"), built("b", "a"))
    for version, data in enumerate(["A", "B", "A"], start=1):
        world.ledger.report(Node("a"), data)
        assert world.version("a") == version
        assert names(world.materialize("b").rebuilt) == ["b"]


def test_content_that_comes_back_between_two_builds_needs_none(clock):
    world = World(clock, source("a"), built("b", "a"))
    world.ledger.report(Node("a"), "A")
    world.materialize("b")
    world.ledger.report(Node("a"), "B")
    world.ledger.report(Node("a"), "A")
    assert names(world.materialize("b").skipped) == ["a", "b"]


# changes of code, W7


def test_changed_code_rebuilds_from_there(world):
    world.code = {"features": "old", "model": "same"}
    world.materialize("model")
    world.code = {"features": "new", "model": "same"}
    assert world.why("features") == ("code changed",)
    assert names(world.materialize("model").rebuilt) == ["features", "model"]
    assert set(world.states().values()) == {"fresh", "never built"}


def test_a_removed_dep_rebuilds(world):
    world.materialize("model")
    world.declare(source("PM100"), built("features", "PM100"), built("model"))
    assert world.why("model") == ("upstream features removed",)
    assert names(world.materialize("model").rebuilt) == ["model"]


# asking by force, W5


def test_force_calls_the_function_of_the_target_alone(world):
    world.materialize("model", "beside")
    outcome = world.materialize("model", force=True)
    assert names(outcome.rebuilt) == ["model"]
    assert names(outcome.skipped) == ["PM100", "features"]
    assert world.states()["beside"] == "fresh"


def walk_alone(world, name):
    """Walk a plan that somebody made by hand, of one step."""
    node = Node(name)
    return world.walk.run(Plan((node,), (Step(node, Action.BUILD),)))


def test_an_upstream_that_was_never_built_is_told(world):
    outcome = walk_alone(world, "model")
    [error] = outcome.failed.values()
    assert "upstream features was never built → exa assets materialize features" in str(error)
    assert world.ledger.attempts == []


def test_a_build_that_has_nothing_to_read_is_not_tried_again(clock):
    world = World(clock, source("a"), built("b", "a", retries=3, retry_backoff=60))
    walk_alone(world, "b")
    assert world.slept == []


# failures


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


# retries


def test_retries_are_further_attempts_with_a_delay_that_grows_linearly(clock):
    world = World(clock, built("a", function=fails, retries=3, retry_backoff=2.0))
    world.materialize("a")
    assert [r.attempt for r in world.orchestrator.requests] == [1, 2, 3, 4]
    assert world.slept == [2.0, 4.0, 6.0]


def test_attempts_are_counted_once(clock):
    world = World(clock, built("a", function=fails, retries=2))
    world.materialize("a")
    hold = world.ledger.holds()[Node("a")]
    assert (hold.failures, len(world.ledger.attempts)) == (3, 3)
    world.run_due()
    assert len(world.ledger.attempts) == 3


def test_an_attempt_made_before_counts_against_the_budget(clock):
    world = World(clock, built("a", function=fails, retries=2))
    fingerprint = Judge(world.graph, world.snapshot, {}).fingerprint(Node("a"))
    before = Attempt(Node("a"), "before", fingerprint, "", {}, "local")
    world.ledger.begin(before)
    world.ledger.fail(before, BuildState.FAILED, "no")
    world.run_due()
    assert [r.attempt for r in world.orchestrator.requests] == [2, 3]
    assert world.ledger.holds()[Node("a")].failures == 3


def test_an_attempt_at_something_else_does_not_count(clock):
    world = World(clock, built("a", function=fails, retries=1))
    before = Attempt(Node("a"), "before", "something else", "", {}, "local")
    world.ledger.begin(before)
    world.ledger.fail(before, BuildState.FAILED, "no")
    world.run_due()
    assert [r.attempt for r in world.orchestrator.requests] == [1, 2]


def test_no_retries_is_one_attempt(clock):
    world = World(clock, task_of("mail", function=fails))
    world.materialize("mail")
    assert (len(world.orchestrator.requests), world.slept) == (1, [])


def test_a_timeout_is_tried_again_and_shown(clock):
    def slow():
        raise BuildTimeoutError("a", "longer than 1 s")

    world = World(clock, built("a", function=slow, retries=1))
    world.materialize("a")
    assert [state for _, state in world.ledger.attempts] == [BuildState.TIMED_OUT] * 2
    assert world.states()["a"] == "timed out"


def test_a_cancelled_build_is_not_tried_again(clock):
    def cancelled():
        raise BuildCancelledError("a", "somebody ended it")

    world = World(clock, built("a", function=cancelled, retries=5))
    world.materialize("a")
    assert [state for _, state in world.ledger.attempts] == [BuildState.CANCELLED]
    assert world.states()["a"] == "cancelled"


def test_what_the_orchestrator_could_not_start_is_not_tried_again(clock):
    class Down(InPlace):
        def run(self, request):
            raise LaunchError("no controller", transient=True)

    world = World(clock, built("a", retries=2))
    world.orchestrator = Down()
    outcome = world.materialize("a")
    assert isinstance(outcome.failed[Node("a")], LaunchError)
    assert world.slept == []


# sensors


class Eye:
    """Looks at the world for a sensor; ``seen`` is what it returns next."""

    seen = (True, "first")

    def __call__(self):
        return self.seen


@pytest.fixture
def eye():
    return Eye()


@pytest.fixture
def watching(clock, eye):
    return World(
        clock,
        sensor_of("eye", function=eye),
        built("reader", Upstream("eye", "value"), function=lambda value: value),
    )


def payload(world, name):
    return world.ledger.value(Node(name)).payload


def test_a_sensor_that_says_true_makes_downstream_stale_though_its_output_is_equal(watching):
    watching.materialize("reader")
    watching.materialize("eye")
    assert watching.version("eye") == 2
    assert watching.states()["reader"] == "stale"


def test_a_sensor_that_says_false_makes_nothing_stale(watching, eye):
    watching.materialize("reader")
    eye.seen = (False, "ignored")
    assert names(watching.materialize("eye").rebuilt) == ["eye"]
    assert watching.version("eye") == 1
    assert set(watching.states().values()) == {"fresh"}


def test_downstream_reads_what_the_sensor_last_said_with_true(watching, eye):
    watching.materialize("eye")
    eye.seen = (False, "ignored")
    watching.materialize("eye")
    watching.materialize("reader")
    assert payload(watching, "reader") == b'"first"'


def test_a_sensor_that_says_false_has_answered_its_tick(clock, eye):
    world = World(clock, sensor_of("eye", function=eye, freshness=Schedule("0 * * * *")))
    world.materialize("eye")
    clock.advance(hours=1)
    eye.seen = (False, None)
    assert names(world.run_due().rebuilt) == ["eye"]
    assert world.due().is_empty
    assert world.version("eye") == 1


def test_a_sensor_that_says_false_the_first_time_exists(watching, eye):
    eye.seen = (False, "nothing yet")
    watching.materialize("reader")
    assert payload(watching, "reader") == b'"nothing yet"'


# schedules


def test_a_scheduled_root_is_built_once_for_each_tick(clock):
    world = World(
        clock,
        built("a", freshness=Schedule("0 6 * * *")),
        built("b", "a"),
        first_seen={Node("a"): NOW, Node("b"): NOW},
    )
    assert world.run_due().rebuilt == []
    clock.set(NOW.replace(day=6, hour=6))
    assert names(world.run_due().rebuilt) == ["a", "b"]
    assert world.run_due().rebuilt == []
    clock.advance(days=3)
    assert names(world.run_due().rebuilt) == ["a", "b"]


def test_a_failed_tick_is_tried_again_at_the_next(clock):
    scheduled = built("a", function=fails, freshness=Schedule("0 * * * *"))
    world = World(clock, scheduled, first_seen={Node("a"): NOW})
    clock.advance(hours=1)
    world.run_due()
    world.run_due()
    assert len(world.orchestrator.called) == 1
    clock.advance(hours=1)
    world.run_due()
    assert len(world.orchestrator.called) == 2


def test_a_tick_does_not_build_a_manual_upstream(clock):
    world = World(
        clock,
        built("a", freshness=Manual),
        built("b", "a", freshness=Schedule("0 * * * *")),
        first_seen={Node("b"): NOW},
    )
    clock.advance(hours=1)
    assert world.run_due().rebuilt == []


# the words of an end


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
        (ValueError("one\ntwo\n"), "ValueError: one"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_the_line_that_names_an_error_is_shown(error, line):
    assert last_line(error) == line


def test_the_orchestrator_of_these_tests_satisfies_the_seam():
    assert isinstance(InPlace(), AssetOrchestrator)


def test_three_deaths_hold():
    assert MAX_DEATHS == 3


# without dagster


def test_the_core_declares_judges_and_builds_with_dagster_blocked_from_import(tmp_path):
    script = tmp_path / "no_dagster.py"
    script.write_text(
        """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("dagster"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from worlds import World, built, names, source
from clock import Clock
from worlds import NOW

world = World(Clock(NOW), source("a"), built("b", "a"))
assert world.states() == {"a": "never built", "b": "never built"}
assert names(world.materialize("b").rebuilt) == ["a", "b"]
assert set(world.states().values()) == {"fresh"}
assert not [name for name in sys.modules if name.startswith("dagster")]
"""
    )
    path = ":".join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, script],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# properties


@st.composite
def histories(draw):
    """Declarations, and what happens to them: materialize, a change of a source or of code."""
    declarations = draw(pipelines())
    every = [d.name for d in declarations]
    sources = [d.name for d in declarations if d.is_source] or [None]
    events = st.one_of(
        st.tuples(st.just("materialize"), st.sampled_from(every)),
        st.tuples(st.just("source"), st.sampled_from(sources)),
        st.tuples(st.just("code"), st.sampled_from(every)),
        st.tuples(st.just("due"), st.none()),
        st.tuples(st.just("wait"), st.none()),
    )
    return declarations, draw(st.lists(events, max_size=6)), draw(st.sets(st.sampled_from(every)))


def lived(declarations, events, equal):
    """A world in which ``events`` happened; the functions in ``equal`` always return the same."""
    functions = {name: says(1) for name in equal}
    declared = [
        replace(d, function=functions.get(d.name, d.function)) if d.function else d
        for d in declarations
    ]
    clock = Clock(NOW)
    first_seen = {Node(d.name): NOW for d in declarations}
    world = World(clock, *declared, first_seen=first_seen)
    for event, name in events:
        clock.advance(minutes=1)
        if event == "materialize":
            world.materialize(name)
        elif event == "source" and name:
            world.change_source(name)
        elif event == "code":
            world.code = {**world.code, name: str(clock())}
        elif event == "due":
            world.run_due()
        elif event == "wait":
            clock.advance(hours=7)
    clock.advance(seconds=1)
    return world


@given(histories(), st.data())
def test_running_a_plan_leaves_the_next_plan_empty(history, data):
    world = lived(*history)
    target = data.draw(st.sampled_from(list(world.graph.declarations)))
    world.materialize(target)
    again = world.plan(target)
    assert [s for s in again.steps if not s.forced] == []
    assert again.blocked == ()


@given(histories())
def test_running_all_that_is_due_leaves_nothing_due(history):
    world = lived(*history)
    world.run_due()
    assert world.due().steps == ()


@given(histories())
def test_what_is_fresh_was_built_from_what_exists(history):
    world = lived(*history)
    records = world.ledger.records()
    for node, verdict in world.status().items():
        if verdict.state is State.FRESH and records[node].build_id:
            read = records[node].built_from
            assert set(read) == {Node(u.name) for u in world.graph.upstreams(node.asset)}
            for upstream, was in read.items():
                assert records[upstream].data_version == was.data_version
                assert world.status()[upstream].state is State.FRESH


@given(histories())
def test_the_number_of_a_node_names_one_content(history):
    world = lived(*history)
    seen = {}
    for attempt, state in world.ledger.attempts:
        assert state is BuildState.SUCCEEDED
        for upstream, read in attempt.built_from.items():
            assert seen.setdefault((upstream, read.version), read.data_version) == read.data_version
