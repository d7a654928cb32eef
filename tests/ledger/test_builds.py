"""What the ledger over platform.db stores, its history, and what reading costs."""

import os
import socket
from datetime import timedelta

import pytest
from attempts import UP, A, B, attempt, built, counted, failed

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.rows import dump_reads, load_reads


def test_a_second_ledger_sees_what_the_first_wrote(any_database, ledger, clock):
    built(ledger, A, "1")
    failed(ledger, B, "2")
    ledger.claim(Node("c"), "3")
    other = BuildsLedger(any_database, clock)
    assert other.records() == ledger.records()
    assert other.holds() == ledger.holds()
    assert other.claims() == ledger.claims()
    assert other.claim(Node("c"), "4").token == "3"
    ledger.release(Node("c"), "3")


def test_who_claims_is_this_process_on_this_host(ledger):
    ledger.claim(A, "1")
    claim = ledger.claims()[A]
    assert (claim.pid, claim.host) == (os.getpid(), socket.gethostname())


@pytest.mark.parametrize(
    ("error", "kept"),
    [("a\0b", "a\\x00b"), ("file \udcff", "file \\udcff"), ("größe 'x' %s", "größe 'x' %s")],
)
def test_any_error_text_can_be_kept(ledger, error, kept):
    failed(ledger, error=error)
    assert ledger.holds()[A].error == kept
    assert ledger.history(A)[0].error == kept


def test_what_was_read_survives_as_json():
    assert load_reads(dump_reads(UP)) == UP
    assert load_reads(dump_reads({})) == {}


def test_what_was_read_keeps_its_order():
    assert list(load_reads(dump_reads(dict(reversed(UP.items()))))) == list(reversed(UP))


def test_history_has_every_attempt_newest_first(ledger, clock):
    failed(ledger, build_id="1", error="no")
    clock.advance(seconds=5)
    ledger.begin(attempt(build_id="2", run_id="run"))
    clock.advance(seconds=5)
    ledger.complete(
        attempt(build_id="2"), ledger.allot(attempt(build_id="2"), "d"), "d", {"k": "v"}
    )
    newest, oldest = ledger.history(A)
    assert (newest.state, newest.version, newest.data_version) == (BuildState.SUCCEEDED, 1, "d")
    assert (newest.provenance, newest.run_id, newest.orchestrator) == ({"k": "v"}, "run", "local")
    assert newest.ended_at - newest.started_at == timedelta(seconds=5)
    assert newest.built_from == UP
    assert (oldest.state, oldest.version, oldest.error) == (BuildState.FAILED, None, "no")


def test_history_has_a_running_attempt_without_an_end(ledger):
    ledger.begin(attempt())
    [row] = ledger.history(A)
    assert (row.state, row.ended_at, row.version) == (BuildState.RUNNING, None, None)


def test_history_is_of_a_node_or_of_all_partitions(ledger):
    built(ledger, Node("a", "x"), "1")
    built(ledger, Node("a", "y"), "2")
    built(ledger, B, "3")
    assert [str(row.node) for row in ledger.history(Node("a", "x"))] == ["a[x]"]
    assert [str(row.node) for row in ledger.history(asset="a")] == ["a[y]", "a[x]"]
    assert ledger.history(A) == []


def test_history_ends_at_its_limit(ledger):
    for n in range(5):
        built(ledger, build_id=str(n), data=str(n))
    assert [row.build_id for row in ledger.history(A, limit=2)] == ["4", "3"]


def test_the_builds_of_a_run_are_the_last_of_each_node(ledger):
    failed(ledger, A, "1", run_id="run")
    built(ledger, A, "2", run_id="run")
    built(ledger, B, "3", run_id="other")
    assert {n: b.build_id for n, b in ledger.of_run("run").items()} == {A: "2"}


def test_a_build_may_end_as_unchanged(ledger):
    built(ledger, build_id="1")
    this = attempt(build_id="2")
    ledger.begin(this)
    ledger.complete(this, ledger.allot(this, "d1"), "d1", {}, BuildState.UNCHANGED)
    assert [row.state.value for row in ledger.history(A)] == ["unchanged", "succeeded"]


def test_what_automation_saw_first_stays(ledger, clock):
    ledger.see({A: clock(), Node("a", "x"): clock()})
    first = clock()
    clock.advance(days=1)
    ledger.see({A: clock(), B: clock()})
    assert ledger.first_seen() == {A: first, Node("a", "x"): first, B: clock()}


def test_automation_that_sees_nothing_writes_nothing(ledger, clock, monkeypatch):
    with counted(monkeypatch) as asked:
        ledger.see({})
    assert asked == []
    assert ledger.first_seen() == {}


def test_the_number_of_statements_does_not_grow_with_the_nodes(ledger, any_database, monkeypatch):
    def fill(first, last):
        rows = [{"name": f"n{i}", "id": str(i)} for i in range(first, last)]
        with any_database.write() as connection:
            for insert in (
                "INSERT INTO heads VALUES (:name, '', 1, 'd', 'c', '[]', 1, :id, '', NULL)",
                "INSERT INTO holds VALUES (:name, '', 'fp', 1, 0, 'failed', 'no', 1, '')",
                "INSERT INTO claims VALUES (:name, '', :id, 'elsewhere', 1, 1, '', 1, 9e9)",
                "INSERT INTO builds (build_id, asset, partition, state, fingerprint, code_version,"
                " built_from, orchestrator, run_id, provenance, error, started_at)"
                " VALUES (:id, :name, '', 'running', 'fp', 'c', '[]', 'local', '', '{}', '', 1)",
            ):
                connection.execute_many(insert, rows)

    def statements(size):
        nodes = [Node(f"n{i}") for i in range(size)]
        found = []
        for read in (ledger.records, ledger.holds):
            for wanted in (None, nodes):
                with counted(monkeypatch) as asked:
                    assert len(read(wanted)) >= size
                found.append(len(asked))
        with counted(monkeypatch) as asked:
            assert len(ledger.claims()) >= size
        return [*found, len(asked)]

    fill(0, 3)
    few = statements(3)
    fill(3, 1_200)
    assert statements(1_200) == few
    assert max(few) <= 3
