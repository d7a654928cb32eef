"""Version numbers among processes, and beside what the sync from the event log did first."""

import json
from dataclasses import replace

import pytest
from attempts import UP, A, attempt, built, run_script

from examlops_dagster.core.records import BuildState, Record
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.heads import set_head

BUILDER = """
import json, sys, time
from examlops_dagster.core.records import Attempt, Node
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
    ours, theirs = (json.loads(p.communicate(timeout=300)[0]) for p in processes)
    assert sorted(ours + theirs) == list(range(1, 101))
    assert (ours, theirs) == (sorted(ours), sorted(theirs))
    if how == "claimed":
        rows = BuildsLedger(any_database).history(A, limit=200)
        assert [row.version for row in rows] == list(range(100, 0, -1))
        assert {row.state for row in rows} == {BuildState.SUCCEEDED}


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
