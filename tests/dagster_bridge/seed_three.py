"""The pipeline of the third seed: nodes that emit to aliases, and nodes that follow them."""

SEED = """\
from examlops_dagster import Dataset, DatasetAlias, Metadata, asset, task


@task(outlets=[DatasetAlias("my-task-outputs")], timeout_seconds=None)
def my_task(*, ds, outlet_events):
    outlet_events["my-task-outputs"].add(Dataset(f"s3://bucket/my-task/{ds}"))


@task(outlets=[DatasetAlias("by-yield")], timeout_seconds=None)
def yielding(*, ds):
    s3_dataset = Dataset(f"s3://bucket/my-task/{ds}")
    yield Metadata(s3_dataset, extra={"k": "v"}, alias="by-yield")


@task(outlets=[DatasetAlias("out1"), DatasetAlias("out2")], timeout_seconds=None)
def to_both(*, ds):
    s3_dataset = Dataset("s3://bucket/both")
    yield Metadata(s3_dataset, extra={"k": "v"}, alias=["out1", "out2"])


@task(outlets=[DatasetAlias("out3"), DatasetAlias("out4")], timeout_seconds=None)
def apart(*, ds, outlet_events):
    dataset = Dataset("s3://bucket/apart")
    outlet_events["out3"].add(dataset, extra={"foo": 1})
    outlet_events["out4"].add(dataset, extra={"foo": 2})


@asset(deps=[DatasetAlias("my-task-outputs")], timeout_seconds=None)
def by_alias(inlet_events):
    return [event.uri for event in inlet_events[DatasetAlias("my-task-outputs")]]


@asset(deps=[Dataset("s3://bucket/both")], timeout_seconds=None)
def by_dataset(inlet_events):
    return [dict(event.extra) for event in inlet_events["s3://bucket/both"]]
"""
