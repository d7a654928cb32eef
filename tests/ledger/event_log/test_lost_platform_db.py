"""A platform.db that was lost, or is older than the event log."""

from homes import CHAIN
from stored_events import attempt_at, everything, store_event

from examlops_dagster.core.records import BuildState


def forget(home):
    for path in home.folder.glob("platform.db*"):
        path.unlink()


def test_a_lost_platform_db_is_rebuilt_from_the_event_log(home, built):
    home.advance("PM100", "second", built)
    assert home.exa(built, "model").ok
    home.report("model", "theirs")
    project = home.project(built)
    project.adopt("model")
    project.close()
    before = everything(home, built)
    assert set(home.states(built).values()) == {"fresh"}
    forget(home)
    home.declare("PM100")
    assert everything(home, built) == before
    assert set(home.states(built).values()) == {"fresh"}
    assert home.versions(built) == {"PM100": 2, "features": 2, "model": 3}
    changed = home.module(CHAIN.replace('"from"', '"made from"'))
    assert home.why(changed, "model") == ("code changed",)
    assert home.exa(built, "model").rebuilt == []
    assert home.advance("PM100", modules=built) == 3


def test_a_platform_db_restored_from_a_copy_catches_up(home, built):
    copy = {p: p.read_bytes() for p in home.folder.glob("platform.db*")}
    home.advance("PM100", "second", built)
    assert home.exa(built, "model").ok
    home.report("features", "theirs")
    before = home.records(built)
    forget(home)
    for path, content in copy.items():
        path.write_bytes(content)
    after = home.records(built)
    assert {n: (r.version, r.data_version) for n, r in after.items()} == {
        n: (r.version, r.data_version) for n, r in before.items()
    }


def test_a_copy_that_was_made_during_a_build_is_completed_from_the_event(home, built):
    attempt = attempt_at(home, built, "model")
    project = home.project(built)
    project.ledger.begin(attempt)
    home.sql("DELETE FROM claims")
    store_event(home, attempt, 2, "second")
    assert home.records(built)["model"].version == 2
    [last] = home.builds("model")[-1:]
    assert (last.state, last.version, last.data_version) == (BuildState.SUCCEEDED, 2, "second")
    home.report("model", "third")
    assert home.versions(built)["model"] == 3
