"""Kept fresh by itself: what a tick requests, in both forms, on a real instance."""

import time

from kept_pipelines import ASSETS
from ticks import Automation


def test_a_slice_is_requested_as_one_run_and_built_once(kept, home):
    assert kept.requested() == [["beside", "features", "model"]]
    assert all(result.success for result in kept.tick())
    assert sorted(home.calls()) == ["beside", "features", "model"]
    assert kept.requested() == []


def test_a_source_that_changes_makes_exactly_the_stale_slice_run(kept, home):
    kept.tick()
    home.advance("PM100")
    [result] = kept.tick()
    assert sorted(home.calls()) == sorted(["beside", *["features", "model"] * 2])
    assert kept.requested() == []
    assert result.dagster_run.tags["examlops/slice"] == "true"


def test_manual_what_it_blocks_and_what_waits_for_its_schedule_are_not_requested(kept, home):
    kept.tick()
    states = kept.states()
    assert states["pinned"] == "waiting for request"
    assert states["below"] == "waiting for upstream"
    assert states["yearly"] == "waiting for schedule"
    assert {"pinned", "below", "yearly"}.isdisjoint(home.calls())
    assert kept.requested() == []


def test_a_manual_asset_that_was_built_lets_what_is_below_it_run(kept):
    kept.tick()
    kept.home.click(kept.definitions, "pinned")
    assert kept.requested() == [["below"]]


def test_content_that_comes_back_is_built_each_time(kept, home):
    for version in ("v1", "v2", "v1"):
        home.report("PM100", version)
        kept.tick()
    assert home.calls().count("features") == 3
    assert home.calls().count("model") == 3


def test_content_that_came_back_before_anybody_looked_needs_no_build(kept, home):
    home.report("PM100", "v1")
    kept.tick()
    home.report("PM100", "v2")
    home.report("PM100", "v1")
    assert kept.requested() == []


def test_a_build_by_hand_between_two_ticks_leaves_nothing_to_do(kept, home):
    kept.tick()
    home.advance("PM100")
    kept.home.click(kept.definitions, "features", "model")
    assert kept.requested() == []


def test_no_cursor_is_needed_and_a_new_process_goes_on(kept, home, form):
    kept.tick()
    home.advance("PM100")
    again = Automation(home, home.module(ASSETS), form)
    assert again.requested() == [["features", "model"]]


def test_the_runs_of_automation_may_answer_unchanged(home, form):
    home.declare("PM100")
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(deps=["PM100"], timeout_seconds=None)
        def same(**upstream):
            return 1

        @asset(inputs={"same": same}, timeout_seconds=None)
        def reader(same):
            return same
        """
    )
    kept = Automation(home, module, form)
    kept.tick()
    home.advance("PM100")
    kept.tick()
    assert home.endings("reader") == ["succeeded", "unchanged"]
    assert kept.requested() == []


def test_what_is_queued_is_not_requested_again(kept):
    [request] = kept.requests()
    kept.queue(request)
    assert kept.requested() == []
    assert kept.requested() == []


def test_what_is_queued_shows_as_running(kept, home):
    [request] = kept.requests()
    kept.queue(request)
    states = kept.states()
    assert states["features"] == states["model"] == states["beside"] == "running"


def test_a_node_that_a_long_run_is_done_with_can_be_requested_anew(home, form):
    home.declare("PM100")
    home.declare("other")
    kept = Automation(home, home.module(ASSETS), form)
    [request] = kept.requests()
    run = kept.queue(request)
    home.sql(
        "INSERT INTO builds (build_id, asset, partition, state, fingerprint, code_version, "
        "built_from, orchestrator, run_id, provenance, error, started_at) VALUES "
        "('x', 'beside', '', 'failed', '', '', '[]', 'local', :run_id, '{}', '', 0)",
        run_id=run.run_id,
    )
    assert kept.requested() == [["beside"]]


def test_a_job_that_is_in_flight_does_not_keep_others_from_their_ticks(kept, home):
    kept.tick()
    home.advance("PM100")
    [request] = kept.requests()
    kept.queue(request)
    home.advance("other")
    assert kept.requested() == [["beside"]]


def test_1500_nodes_are_one_run_of_the_plain_sensor(home):
    home.declare("PM100")
    module = home.module(
        """\
        from examlops_dagster import asset

        for n in range(1500):
            @asset(f"n{n}", deps=["PM100" if n < 10 else f"n{n - 10}", "PM100" if n == 0 else "n0"],
                   timeout_seconds=None)
            def node(**upstream):
                return 1
        """
    )
    kept = Automation(home, module, None)  # 500 are too many for conditions
    [request] = kept.requests()
    assert len(request.asset_selection) == 1500
    started = time.process_time()
    kept.requests()
    assert time.process_time() - started < 5
    kept.queue(request)
    assert kept.requests() == []
