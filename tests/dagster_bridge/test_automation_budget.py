"""The budget of attempts holds for automation: no storm, in both forms."""

from kept_pipelines import FAILING
from ticks import Automation


def test_a_storm_an_asset_that_always_fails_gets_one_attempt_and_its_retries(failing, home):
    results = failing.tick()
    assert [r.success for r in results] == [False]
    assert home.calls() == ["broken"] * 3
    for _ in range(199):
        assert failing.requests() == []
    assert home.calls() == ["broken"] * 3


def test_one_attempt_is_made_a_run_where_the_run_does_not_retry(home, form):
    """Two runs that were requested before the first one failed share the budget."""
    kept = Automation(home, home.module(FAILING.replace("retries=2", "retries=0")), form)
    [request] = kept.requests()
    kept.execute(request)
    kept.execute(request)
    assert home.calls() == ["broken"]


def test_a_changed_input_gives_a_new_budget(home, form):
    home.declare("PM100")
    kept = Automation(
        home,
        home.module(
            FAILING.replace("retries=2", 'deps=["PM100"]').replace(
                "def broken()", "def broken(**upstream)"
            )
        ),
        form,
    )
    kept.tick()
    assert kept.tick() == []
    home.advance("PM100")
    assert len(kept.tick()) == 1
    assert kept.tick() == []
    assert home.calls() == ["broken"] * 2


def test_a_scheduled_node_that_was_never_built_keeps_to_its_budget(home, form):
    module = home.module(
        """\
        from examlops_dagster import Schedule, asset

        @asset(freshness=Schedule("0 0 1 * *"), timeout_seconds=None)
        def monthly():
            raise ValueError("no luck")
        """
    )
    kept = Automation(home, module, form)
    assert kept.requested() == []
    home.sql("UPDATE first_seen SET seen_at = seen_at - 86400 * 40")
    assert [r.success for r in kept.tick()] == [False]
    assert kept.requested() == []
    assert home.states(module)["monthly"] == "failed"


def test_a_run_that_never_reaches_a_body_is_requested_three_times(home, form):
    """Here a resource of the user cannot be made."""
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(timeout_seconds=None)
        def lonely():
            raise AssertionError("it is never called")
        """
    )

    from dagster import io_manager

    @io_manager
    def examlops_io(context):
        raise OSError("no disk")

    kept = Automation(home, module, form, resources={"examlops_io": examlops_io})
    for _ in range(3):
        assert [r.success for r in kept.tick()] == [False]
    assert kept.requested() == []
    assert home.states(module)["lonely"] == "failed"
    assert "before it was built" in home.why(module, "lonely")[-1]
    assert home.endings("lonely") == ["died"] * 3


def test_a_run_that_somebody_ended_in_the_queue_is_not_requested_again(kept, home):
    [request] = kept.requests()
    run = kept.queue(request)
    kept.instance.report_run_canceled(run)
    assert kept.requested() == []
    states = kept.states()
    assert states["features"] == states["beside"] == "cancelled"
    assert states["model"] == "waiting for upstream"


def test_what_is_below_a_failed_node_is_no_attempt(failing, home):
    failing.tick()
    failing.requests()
    assert home.builds("below") == []


def test_a_run_that_a_person_executes_again_calls_the_function(failing, home):
    [result] = failing.tick()
    tags = {**result.dagster_run.tags, "dagster/parent_run_id": result.run_id}
    again = home.click(failing.definitions, "broken", tags=tags)
    assert not again.success
    assert home.calls() == ["broken"] * 6


def test_a_run_that_dagster_retries_by_itself_keeps_to_the_budget(failing, home):
    [result] = failing.tick()
    more = {"dagster/parent_run_id": result.run_id, "dagster/retry_number": "1"}
    home.click(failing.definitions, "broken", tags={**result.dagster_run.tags, **more})
    assert home.calls() == ["broken"] * 3
