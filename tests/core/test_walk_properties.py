"""What holds after any history of builds and changes."""

from dataclasses import replace

from clock import Clock
from hypothesis import given
from hypothesis import strategies as st
from strategies import pipelines
from worlds import NOW, World, says

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.verdicts import State


@st.composite
def histories(draw):
    """Declarations, and what happens to them: materialize, a change of a source or of code."""
    declarations = draw(pipelines())
    every = [d.name for d in declarations]
    sources = [d.name for d in declarations if d.is_source] or [None]
    events = st.one_of(
        st.tuples(st.just("materialize"), st.sampled_from(every)),
        st.tuples(st.just("source"), st.sampled_from(sources)),
        st.tuples(st.just("code"), st.sampled_from(every)),
        st.tuples(st.just("due"), st.none()),
        st.tuples(st.just("wait"), st.none()),
    )
    return declarations, draw(st.lists(events, max_size=6)), draw(st.sets(st.sampled_from(every)))


def lived(declarations, events, equal):
    """A world in which ``events`` happened; the functions in ``equal`` always return the same."""
    functions = {name: says(1) for name in equal}
    declared = [
        replace(d, function=functions.get(d.name, d.function)) if d.function else d
        for d in declarations
    ]
    clock = Clock(NOW)
    first_seen = {Node(d.name): NOW for d in declarations}
    world = World(clock, *declared, first_seen=first_seen)
    for event, name in events:
        clock.advance(minutes=1)
        if event == "materialize":
            world.materialize(name)
        elif event == "source" and name:
            world.change_source(name)
        elif event == "code":
            world.code = {**world.code, name: str(clock())}
        elif event == "due":
            world.run_due()
        elif event == "wait":
            clock.advance(hours=7)
    clock.advance(seconds=1)
    return world


@given(histories(), st.data())
def test_running_a_plan_leaves_the_next_plan_empty(history, data):
    world = lived(*history)
    target = data.draw(st.sampled_from(list(world.graph.declarations)))
    world.materialize(target)
    again = world.plan(target)
    assert [s for s in again.steps if not s.forced] == []
    assert again.blocked == ()


@given(histories())
def test_running_all_that_is_due_leaves_nothing_due(history):
    world = lived(*history)
    world.run_due()
    assert world.due().steps == ()


@given(histories())
def test_what_is_fresh_was_built_from_what_exists(history):
    world = lived(*history)
    records = world.ledger.records()
    for node, verdict in world.status().items():
        if verdict.state is State.FRESH and records[node].build_id:
            read = records[node].built_from
            assert set(read) == {Node(u.name) for u in world.graph.upstreams(node.asset)}
            for upstream, was in read.items():
                assert records[upstream].data_version == was.data_version
                assert world.status()[upstream].state is State.FRESH


@given(histories())
def test_the_number_of_a_node_names_one_content(history):
    world = lived(*history)
    seen = {}
    for attempt, state in world.ledger.attempts:
        assert state is BuildState.SUCCEEDED
        for upstream, read in attempt.built_from.items():
            assert seen.setdefault((upstream, read.version), read.data_version) == read.data_version
