"""Processes that died while they built: each is a death on record."""

from attempts import A, B, attempt, failed, put_claim

from examlops_dagster.core.records import BuildState
from examlops_dagster.core.status import MAX_DEATHS
from examlops_dagster.ledger.claims import EXPIRY_SECONDS


def test_a_process_that_died_while_it_built_counts_as_a_death(claimer, real):
    claimer.kill()
    claimer.wait()
    hold = real.holds()[A]
    assert (hold.state, hold.failures, hold.deaths) == (BuildState.DIED, 0, 1)
    assert (hold.fingerprint, hold.error, hold.run_id) == ("fp", "process died", "their run")
    assert real.holds()[A].deaths == 1, "looking twice counts once"


def test_a_new_attempt_puts_the_death_on_record(claimer, real):
    claimer.kill()
    claimer.wait()
    assert real.claim(A, "ours") is None
    real.begin(attempt(build_id="ours"))
    assert [(b.build_id, b.state) for b in real.history(A)] == [
        ("ours", BuildState.RUNNING),
        ("theirs", BuildState.DIED),
    ]
    assert real.holds()[A].deaths == 1
    real.release(A, "ours")


def test_an_attempt_whose_claim_expired_is_a_death(any_database, ledger, clock):
    put_claim(any_database, clock)
    ledger.begin(attempt(build_id="theirs"))
    assert ledger.holds() == {}
    clock.advance(seconds=EXPIRY_SECONDS + 1)
    assert ledger.holds()[A].deaths == 1


def test_the_third_death_in_a_row_reaches_the_limit(ledger):
    for n in range(MAX_DEATHS):
        ledger.begin(attempt(build_id=str(n)))
        assert ledger.holds()[A].deaths == n + 1
    assert [b.state for b in ledger.history(A)] == [
        BuildState.RUNNING,
        BuildState.DIED,
        BuildState.DIED,
    ]


def test_a_death_of_another_fingerprint_is_counted_anew(ledger):
    failed(ledger, build_id="1", fingerprint="old", state=BuildState.DIED)
    ledger.begin(attempt(build_id="2", fingerprint="new"))
    assert (ledger.holds()[A].fingerprint, ledger.holds()[A].deaths) == ("new", 1)


def test_lifting_puts_the_dead_on_record_and_forgets_them(ledger):
    ledger.begin(attempt(build_id="1"))
    ledger.begin(attempt(B, build_id="2"))
    ledger.lift([A])
    assert set(ledger.holds()) == {B}
    assert ledger.history(A)[0].state is BuildState.DIED


def test_lifting_leaves_a_living_attempt_alone(ledger):
    ledger.claim(A, "1")
    ledger.begin(attempt(build_id="1"))
    ledger.lift([A])
    assert ledger.history(A)[0].state is BuildState.RUNNING
    ledger.release(A, "1")
