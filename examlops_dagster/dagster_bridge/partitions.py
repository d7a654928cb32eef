"""Partition spaces and mappings as Dagster's, and the keys that a run is about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from dagster import (
    AllPartitionMapping,
    AssetExecutionContext,
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionMapping,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    WeeklyPartitionsDefinition,
)
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from dagster._utils.warnings import disable_dagster_warnings

from examlops_dagster.core.declarations import Declaration, Upstream
from examlops_dagster.core.partitions import Dimension, DynamicSpace, PartitionSpace, StaticSpace
from examlops_dagster.core.ranges import corners, keys_between
from examlops_dagster.core.windows import TimeWindowSpace, Unit
from examlops_dagster.ledger.tags import KEYS_TAG, chosen_keys

_WINDOWS = {
    Unit.HOURLY: HourlyPartitionsDefinition,
    Unit.DAILY: DailyPartitionsDefinition,
    Unit.WEEKLY: WeeklyPartitionsDefinition,
    Unit.MONTHLY: MonthlyPartitionsDefinition,
}


def partitions_def(space: PartitionSpace | None) -> PartitionsDefinition[str] | None:
    """Give Dagster's definition of a space."""
    if space is None:
        return None
    if len(space.dimensions) == 1:
        return _dimension(space.dimensions[0][1])
    return MultiPartitionsDefinition({name: _dimension(each) for name, each in space.dimensions})


def partition_mapping(
    edges: Sequence[Upstream], downstream: Declaration, upstream: Declaration
) -> PartitionMapping | None:
    """Give the mapping that Dagster shows; what a build reads is decided by ours.

    A mapping by a function is shown as all keys, since Dagster can load no mapping of others.
    """
    if downstream.partitions is None or upstream.partitions is None:
        return None
    kinds = {edge.mapped.kind for edge in edges if edge.mapped is not None}
    if kinds & {"all_keys", "keys"}:
        return AllPartitionMapping()
    if downstream.partitions == upstream.partitions or kinds:
        return None
    own, theirs = (dict(d.partitions.dimensions) for d in (downstream, upstream) if d.partitions)
    windows = [s for s in (*own.values(), *theirs.values()) if isinstance(s, TimeWindowSpace)]
    if len(own) == len(theirs) == 1 and len(windows) == len(own) + len(theirs):
        with disable_dagster_warnings():  # that the parameter is in beta is not the user's concern
            return TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
    if len(own) != len(theirs) and set(own.items()) & set(theirs.items()):
        return None
    return AllPartitionMapping()


def keys_of_run(context: AssetExecutionContext, asset: str) -> list[str]:
    """Give the partition keys that a step is about, in order; one empty key without partitions."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return [""]
    keys = [str(key) for key in context.partition_keys]
    return list(chosen_keys(context.run.tags, asset, keys))


def run_tags(
    chosen: Mapping[str, Sequence[str]], space: PartitionSpace, existing: Sequence[str]
) -> dict[str, str]:
    """Give the tags of one run over some keys of some assets of one space.

    Parameters
    ----------
    chosen
        Keys by asset.
    space
        Their space.
    existing
        All keys of the space, in order.
    """
    first, last = corners(space, existing, (key for keys in chosen.values() for key in keys))
    if first == last:
        return {PARTITION_NAME_TAG: first}
    tags = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
    whole = keys_between(space, existing, first, last)
    if any(len(keys) != len(whole) for keys in chosen.values()):
        position = {key: n for n, key in enumerate(whole)}
        ranges = {
            name: [[whole[a], whole[b]] for a, b in _ranges(position[key] for key in keys)]
            for name, keys in chosen.items()
        }
        tags[KEYS_TAG] = json.dumps(ranges)
    return tags


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _dimension(space: Dimension) -> PartitionsDefinition[str]:
    if isinstance(space, StaticSpace):
        return StaticPartitionsDefinition(list(space.keys))
    if isinstance(space, DynamicSpace):
        return DynamicPartitionsDefinition(name=space.name)
    start, end = space.start, space.end
    if space.unit is Unit.HOURLY:  # Dagster wants the hour of a date too
        start, end = _with_hour(start), None if end is None else _with_hour(end)
    made: PartitionsDefinition[str] = _WINDOWS[space.unit](
        start_date=start, end_date=end, timezone=space.timezone
    )
    return made


def _with_hour(text: str) -> str:
    return text if ":" in text else f"{text}-00:00"
