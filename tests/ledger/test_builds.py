import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from examlops_dagster.core.seams import Attempt, BuildState, Claim, Node, Read, Record
from examlops_dagster.core.status import MAX_DEATHS
from examlops_dagster.errors import StoreError
from examlops_dagster.ledger import claims
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.claims import EXPIRY_SECONDS, process_started
from examlops_dagster.ledger.heads import set_head
from examlops_dagster.ledger.memory import MemoryLedger
from examlops_dagster.ledger.rows import dump_reads, load_reads
from examlops_dagster.store.engine import Connection, Database
from examlops_dagster.store.migrations import migrate

ROOT = Path(__file__).parents[2]
A, B = Node("a"), Node("b")
UP = {Node("up"): Read(3, "u3"), Node("p", "x|y"): Read(1, "p1")}
AWKWARD = [
    Node("it's"),
    Node('"quoted"; --'),
    Node("100%s"),
    Node("größe/x", "2024-01-01|eu"),
    Node("a", ":name"),
]


def attempt(node=A, build_id="1", fingerprint="fp", **more):
    return Attempt(node, build_id, fingerprint, "code", more.pop("built_from", UP), "local", **more)


def built(ledger, node=A, build_id="1", data="d1", **more):
    """Take a node through a whole successful build."""
    this = attempt(node, build_id, **more)
    assert ledger.claim(node, build_id) is None
    ledger.begin(this)
    version = ledger.allot(this, data)
    found = ledger.complete(this, version, data, {"orchestrator": "local"})
    ledger.release(node, build_id)
    return found


def failed(ledger, node=A, build_id="1", state=BuildState.FAILED, error="no", **more):
    this = attempt(node, build_id, **more)
    ledger.begin(this)
    return ledger.fail(this, state, error)


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


@pytest.fixture
def ledger(any_database, clock):
    found = BuildsLedger(any_database, clock)
    yield found
    found.close()


@contextmanager
def counted(monkeypatch):
    """Count the statements that are executed."""
    asked = []
    execute = Connection.execute

    def count(self, sql, /, **parameters):
        asked.append(sql)
        return execute(self, sql, **parameters)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", count)
        yield asked


# what is stored


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


# history


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


# what automation saw


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


# bulk reads


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


# numbers, with real processes


def run_script(script, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


BUILDER = """
import json, sys, time
from examlops_dagster.core.seams import Attempt, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.store.engine import Database

place, me, how = sys.argv[1:]
database = Database(place)
ledger = BuildsLedger(database)
node = Node("a")
versions = []
assert ledger.records() == {}
print("ready", flush=True)
sys.stdin.readline()
for n in range(50):
    token = f"{me}{n}"
    while how == "claimed" and ledger.claim(node, token) is not None:
        time.sleep(0.001)
    attempt = Attempt(node, token, "fp", "", {}, "local")
    if how == "claimed":
        ledger.begin(attempt)
    version = ledger.allot(attempt, token)
    versions.append(version)
    if how == "claimed":
        ledger.complete(attempt, version, token, {})
        ledger.release(node, token)
print(json.dumps(versions))
ledger.close()
database.close()
"""


@pytest.mark.parametrize("how", ["claimed", "unclaimed"])
def test_a_number_is_never_given_twice_to_two_processes(any_database, how):
    processes = [run_script(BUILDER, any_database.location, me, how) for me in "xy"]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ours, theirs = (json.loads(p.communicate()[0]) for p in processes)
    assert sorted(ours + theirs) == list(range(1, 101))
    assert (ours, theirs) == (sorted(ours), sorted(theirs))
    if how == "claimed":
        rows = BuildsLedger(any_database).history(A, limit=200)
        assert [row.version for row in rows] == list(range(100, 0, -1))
        assert {row.state for row in rows} == {BuildState.SUCCEEDED}


# claims, with real processes

CLAIMER = """
import sys, time
from examlops_dagster.core.seams import Attempt, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.store.engine import Database

ledger = BuildsLedger(Database(sys.argv[1]))
assert ledger.claim(Node("a"), "theirs", "their run") is None
ledger.begin(Attempt(Node("a"), "theirs", "fp", "", {}, "local", "their run"))
print("claimed", flush=True)
time.sleep(60)
"""


@pytest.fixture
def claimer(any_database):
    """A process that has claimed ``a`` and is building it."""
    process = run_script(CLAIMER, any_database.location)
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def real(any_database):
    found = BuildsLedger(any_database)
    yield found
    found.close()


def test_a_claim_is_exclusive_among_processes(claimer, real):
    held = real.claim(A, "ours")
    assert (held.pid, held.token, held.run_id) == (claimer.pid, "theirs", "their run")
    assert real.holds() == {}


def test_kill_9_of_the_claimer_frees_the_claim_at_once(claimer, real):
    claimer.send_signal(signal.SIGKILL)
    claimer.wait()
    assert real.claims() == {}
    assert real.claim(A, "ours") is None


def test_a_killed_claimer_that_nobody_waited_for_is_gone_too(claimer, real):
    claimer.send_signal(signal.SIGKILL)
    for _ in range(500):
        if not real.claims():
            break
        time.sleep(0.01)
    assert real.claims() == {}
    assert claimer.returncode is None


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


# claims, with rows of other hosts


def put_claim(
    database, clock, *, host="elsewhere", pid=1, pid_started=1.0, age=0.0, token="theirs"
):
    at = (clock() - timedelta(seconds=age)).timestamp()
    with database.write() as connection:
        connection.execute(
            "INSERT INTO claims VALUES ('a', '', :token, :host, :pid, :pid_started, '', :at, :at)",
            token=token,
            host=host,
            pid=pid,
            pid_started=pid_started,
            at=at,
        )


def test_a_claim_of_another_host_is_alive_by_its_heartbeat(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS - 1)
    assert ledger.claims()[A].host == "elsewhere"
    assert ledger.claim(A, "ours").token == "theirs"


def test_a_claim_of_another_host_expires_with_its_heartbeat(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS + 1)
    assert ledger.claims() == {}
    assert ledger.claim(A, "ours") is None
    assert ledger.claims()[A].token == "ours"


def test_an_attempt_whose_claim_expired_is_a_death(any_database, ledger, clock):
    put_claim(any_database, clock)
    ledger.begin(attempt(build_id="theirs"))
    assert ledger.holds() == {}
    clock.advance(seconds=EXPIRY_SECONDS + 1)
    assert ledger.holds()[A].deaths == 1


def test_who_comes_back_late_cannot_release_the_claim_of_another(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS + 1)
    ledger.claim(A, "ours")
    ledger.release(A, "theirs")
    assert ledger.claims()[A].token == "ours"


def test_a_pid_that_was_given_anew_is_not_the_claimer(any_database, ledger, clock):
    long_ago = process_started(os.getpid()) - 1000
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    put_claim(any_database, clock, **here, pid_started=long_ago)
    assert ledger.claims() == {}


def test_a_clock_that_was_set_does_not_end_a_claim(any_database, ledger, clock):
    shifted = process_started(os.getpid()) + 2
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    put_claim(any_database, clock, **here, pid_started=shifted)
    assert set(ledger.claims()) == {A}


def test_a_process_that_is_not_there_started_never():
    assert process_started(2**22 + 1) == 0.0
    assert process_started(os.getpid()) > 0


# heartbeats


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def test_a_claim_is_kept_alive_until_it_is_released(quick, ledger, clock):
    ledger.claim(A, "ours")
    for _ in range(3):
        clock.advance(seconds=EXPIRY_SECONDS - 1)
        wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    ledger.release(A, "ours")
    assert ledger.claims() == {}


def test_the_start_of_a_claim_does_not_move_with_its_heartbeat(quick, ledger, clock):
    ledger.claim(A, "ours")
    started = clock()
    clock.advance(seconds=7)
    wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    assert ledger.claims()[A].started_at == started


def test_a_heartbeat_that_was_lost_is_followed_by_the_next(
    quick, ledger, any_database, clock, monkeypatch
):
    lost = []
    write = Database.write

    @contextmanager
    def refuse(self):
        if threading.current_thread().name == "examlops-heartbeat" and len(lost) < 2:
            lost.append(1)
            raise StoreError("no connection")
        with write(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "write", refuse)
    ledger.claim(A, "ours")
    clock.advance(seconds=7)
    wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    assert len(lost) == 2


def test_nothing_is_written_where_nothing_is_claimed(quick, ledger, clock, monkeypatch):
    ledger.claim(A, "ours")
    ledger.release(A, "ours")
    with counted(monkeypatch) as asked:
        time.sleep(0.1)
    assert asked == []


def test_a_closed_ledger_beats_no_more_and_can_claim_again(quick, ledger, clock):
    ledger.claim(A, "ours")
    ledger.close()
    clock.advance(seconds=7)
    time.sleep(0.05)
    assert ledger.claims()[A].heartbeat_at != clock()
    assert ledger.claim(B, "ours too") is None
    wait_until(lambda: ledger.claims()[B].heartbeat_at == clock())


# deaths


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


# what the sync from the event log did first


def test_a_head_that_the_sync_set_is_left_alone(any_database, ledger, clock):
    this = attempt(build_id="1")
    ledger.begin(this)
    version = ledger.allot(this, "d1")
    by_sync = replace(built_record(clock), version=version, run_id="by the sync")
    with any_database.write() as connection:
        connection.execute("UPDATE builds SET event_id = 7 WHERE build_id = '1'")
        set_head(connection, A, by_sync, event_id=7)
    ledger.complete(this, version, "d1", {"k": "v"})
    assert ledger.records()[A].run_id == "by the sync"
    with any_database.read() as connection:
        assert connection.execute("SELECT event_id FROM heads") == [(7,)]
    assert (ledger.history(A)[0].state, ledger.history(A)[0].provenance) == (
        BuildState.SUCCEEDED,
        {"k": "v"},
    )


def test_a_head_of_another_build_is_replaced(any_database, ledger, clock):
    with any_database.write() as connection:
        set_head(connection, A, built_record(clock), event_id=7)
    built(ledger, build_id="2", data="d2")
    assert ledger.records()[A].build_id == "2"
    with any_database.read() as connection:
        assert connection.execute("SELECT event_id FROM heads") == [(None,)]


def test_a_number_that_only_the_event_log_knows_is_not_given_again(any_database, ledger, clock):
    with any_database.write() as connection:
        set_head(connection, A, replace(built_record(clock), version=9), event_id=7)
    assert built(ledger, build_id="2", data="d2").version == 10


def built_record(clock):
    return Record(1, "d1", "code", UP, clock(), "1")
