"""The first seed's story: what a walk over a plan builds, and in which order."""

import subprocess
import sys

from worlds import InPlace, World, built, names, source

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.plan import Action, Plan, Step
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import AssetOrchestrator


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


def test_the_orchestrator_of_these_tests_satisfies_the_seam():
    assert isinstance(InPlace(), AssetOrchestrator)


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
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
