"""Timeouts in the second seed: 300 seconds, for each attempt."""

from platforms import Platform
from waiting import is_alive

from examlops_dagster import asset, sensor, task
from examlops_dagster.core.declarations import DEFAULT_TIMEOUT
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.records import BuildState
from examlops_dagster.errors import BuildTimeoutError
from examlops_dagster.orchestrators.local import LocalOrchestrator


def test_the_timeout_is_300_seconds_for_each_kind_of_node():
    @asset
    def a(): ...

    @sensor
    def s(): ...

    @task
    def t(): ...

    for node in (a, s, t):
        assert declaration_of(node).timeout_seconds == DEFAULT_TIMEOUT == 300


def test_the_timeout_applies_per_attempt_and_marks_the_attempt_as_timed_out(
    clock, tmp_path, monkeypatch
):
    monkeypatch.setenv("TIMEOUT_CALLS", str(tmp_path))
    import worker_for_timeouts as module

    world = Platform(clock, module.slow)
    with LocalOrchestrator(grace_seconds=0.2) as local:
        world.orchestrator = local
        outcome = world.materialize("slow")
    [error] = outcome.failed.values()
    assert isinstance(error, BuildTimeoutError)
    assert [state for _, state in world.ledger.attempts] == [BuildState.TIMED_OUT] * 2
    assert world.states()["slow"] == "timed out"
    calls = module.calls()
    assert len(calls) == 2
    assert not any(is_alive(pid) for pid in calls)
