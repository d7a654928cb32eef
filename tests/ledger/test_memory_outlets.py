"""Datasets and aliases in the plain walk, in memory and without dagster."""

import pytest
from worlds import LedgerValues

from examlops_dagster import Dataset, DatasetAlias, Metadata, asset, each_event
from examlops_dagster.core.declarations import closed_over, merge
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import plan_due
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import statuses
from examlops_dagster.core.walk import Walk
from examlops_dagster.errors import LaunchError
from examlops_dagster.ledger.memory import MemoryLedger
from examlops_dagster.ledger.memory_outlets import MemoryOutlets
from examlops_dagster.orchestrators.local import LocalOrchestrator

URIS = []
SEEN = []


@asset(outlets=DatasetAlias("out"), timeout_seconds=None)
def producer():
    for uri in URIS:
        yield Metadata(uri, alias="out")


@asset(deps=DatasetAlias("out"), timeout_seconds=None)
def consumer(inlet_events):
    SEEN.append([event.uri for event in inlet_events["out"]])


@asset(deps=each_event(DatasetAlias("out")), timeout_seconds=None)
def one_by_one(inlet_events):
    SEEN.append(inlet_events["out"][0].uri)


@asset(inputs={"new": Dataset("s3://two")}, timeout_seconds=None)
def of_two(new):
    SEEN.append(len(new))


@pytest.fixture(autouse=True)
def quiet():
    URIS.clear()
    SEEN.clear()


@pytest.fixture
def ledger(clock):
    return MemoryLedger(clock)


@pytest.fixture
def outlets(ledger, clock):
    return MemoryOutlets(ledger, clock)


def build_due(ledger, outlets, clock, *functions):
    declared, problems = merge(closed_over(map(declaration_of, functions)), ())
    graph = build_graph(declared, problems)
    orchestrator = LocalOrchestrator(in_process=True)
    walk = Walk(graph, ledger, LedgerValues(ledger), orchestrator, clock, outlets=outlets)
    snapshot = walk.snapshot()
    verdicts = statuses(graph, snapshot, {})
    return walk.run(plan_due(graph, Nodes(graph, snapshot), verdicts))


def test_a_consumer_follows_the_events_of_its_alias(ledger, outlets, clock):
    both = (producer, consumer, of_two)
    assert build_due(ledger, outlets, clock, *both).rebuilt == [Node("producer")]
    assert build_due(ledger, outlets, clock, *both).rebuilt == []
    URIS[:] = ["s3://one", "s3://two"]
    ledger.report(Node("unrelated"), "x")
    _force(ledger)
    assert build_due(ledger, outlets, clock, *both).rebuilt == [Node("producer")]
    build_due(ledger, outlets, clock, *both)
    assert sorted(map(str, SEEN)) == ["1", "['s3://one', 's3://two']"]
    URIS[:] = ["s3://three"]
    _force(ledger)
    build_due(ledger, outlets, clock, *both)
    build_due(ledger, outlets, clock, *both)
    assert SEEN[2:] == [["s3://three"]]
    assert outlets.first_after("out", alias=True, after=2)[0] == 3


def test_events_are_handled_one_by_one_where_that_is_asked(ledger, outlets, clock):
    URIS[:] = ["s3://one", "s3://two"]
    build_due(ledger, outlets, clock, producer)
    build_due(ledger, outlets, clock, one_by_one)
    _force(ledger)
    build_due(ledger, outlets, clock, producer)
    for _ in range(3):
        build_due(ledger, outlets, clock, one_by_one)
    assert SEEN == ["s3://two", "s3://one", "s3://two"]


def test_a_walk_without_outlets_refuses_what_emits(ledger, clock):
    URIS[:] = ["s3://one"]
    outcome = build_due(ledger, None, clock, producer)
    assert isinstance(outcome.failed[Node("producer")], LaunchError)


def _force(ledger):
    """Make the producer stale again."""
    ledger._records.pop(Node("producer"))
