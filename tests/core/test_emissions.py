"""What is added to outlets and how it is merged; conditions over several upstreams."""

import pickle
import threading
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import built, graph_of, record, snapshot

from examlops_dagster.core.aliases import Condition, Dataset, DatasetAlias, Metadata
from examlops_dagster.core.declarations import Upstream, outlet_declaration
from examlops_dagster.core.emissions import DatasetEvent, emissions
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.outlets import InletEvents, OutletEvents
from examlops_dagster.core.plan import plan_due, plan_targets, slices
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import statuses
from examlops_dagster.core.verdicts import State
from examlops_dagster.errors import DefinitionError, UsageError

X, OUT, OTHER = Dataset("s3://x"), DatasetAlias("out"), DatasetAlias("other")


def emitted(*added, outlets=(OUT, OTHER)):
    return [(e.dataset, dict(e.extra), e.aliases) for e in emissions("node", outlets, added)]


# Merging: the truth table of the seed, and what the original's tests assert (T1 to T3)


def test_extras_of_one_alias_are_merged_and_a_later_key_wins():
    added = [Metadata(X, {"a": 1, "b": 1}, OUT), Metadata("s3://x", {"b": 2}, "out")]
    assert emitted(*added) == [("s3://x", {"a": 1, "b": 2}, ("out",))]


def test_equal_extras_across_aliases_are_one_event_and_none_equals_empty():
    added = [Metadata(X, None, OUT), Metadata(X, {}, OTHER)]
    assert emitted(*added) == [("s3://x", {}, ("out", "other"))]


def test_three_aliases_of_which_two_agree_are_two_events():
    third = DatasetAlias("third")
    added = [
        Metadata(X, {"k": 1}, OUT),
        Metadata(X, {"k": 1}, OTHER),
        Metadata(X, {"k": 2}, third),
    ]
    assert emitted(*added, outlets=(OUT, OTHER, third)) == [
        ("s3://x", {"k": 1}, ("out", "other")),
        ("s3://x", {"k": 2}, ("third",)),
    ]


def test_every_addition_counts_not_the_last_alone():
    added = [Metadata(f"s3://{n}", alias=OUT) for n in range(30)]
    assert len(emitted(*added)) == 30


def test_a_dataset_that_is_an_outlet_is_emitted_once_whatever_is_added():
    outlets = (X, OUT)
    assert emitted(outlets=outlets) == [("s3://x", {}, ())]
    assert emitted(Metadata(X, {"k": 1}, OUT), outlets=outlets) == [("s3://x", {"k": 1}, ("out",))]
    assert emitted(Metadata(X, {"k": 1}), outlets=outlets) == [("s3://x", {"k": 1}, ())]
    both = [Metadata(X, {"k": 1}), Metadata(X, {"k": 1}, OUT)]
    assert emitted(*both, outlets=outlets) == [("s3://x", {"k": 1}, ("out",))]


def test_facts_of_the_dataset_are_apart_from_those_of_the_event():
    [event] = emissions(
        "node", (OUT,), [Metadata(Dataset("s3://x", {"owner": "me"}), {"k": 1}, OUT)]
    )
    assert (event.extra, event.dataset_extra) == ({"k": 1}, {"owner": "me"})


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["s3://a", "s3://b"]),
            st.sampled_from(["out", "other"]),
            st.dictionaries(st.sampled_from("kl"), st.integers(0, 2), max_size=2),
        ),
        max_size=12,
    )
)
def test_each_alias_gets_one_event_of_each_dataset_that_was_added_to_it(added):
    found = emissions("node", (OUT, OTHER), [Metadata(u, e, a) for u, a, e in added])
    linked = [(event.dataset, alias) for event in found for alias in event.aliases]
    assert sorted(linked) == sorted({(uri, alias) for uri, alias, _ in added})
    contents = [(e.dataset, str(sorted(e.extra.items()))) for e in found]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Metadata(X, alias="undeclared"), "no outlet 'undeclared'"),
        (Metadata(X), "no outlet 's3://x'"),
        (Metadata("", alias=OUT), "is no dataset"),
        (Metadata("a\nb", alias=OUT), "is no dataset"),
        (Metadata(X, {"k": object()}, OUT), "cannot be kept as JSON"),
        (Metadata(X, {"k": float("nan")}, OUT), "cannot be kept as JSON"),
        (Metadata(Dataset("s3://x", {"k": {1}}), alias=OUT), "cannot be kept as JSON"),
    ],
)
def test_what_no_outlet_takes_is_an_error_and_not_silence(event, words):
    with pytest.raises(UsageError, match=words):
        emissions("node", (OUT,), [event])


def test_a_pattern_refuses_other_datasets():
    alias = DatasetAlias("out", match="s3://bucket/*")
    assert emissions("node", (alias,), [Metadata("s3://bucket/x", alias="out")])
    with pytest.raises(UsageError, match="takes s3://bucket/"):
        emissions("node", (alias,), [Metadata("s3://other/x", alias="out")])


# What functions get


def test_outlet_events_takes_the_outlet_or_its_name():
    events = OutletEvents("node", (OUT, X))
    events["out"].add("s3://1")
    events[OUT].add(Dataset("s3://2"), {"k": 1})
    events[X].add(extra={"k": 2})
    events["s3://x"].add(X)
    assert [(e.uri, e.aliases) for e in events.added] == [
        ("s3://1", ("out",)), ("s3://2", ("out",)), ("s3://x", ()), ("s3://x", ()),
    ]  # fmt: skip
    assert (list(events), len(events)) == (["out", "s3://x"], 2)


def test_a_wrong_key_or_dataset_fails_at_once_in_the_users_line():
    events = OutletEvents("node", (OUT, X))
    with pytest.raises(UsageError, match="no outlet 'outt'"):
        events["outt"]
    with pytest.raises(TypeError, match="neither a Dataset"):
        events[3]
    with pytest.raises(UsageError, match="takes no event of s3://y"):
        events[X].add("s3://y")
    with pytest.raises(UsageError, match="is no dataset"):
        events[OUT].add()


def test_an_accessor_is_made_once_also_by_threads():
    events = OutletEvents("node", (OUT,))
    found = []
    threads = [threading.Thread(target=lambda: found.append(events[OUT])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(accessor) for accessor in found}) == 1


def test_both_cross_processes():
    events = pickle.loads(pickle.dumps(OutletEvents("node", (OUT,))))
    events["out"].add("s3://x")
    assert len(events.added) == 1
    event = DatasetEvent("s3://x", {}, {}, (), "", "", "", datetime.now(timezone.utc), 1, "d")
    inlets = pickle.loads(pickle.dumps(InletEvents("node", {"out": [event]})))
    assert inlets[OUT][-1] == event
    with pytest.raises(UsageError, match="no inlet 'other'"):
        inlets[OTHER]


# Staleness


def dataset(name="s3://x"):
    return outlet_declaration(Dataset(name), "here")


def alias(name="out"):
    return outlet_declaration(DatasetAlias(name), "here")


def verdicts(graph, records):
    return {str(n): s for n, s in statuses(graph, snapshot(records), {}).items()}


def test_a_consumer_waits_until_the_alias_was_resolved_and_is_stale_by_each_event():
    graph = graph_of(alias(), built("consumer", "out"), built("producer", outlets=(OUT,)))
    found = verdicts(graph, {})
    assert found["out"].shown == "unresolved"
    assert found["consumer"].state is State.WAITING_FOR_UPSTREAM
    assert "exa assets materialize producer" in found["consumer"].note
    found = verdicts(graph, {"out": record(1)})
    assert found["consumer"].state is State.RUNNABLE
    read = record(of={"out": (1, "d1")})
    assert verdicts(graph, {"out": record(1), "consumer": read})["consumer"].state is State.FRESH
    found = verdicts(graph, {"out": record(2), "consumer": read})
    assert found["consumer"].why == ("upstream out changed (1 → 2)",)


def test_a_stale_or_failed_producer_blocks_nobody_who_has_an_event():
    graph = graph_of(alias(), built("consumer", "out"), built("producer", outlets=(OUT,)))
    found = verdicts(graph, {"out": record(1)})
    assert found["producer"].reasons
    assert found["consumer"].state is State.RUNNABLE


@pytest.mark.parametrize(
    ("changed", "both", "either", "nested"),
    [
        ((), False, False, False),
        (("a",), False, True, False),
        (("b",), False, True, False),
        (("c",), False, False, False),
        (("a", "b"), True, True, False),
        (("a", "c"), False, True, True),
        (("b", "c"), False, True, True),
        (("a", "b", "c"), True, True, True),
    ],
)
def test_the_truth_table_of_conditions(changed, both, either, nested):
    names = ("a", "b", "c")
    conditions = {
        "both": Condition("all", ("a", "b")),
        "either": Condition("any", ("a", "b")),
        "nested": Condition("all", (Condition("any", ("a", "b")), "c")),
    }
    expected = {"both": both, "either": either, "nested": nested}
    for name, condition in conditions.items():
        edges = [Upstream(leaf) for leaf in dict.fromkeys(condition.leaves())]
        node = built("node", *edges, conditions=(condition,))
        graph = graph_of(*map(alias, names), node)
        reads = dict.fromkeys(condition.leaves(), (1, "d1"))
        records = {n: record(2 if n in changed else 1) for n in names}
        found = verdicts(graph, {**records, "node": record(of=reads)})["node"]
        assert bool(found.reasons) is expected[name], name


def test_a_condition_of_any_needs_one_of_them_only():
    node = built("node", "a", "b", conditions=(Condition("any", ("a", "b")),))
    graph = graph_of(alias("a"), alias("b"), node)
    assert verdicts(graph, {})["node"].state is State.WAITING_FOR_UPSTREAM
    found = verdicts(graph, {"b": record(1)})
    assert found["node"].state is State.RUNNABLE
    built_once = record(of={"b": (1, "d1")})
    assert verdicts(graph, {"b": record(1), "node": built_once})["node"].state is State.FRESH
    found = verdicts(graph, {"a": record(1), "b": record(1), "node": built_once})["node"]
    assert [str(reason) for reason in found.reasons] == ["upstream a not recorded at build"]


# Plans


def plan_of(graph, records, *targets):
    shot = snapshot(records)
    nodes = Nodes(graph, shot)
    found = statuses(graph, shot, {})
    if not targets:
        return plan_due(graph, nodes, found)
    return plan_targets(graph, nodes, found, [Node(t) for t in targets])


def built_in(plan):
    return [str(step.node) for step in plan.steps]


def test_a_request_defers_what_follows_an_unresolved_alias_behind_its_producer():
    graph = graph_of(alias(), built("consumer", "out"), built("producer", outlets=(OUT,)))
    plan = plan_of(graph, {}, "consumer")
    assert built_in(plan) == ["producer"]
    assert [str(b.node) for b in plan.deferred] == ["out", "consumer"]
    assert plan.blocked == ()


def test_nobody_emits_and_nobody_may_is_said_with_a_remedy():
    graph = graph_of(alias(), built("consumer", "out"))
    [blocked] = plan_of(graph, {}, "consumer").blocked
    assert str(blocked.node) == "consumer"
    assert "exa assets emit out URI" in blocked.why


def test_a_dataset_that_nobody_emits_is_adopted_for_who_asks_and_for_nobody_else():
    graph = graph_of(dataset(), built("consumer", "s3://x"))
    assert built_in(plan_of(graph, {}, "consumer")) == ["s3://x", "consumer"]
    assert built_in(plan_of(graph, {})) == []


def test_a_consumer_comes_in_a_later_part_than_the_producer():
    graph = graph_of(
        alias(), built("consumer", "out"), built("producer", outlets=(OUT,)), built("apart")
    )
    plan = plan_of(graph, {"out": record(1)})
    assert sorted(built_in(plan)) == ["apart", "consumer", "producer"]
    parts = slices(graph, Nodes(graph, snapshot({})), plan)
    assert [sorted(built_in(part)) for part in parts] == [["apart", "producer"], ["consumer"]]


def test_who_emits_what_it_is_made_from_is_a_cycle_that_is_named():
    with pytest.raises(DefinitionError, match="cycle: "):
        graph_of(alias(), built("node", "out", outlets=(OUT,)))


def test_each_event_is_for_datasets_and_aliases_alone():
    from examlops_dagster import each_event

    edge = Upstream("plain", None, each_event("plain"))
    with pytest.raises(DefinitionError, match="has no events"):
        graph_of(built("plain"), built("node", edge))
