"""Kept fresh over random histories: it ends, leaves nothing to do, and builds nothing twice."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone

from clock import Clock
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, platforms
from worlds import World

from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.freshness import Always, Manual
from examlops_dagster.core.records import BuildState
from examlops_dagster.core.verdicts import State

PASSES = 12
"""Far more than a plan ever needs: one, and one more for each that failed and is tried again."""

HOLDS_UP = {
    State.WAITING_FOR_REQUEST,
    State.WAITING_FOR_SCHEDULE,
    State.FAILED,
    State.UNDECLARED,
}


def function_of(declaration, how):
    calls = Counter()

    def produce(**given):
        key = given.get("key", "")
        calls[key] += 1
        if how == "fails" or (how == "fails once" and calls[key] == 1):
            raise ValueError("no luck")
        if declaration.node_type is NodeType.SENSOR:
            return how != "same", 1
        return 1 if how == "same" else None

    return produce


class KeptFresh(World):
    """A platform with automation; what a tick builds is checked while it is built."""

    def __init__(self, declarations, how):
        declared = [
            d if d.function is None else replace(d, function=function_of(d, how[d.name]))
            for d in declarations
        ]
        super().__init__(Clock(datetime(2026, 1, 5, 4, 3, tzinfo=timezone.utc)), *declared)
        self.first_seen = {}
        self.last_success = {}
        self.failures = Counter()

    def tick(self):
        for node in self.nodes.scheduled():
            self.first_seen.setdefault(node, self.clock())
        for _ in range(PASSES):
            plan = self.due()
            if plan.is_empty:
                return
            before = len(self.ledger.attempts)
            self.walk.run(plan)
            self.check(self.ledger.attempts[before:])
        raise AssertionError("automation does not end")

    def check(self, attempts):
        for attempt, state in attempts:
            declaration = self.graph.declarations[attempt.node.asset]
            if state is BuildState.SUCCEEDED:
                if declaration.function is not None:
                    former = self.last_success.get(attempt.node)
                    assert former != attempt.fingerprint, f"{attempt.node} was built twice"
                self.last_success[attempt.node] = attempt.fingerprint
            else:
                self.failures[attempt.node, attempt.fingerprint] += 1
                failed = self.failures[attempt.node, attempt.fingerprint]
                assert failed <= 1 + declaration.retries, f"{attempt.node} storms"

    def ask(self, node):
        """Build as a person asks; that starts every budget anew."""
        before = len(self.ledger.attempts)
        self.walk.run(self.plan(node))
        for attempt, state in self.ledger.attempts[before:]:
            if state is BuildState.SUCCEEDED:
                self.last_success[attempt.node] = attempt.fingerprint
        self.failures.clear()

    def happen(self, what, number):
        names = list(self.graph.declarations)
        name = names[number % len(names)]
        declaration = self.graph.declarations[name]
        if what == "wait":
            self.clock.advance(minutes=number)
        elif what == "tick":
            self.tick()
        elif what == "source" and declaration.is_source:
            self.change_source(name)
        elif what == "code" and declaration.function is not None:
            self.code[name] = f"{self.code.get(name, '')}x"
        elif what == "ask":
            self.ask(self.nodes.of(name)[0])


@settings(max_examples=150)
@given(platforms(), st.lists(events, max_size=12))
def test_automation_ends_leaves_what_may_be_fresh_fresh_and_builds_nothing_twice(made, history):
    world = KeptFresh(*made)
    for what, number in history:
        world.happen(what, number)
    world.tick()
    verdicts = world.status()
    nodes = world.nodes
    for node, verdict in verdicts.items():
        declaration = world.graph.declarations[node.asset]
        if declaration.function is None:
            continue
        assert verdict.state is not State.RUNNABLE, node
        if declaration.freshness is Always and verdict.state is not State.FRESH:
            above = nodes.ancestors([node])
            assert any(verdicts[each].state in HOLDS_UP for each in above), (node, verdict)
        if declaration.freshness is Manual:
            assert verdict.state is not State.WAITING_FOR_SCHEDULE
    assert world.due().is_empty


@given(platforms(), st.lists(events, max_size=12))
def test_without_failures_manual_nodes_and_schedules_everything_is_fresh(made, history):
    declarations, _ = made
    always = [
        d if d.function is None or d.node_type is NodeType.SENSOR else replace(d, freshness=Always)
        for d in declarations
        if d.node_type is not NodeType.SENSOR
    ]
    kept = {d.name for d in always}
    always = [replace(d, upstreams=tuple(u for u in d.upstreams if u.name in kept)) for d in always]
    if not always:
        return
    world = KeptFresh(always, dict.fromkeys(kept, "new"))
    for what, number in history:
        world.happen(what, number)
    world.tick()
    for node, verdict in world.status().items():
        if world.graph.declarations[node.asset].function is not None:
            assert verdict.state is State.FRESH, (node, verdict)
