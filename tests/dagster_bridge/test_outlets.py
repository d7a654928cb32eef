"""The third seed on a real instance: datasets that are known only while a node runs.

What the tests of the original assert (T1 to T27 of facts/aliases.md), and where it stands here
(in the files test_outlets*.py, unless another one is named):

T1, T3, T4   test_a_task_emits_to_the_alias..., test_metadata_that_is_yielded...
T2           core/test_emissions.py, test_three_aliases_of_which_two_agree...
T5, T23      nothing is inactive, and nothing is referred to by an API, in Dagster
T6           test_an_alias_that_was_never_resolved...
T7           a string is a key, as the seed has it; anything else is a TypeError
T8           an error, not silence: test_an_undeclared_alias_is_an_error...
T9           test_every_consumer_of_an_alias_is_stale_by_one_event
T10          constant cost: benchmarks/alias_100000.py
T11          test_different_extras_are_different_events: nobody follows these
T12          Dagster's own asset sensors listen to the keys
T13 to T15   core/test_emissions.py, test_the_truth_table_of_conditions
T16          test_the_edges_are_there_before_anything_ran
T17          test_an_alias_that_several_nodes_name_is_one
T18          core/test_emissions.py, test_an_accessor_is_made_once...
T19          one way: the object or its name
T20          test_an_event_is_read_under_its_alias_and_under_its_dataset
T21          inlet_events is given whole: of an upstream what is new, of an inlet the latest 100
T22          only a declared source has partitions: test_an_alias_is_resolved_to_a_partition...
T24          ledger/test_outlets_ledger.py, test_one_event_of_two_aliases...
T25, T26     there is no client of ours with versions of its own
T27          deps and conditions stand for the sensor
"""

import pytest
from dagster import AssetKey

from examlops_dagster import DefinitionError


def test_a_task_emits_to_the_alias_and_to_the_dataset(home, seed):
    assert home.exa(seed, "my_task").ok
    [event] = home.emissions("my-task-outputs")
    assert event.uri.startswith("s3://bucket/my-task/20")
    assert (event.source, event.aliases, event.extra) == ("my_task", ("my-task-outputs",), {})
    parts = event.uri.replace("://", "/").split("/")
    [stored] = home.instance.fetch_materializations(AssetKey(parts), limit=9).records
    assert stored.asset_materialization.metadata["uri"].value == event.uri
    [of_alias] = home.events("my-task-outputs")
    assert of_alias.metadata["resolved_to"].value == [event.uri]


def test_metadata_that_is_yielded_carries_its_extra(home, seed):
    assert home.exa(seed, "yielding").ok
    [event] = home.emissions("by-yield")
    assert event.extra == {"k": "v"}


def test_an_addition_to_several_aliases_is_one_event(home, seed):
    assert home.exa(seed, "to_both").ok
    [one], [other] = home.emissions("out1"), home.emissions("out2")
    assert one.uri == other.uri == "s3://bucket/both"
    assert one.aliases == ("out1", "out2")
    assert len(home.events("s3/bucket/both")) == 1


def test_different_extras_are_different_events(home, seed):
    assert home.exa(seed, "apart").ok
    extras = [[(e.extra, e.aliases) for e in home.emissions(alias)] for alias in ("out3", "out4")]
    assert extras == [[({"foo": 1}, ("out3",))], [({"foo": 2}, ("out4",))]]
    assert len(home.events("s3/bucket/apart")) == 2


def test_a_failed_attempt_emits_nothing_and_a_retry_once(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, task

        TRIES = []


        @task(outlets=[DatasetAlias("out")], retries=1, timeout_seconds=None)
        def flaky(outlet_events):
            outlet_events["out"].add("s3://x")
            TRIES.append(1)
            if len(TRIES) == 1:
                raise OSError("once")
        """
    )
    assert home.exa(module, "flaky").ok
    assert len(module.TRIES) == 2
    assert len(home.emissions("out")) == len(home.events("s3/x")) == 1


def test_an_undeclared_alias_is_an_error_and_not_silence(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, Metadata, task


        @task(outlets=[DatasetAlias("out")], timeout_seconds=None)
        def adding(outlet_events):
            outlet_events["other"].add("s3://x")


        @task(outlets=[DatasetAlias("out", match="s3://good/*")], timeout_seconds=None)
        def yielding():
            yield Metadata("s3://bad/x", alias="out")
        """
    )
    [failed] = home.exa(module, "adding").failed
    assert "has no outlet 'other'" in failed.reason
    [failed] = home.exa(module, "yielding").failed
    assert "takes s3://good/*, not s3://bad/x" in failed.reason
    assert home.emissions("out") == []


def test_a_dataset_that_is_an_outlet_gets_one_event_however_it_was_added(home):
    module = home.module(
        """\
        from examlops_dagster import Dataset, DatasetAlias, Metadata, asset


        @asset(outlets=[Dataset("s3://x"), DatasetAlias("out")], timeout_seconds=None)
        def both():
            yield Metadata(Dataset("s3://x"), extra={"rows": 3}, alias="out")


        @asset(outlets=[Dataset("s3://y")], timeout_seconds=None)
        def plain():
            return 1
        """
    )
    assert home.exa(module, "both", "plain").ok
    [event] = home.emissions("s3://x", alias=False)
    assert (event.extra, event.aliases) == ({"rows": 3}, ("out",))
    [event] = home.emissions("s3://y", alias=False)
    assert event.aliases == ()


def test_a_partition_emits_for_itself(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset, partitions


        @asset(
            partitions={"key": partitions(["a", "b"])},
            outlets=DatasetAlias("out"),
            timeout_seconds=None,
        )
        def parts(key, outlet_events):
            outlet_events["out"].add(f"s3://{key}")
        """
    )
    assert home.exa(module, "parts").ok
    assert [(e.uri, e.source_partition) for e in home.emissions("out")] == [
        ("s3://a", "a"),
        ("s3://b", "b"),
    ]
    assert len(home.events("s3/b")) == 1
    assert len(home.events("out")) == 2


def test_a_click_emits_too(home, seed):
    assert home.click(seed, "to_both").success
    assert len(home.emissions("out1")) == len(home.events("out1")) == 1
    assert home.states(seed)["by_dataset"] == "never built"


def test_a_name_is_an_alias_or_an_asset(home):
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset


        @asset(outlets=DatasetAlias("same"))
        def producer(): ...


        @asset
        def same(): ...
        """
    )
    with pytest.raises(DefinitionError, match="share one name space"):
        home.states(module)
