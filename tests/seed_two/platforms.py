"""The platform of the tests of the second seed: decorated functions over a clock that is moved.

The seed is "Workflow: Freshness-Driven Run and Tasks"; its every statement and every acceptance
criterion has a test in this folder. Where we differ from it on purpose, DESIGN.md section 4 says so,
and the test is named after what we do.
"""

from datetime import datetime, timezone

import pytest
from worlds import World

from examlops_dagster import DefinitionError
from examlops_dagster.core.declarations import Declaration, closed_over
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.records import Node
from examlops_dagster.core.walk import Walk
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.local import LocalOrchestrator


def at(hour, minute=0, day=5):
    """A moment of January 2026; the 5th is a Monday."""
    return datetime(2026, 1, day, hour, minute, tzinfo=timezone.utc)


class Counting:
    """The local orchestrator in this process, which keeps what it was asked for."""

    name = "local"

    def __init__(self):
        self._local = LocalOrchestrator(in_process=True)
        self.requests = []

    @property
    def called(self):
        return [str(request.node) for request in self.requests]

    def run(self, request):
        self.requests.append(request)
        return self._local.run(request)


class Values:
    def __init__(self, ledger):
        self._ledger = ledger

    def keep(self, node, value):
        self._ledger.keep(node, value)

    def load(self, node):
        return decode(self._ledger.value(node))


def declared(things):
    return closed_over(t if isinstance(t, Declaration) else declaration_of(t) for t in things)


class Platform(World):
    """Decorated functions, and the automation that sees them from its first tick on."""

    def __init__(self, clock, *things, zone="UTC"):
        super().__init__(clock, *declared(things), zone=zone, first_seen={})
        self.orchestrator = Counting()

    @property
    def walk(self):
        return Walk(
            self.graph,
            self.ledger,
            Values(self.ledger),
            self.orchestrator,
            self.clock,
            self.code,
            self.zone,
            self.slept.append,
            self.first_seen,
        )

    def see(self):
        for node in self.nodes.scheduled():
            self.first_seen.setdefault(node, self.clock())

    def tick(self):
        """Let automation look once, and build what it finds; give the names of what was built."""
        self.see()
        before = len(self.orchestrator.requests)
        self.run_due()
        return self.orchestrator.called[before:]

    def at(self, *moment, **more):
        self.clock.set(at(*moment, **more))
        return self

    def state(self, name, partition=""):
        return self.status()[Node(name, partition)].state

    def value(self, name, partition=""):
        return decode(self.ledger.value(Node(name, partition)))

    def count(self, name):
        return self.orchestrator.called.count(name)


def refused(*functions):
    with pytest.raises(DefinitionError) as caught:
        build_graph({d.name: d for d in declared(functions)})
    return str(caught.value)
