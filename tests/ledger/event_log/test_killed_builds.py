"""Builds of processes that were killed, before and after their event."""

from stored_events import attempt_at, store_event

from examlops_dagster.core.records import BuildState, Node


def test_a_build_killed_after_its_event_is_completed(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    version = project.ledger.allot(attempt, "second")
    store_event(home, attempt, version, "second")
    record = home.records(built)["model"]
    assert (record.version, record.data_version, record.build_id) == (
        2,
        "second",
        attempt.build_id,
    )
    assert record.built_from == attempt.built_from
    assert home.endings("model") == ["succeeded", "succeeded"]


def test_a_build_completed_from_its_event_is_not_held_for_its_death(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    version = project.ledger.allot(attempt, "second")
    project.ledger.fail(attempt, BuildState.FAILED, "its value could not be stored")
    assert project.ledger.holds()
    store_event(home, attempt, version, "second")
    home.records(built)
    assert project.ledger.holds() == {}
    assert home.endings("model") == ["succeeded", "succeeded"]


def test_a_later_failure_stays_held_when_a_former_build_is_read_back(home, built):
    project = home.project(built)
    former, later = attempt_at(home, built, "model"), attempt_at(home, built, "model")
    project.ledger.begin(former)
    store_event(home, former, project.ledger.allot(former, "second"), "second")
    project.ledger.complete(former, 2, "second", {})
    project.ledger.begin(later)
    project.ledger.fail(later, BuildState.FAILED, "later")
    home.records(built)
    assert project.ledger.holds()[Node("model")].error == "later"


def test_a_build_killed_before_its_event_leaves_its_number_unused(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    assert project.ledger.allot(attempt, "lost") == 2
    assert home.versions(built)["model"] == 1
    assert home.exa(built, "model", force=True).ok
    home.report("model", "third")
    assert home.versions(built)["model"] == 3
    assert home.endings("model") == ["succeeded", "died", "succeeded", "succeeded"]
