"""Events of datasets and aliases in platform.db."""

import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from examlops_dagster.core.emissions import Emission
from examlops_dagster.core.records import Attempt, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.outlets import Outlets

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=timezone.utc)


@pytest.fixture
def ledger(any_database):
    found = BuildsLedger(any_database)
    yield found
    found.close()


@pytest.fixture
def outlets(any_database):
    return Outlets(any_database)


def build(ledger, token, *emissions, name="producer"):
    attempt = Attempt(Node(name), token, "print", "code", {}, "local", "run")
    ledger.begin(attempt)
    version = ledger.allot(attempt, token, emissions)
    ledger.complete(attempt, version, token, {})


def through(*uris, alias="out", **extra):
    return [Emission(uri, extra, {}, (alias,)) for uri in uris]


def test_what_is_staged_is_unknown_until_the_build_succeeds(ledger, outlets):
    attempt = Attempt(Node("producer"), "one", "print", "code", {}, "local", "run")
    ledger.begin(attempt)
    version = ledger.allot(attempt, "d1", through("s3://x"))
    assert outlets.events("out", alias=True) == []
    ledger.complete(attempt, version, "d1", {})
    [event] = outlets.events("out", alias=True)
    assert (event.uri, event.version, event.source, event.run_id) == (
        "s3://x", 1, "producer", "run",
    )  # fmt: skip
    ledger.complete(attempt, version, "d1", {})
    assert len(outlets.events("out", alias=True)) == 1


def test_an_alias_is_versioned_by_its_events_and_a_dataset_by_its_own(ledger, outlets):
    build(ledger, "one", *through("s3://x", "s3://y"))
    build(ledger, "two", *through("s3://x"))
    assert ledger.records([Node("out")])[Node("out")].version == 3
    found = ledger.records([], ["s3://x", "s3://y", "s3://never"])
    assert {str(node): record.version for node, record in found.items()} == {
        "s3://x": 2,
        "s3://y": 1,
    }


def test_datasets_that_nobody_declares_are_no_records(ledger):
    build(ledger, "one", *through("s3://x"))
    assert {str(node) for node in ledger.records()} == {"producer", "out"}


def test_one_event_of_two_aliases_is_linked_to_both(ledger, outlets):
    build(ledger, "one", Emission("s3://x", {"k": 1}, {"owner": "me"}, ("a", "b")))
    [of_a], [of_b] = outlets.events("a", alias=True), outlets.events("b", alias=True)
    [own] = outlets.events("s3://x", alias=False)
    assert of_a.aliases == of_b.aliases == own.aliases == ("a", "b")
    assert (own.extra, own.dataset_extra) == ({"k": 1}, {"owner": "me"})


def test_events_are_read_from_a_version_to_a_version_and_the_latest(ledger, outlets):
    for number in range(1, 6):
        build(ledger, f"b{number}", *through(f"s3://{number}"))
    assert uris(outlets.events("out", alias=True, after=1, until=3)) == ["s3://2", "s3://3"]
    assert uris(outlets.events("out", alias=True, limit=2)) == ["s3://4", "s3://5"]
    assert outlets.first_after("out", alias=True, after=3) == (4, "b4.0")
    assert outlets.first_after("out", alias=True, after=5) is None


def test_the_last_batch_is_what_the_build_of_a_version_emitted(ledger, outlets):
    build(ledger, "one", *through("s3://1"))
    build(ledger, "two", *through("s3://2", "s3://3"))
    assert uris(outlets.last_batch("out", alias=True, until=3)) == ["s3://2", "s3://3"]
    assert uris(outlets.last_batch("out", alias=True, until=2)) == ["s3://2"]
    assert uris(outlets.last_batch("s3://1", alias=False, until=1)) == ["s3://1"]


def test_what_was_not_sent_is_remembered_until_it_is(ledger, outlets):
    build(ledger, "one", *through("s3://x", k=1))
    [batch] = outlets.unsent("producer", "run")
    assert uris(batch.events) == ["s3://x"]
    assert batch.aliases == {"out": (1, "one.0")}
    assert outlets.left_unsent(NOW - timedelta(days=1)) == []
    assert len(outlets.left_unsent(datetime.now(timezone.utc) + timedelta(days=1))) == 1
    outlets.sent("one")
    assert outlets.unsent("producer", "run") == []


def test_a_dataset_that_others_report_and_ours_emit_has_one_row_of_versions(ledger, outlets):
    attempt = Attempt(Node("s3://x"), "reported", "", "", {}, "report")
    ledger.begin(attempt)
    ledger.complete(attempt, ledger.allot(attempt, "v7"), "v7", {})
    build(ledger, "one", *through("s3://x"))
    [record] = ledger.records([Node("s3://x")], ["s3://x"]).values()
    assert (record.version, record.data_version) == (2, "one.0")


PRODUCER = """\
import sys

from examlops_dagster.core.emissions import Emission
from examlops_dagster.core.records import Attempt, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.store.engine import Database

ledger = BuildsLedger(Database(sys.argv[1]))
for number in range(10):
    token = f"{sys.argv[2]}-{number}"
    attempt = Attempt(Node(f"p{sys.argv[2]}-{number}"), token, "", "", {}, "local", "run")
    ledger.begin(attempt)
    emissions = [Emission(f"s3://{token}", {}, {}, ("out",)), Emission("s3://all", {}, {}, ("out",))]
    ledger.complete(attempt, ledger.allot(attempt, token, emissions), token, {})
"""


def test_a_hundred_producers_at_once_lose_and_double_nothing(any_database, ledger, outlets):
    processes = [
        subprocess.Popen([sys.executable, "-c", PRODUCER, any_database.location, str(number)])
        for number in range(10)
    ]
    assert [process.wait(300) for process in processes] == [0] * 10
    found = outlets.events("out", alias=True)
    assert [event.version for event in found] == list(range(1, 201))
    expected = {f"s3://{n}-{m}" for n in range(10) for m in range(10)} | {"s3://all"}
    assert {event.uri for event in found} == expected
    of_all = outlets.events("s3://all", alias=False)
    assert [event.version for event in of_all] == list(range(1, 101))
    assert ledger.records([Node("out")])[Node("out")].version == 200


def uris(events):
    return [event.uri for event in events]
