"""The contract of the seam, for the ledger in memory and the one over platform.db."""

import threading
from datetime import timezone

import pytest
from attempts import UP, A, B, attempt, built, failed

from examlops_dagster.core.records import BuildState, Claim, Node, Read
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.memory import MemoryLedger
from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate

AWKWARD = [
    Node("it's"),
    Node('"quoted"; --'),
    Node("100%s"),
    Node("größe/x", "2024-01-01|eu"),
    Node("a", ":name"),
]


class TestAnyLedger:
    """The contract of the seam, for the ledger in memory and the one over platform.db."""

    @pytest.fixture(params=["memory", "sqlite", "postgres"])
    def ledger(self, request, clock):
        if request.param == "memory":
            yield MemoryLedger(clock)
            return
        if request.param == "sqlite":
            found = BuildsLedger(request.getfixturevalue("database"), clock)
        else:
            database = Database(request.getfixturevalue("postgres_url"))
            migrate(database)
            found = BuildsLedger(database, clock)
        yield found
        found.close()
        if request.param == "postgres":
            database.close()

    def test_an_empty_ledger_has_nothing(self, ledger):
        assert (ledger.records(), ledger.holds(), ledger.claims()) == ({}, {}, {})

    def test_a_success_is_a_record(self, ledger, clock):
        found = built(ledger, run_id="run")
        assert ledger.records() == {A: found}
        assert (found.version, found.data_version, found.code_version) == (1, "d1", "code")
        assert (found.built_from, found.build_id, found.run_id) == (UP, "1", "run")
        assert (found.built_at, found.built_at.tzinfo) == (clock(), timezone.utc)

    def test_times_keep_their_microseconds(self, ledger, clock):
        clock.advance(microseconds=123_457)
        built(ledger)
        assert ledger.records()[A].built_at == clock()

    def test_a_running_attempt_is_no_record(self, ledger):
        ledger.begin(attempt())
        ledger.allot(attempt(), "d1")
        assert ledger.records() == {}

    def test_records_are_given_for_the_nodes_asked_for(self, ledger):
        for n, node in enumerate([A, B, Node("a", "x")]):
            built(ledger, node, str(n))
        assert set(ledger.records([A, Node("nowhere")])) == {A}
        assert set(ledger.records([Node("a", "x"), B])) == {Node("a", "x"), B}
        assert ledger.records([]) == {}
        assert set(ledger.records(iter([A]))) == {A}

    @pytest.mark.parametrize("node", AWKWARD, ids=str)
    def test_odd_names_survive(self, ledger, node):
        built(ledger, node, built_from={node: Read(1, "'\"%:x")})
        assert ledger.records([node])[node].built_from == {node: Read(1, "'\"%:x")}
        failed(ledger, node, "2")
        assert set(ledger.holds([node])) == {node}
        ledger.claim(node, "3")
        assert set(ledger.claims()) == {node}
        ledger.release(node, "3")
        assert ledger.claims() == {}

    def test_numbers_are_counted_for_each_partition(self, ledger):
        x, y = Node("a", "x"), Node("a", "y")
        built(ledger, x, "1", "d1")
        built(ledger, x, "2", "d2")
        assert built(ledger, y, "3", "d1").version == 1
        assert ledger.records()[x].version == 2

    def test_equal_content_keeps_the_number(self, ledger):
        built(ledger, build_id="1", data="same")
        assert built(ledger, build_id="2", data="same").version == 1

    def test_content_that_comes_back_later_gets_a_new_number(self, ledger):
        versions = [built(ledger, build_id=str(n), data=d).version for n, d in enumerate("aba")]
        assert versions == [1, 2, 3]

    def test_a_number_that_was_allotted_and_not_used_is_never_given_again(self, ledger):
        built(ledger, build_id="1", data="d1")
        ledger.begin(attempt(build_id="2"))
        assert ledger.allot(attempt(build_id="2"), "lost") == 2
        ledger.fail(attempt(build_id="2"), BuildState.FAILED, "no")
        assert built(ledger, build_id="3", data="d3").version == 3

    def test_a_claim_is_exclusive_and_says_who_has_it(self, ledger, clock):
        assert ledger.claim(A, "ours", "run") is None
        held = ledger.claim(A, "theirs")
        assert isinstance(held, Claim)
        assert (held.token, held.run_id, held.started_at) == ("ours", "run", clock())
        assert ledger.claims() == {A: held}

    def test_who_has_a_claim_may_claim_again(self, ledger):
        ledger.claim(A, "ours")
        assert ledger.claim(A, "ours") is None

    def test_nodes_are_claimed_apart(self, ledger):
        assert ledger.claim(Node("a", "x"), "ours") is None
        assert ledger.claim(Node("a", "y"), "theirs") is None

    def test_a_released_claim_is_free(self, ledger):
        ledger.claim(A, "ours")
        ledger.release(A, "ours")
        assert ledger.claims() == {}
        assert ledger.claim(A, "theirs") is None

    def test_only_who_has_a_claim_can_release_it(self, ledger):
        ledger.claim(A, "ours")
        ledger.release(A, "theirs")
        assert set(ledger.claims()) == {A}

    def test_releasing_what_nobody_claimed_does_nothing(self, ledger):
        ledger.release(A, "ours")
        assert ledger.claims() == {}

    def test_a_failure_is_a_hold(self, ledger, clock):
        hold = failed(ledger, error="ValueError: no", run_id="run")
        assert ledger.holds() == {A: hold}
        assert (hold.fingerprint, hold.failures, hold.deaths) == ("fp", 1, 0)
        assert (hold.state, hold.error, hold.run_id) == (
            BuildState.FAILED,
            "ValueError: no",
            "run",
        )
        assert hold.ended_at == clock()
        assert ledger.records() == {}

    def test_failures_of_one_fingerprint_are_counted(self, ledger):
        for n in range(3):
            failed(ledger, build_id=str(n))
        assert ledger.holds()[A].failures == 3

    def test_another_fingerprint_is_counted_anew(self, ledger):
        failed(ledger, build_id="1", fingerprint="old")
        failed(ledger, build_id="2", fingerprint="old")
        hold = failed(ledger, build_id="3", fingerprint="new")
        assert (hold.fingerprint, hold.failures) == ("new", 1)
        assert ledger.holds()[A] == hold

    def test_deaths_are_counted_in_a_row_and_apart(self, ledger):
        for n, state in enumerate([BuildState.FAILED, BuildState.DIED, BuildState.DIED]):
            hold = failed(ledger, build_id=str(n), state=state)
        assert (hold.failures, hold.deaths) == (1, 2)
        hold = failed(ledger, build_id="9", state=BuildState.TIMED_OUT)
        assert (hold.failures, hold.deaths) == (2, 0)

    def test_a_success_ends_the_hold(self, ledger):
        failed(ledger, build_id="1")
        built(ledger, build_id="2")
        assert ledger.holds() == {}

    def test_a_failure_leaves_the_record_alone(self, ledger):
        found = built(ledger, build_id="1")
        failed(ledger, build_id="2")
        assert ledger.records() == {A: found}

    def test_holds_are_lifted_for_the_nodes_that_somebody_asks_for(self, ledger):
        failed(ledger, A, "1")
        failed(ledger, B, "2")
        ledger.lift(iter([A, Node("nowhere")]))
        assert set(ledger.holds()) == {B}

    def test_lifting_where_nothing_is_held_does_nothing(self, ledger):
        ledger.lift([A])
        ledger.lift([])
        assert ledger.holds() == {}

    def test_a_lifted_hold_is_counted_anew(self, ledger):
        failed(ledger, build_id="1")
        ledger.lift([A])
        assert failed(ledger, build_id="2").failures == 1

    def test_holds_are_given_for_the_nodes_asked_for(self, ledger):
        failed(ledger, A, "1")
        failed(ledger, B, "2")
        assert set(ledger.holds([B, Node("nowhere")])) == {B}

    def test_threads_get_numbers_apart(self, ledger):
        versions = []

        def work(name):
            for n in range(10):
                this = attempt(build_id=f"{name}{n}")
                ledger.begin(this)
                versions.append(ledger.allot(this, f"{name}{n}"))

        threads = [threading.Thread(target=work, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(versions) == list(range(1, 31))
