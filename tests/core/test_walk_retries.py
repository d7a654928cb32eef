"""Attempts and their budget."""

from worlds import InPlace, World, built, fails, task_of

from examlops_dagster.core.records import Attempt, BuildState, Node
from examlops_dagster.core.status import Judge
from examlops_dagster.errors import BuildCancelledError, BuildTimeoutError, LaunchError


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
