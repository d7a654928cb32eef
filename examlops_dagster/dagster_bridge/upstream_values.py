"""Reads the values of a node's upstreams, through the I/O manager that keeps each."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from dagster import AssetKey
from dagster._core.definitions.data_version import extract_data_version_from_entry

from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.failures import last_line
from examlops_dagster.core.records import Node, Record
from examlops_dagster.dagster_bridge.build_context import BuildContext
from examlops_dagster.dagster_bridge.io import IO_MANAGER_KEY, ExamlopsIOManager
from examlops_dagster.dagster_bridge.runtime import Location, Runtime
from examlops_dagster.errors import AssetBuildError, ResultError
from examlops_dagster.formats import decode

LOAD_TRIES = 5


class UpstreamValues:
    """The values that one build reads.

    Parameters
    ----------
    context, location, runtime
        Of the step, or of the tick.
    node
        That is built.
    """

    def __init__(
        self, context: BuildContext, location: Location, runtime: Runtime, node: Node
    ) -> None:
        self._context = context
        self._location = location
        self._runtime = runtime
        self._node = node

    def load(self, upstream: Node, records: Mapping[Node, Record]) -> Any:
        """Give the value of an upstream, and make sure that it belongs to the version read.

        Parameters
        ----------
        records
            What the build reads.

        Raises
        ------
        AssetBuildError
            When it changed meanwhile or cannot be loaded.
        ResultError
            When no value is kept.
        """
        declaration = self._location.graph.declarations[upstream.asset]
        key = self._runtime.event_log.key(upstream.asset)
        manager = getattr(self._context.resources, IO_MANAGER_KEY)
        ours = isinstance(manager, ExamlopsIOManager)
        if declaration.node_type is NodeType.EXTERNAL or not ours:
            return self._load_foreign(key, upstream)
        store = manager.values(self._context.instance)
        value = store.load(key.path, upstream.partition, records[upstream].data_version)
        if value is None:
            current = self._runtime.ledger.records([upstream]).get(upstream)
            if current != records[upstream]:
                raise AssetBuildError(
                    self._node.asset,
                    f"upstream {upstream} changed while its value was loaded → ask again",
                    partition=self._node.partition,
                )
            if current is not None and not current.build_id:
                why = "others reported it, with a version and without a value"
            else:
                why = "its function returns nothing"
            raise ResultError(
                self._node.asset,
                f"no value of {upstream} is kept: {why} → use deps for its version, or let its "
                "function return the value (or AssetOutput)",
                partition=self._node.partition,
            )
        return decode(value)

    def _load_foreign(self, key: AssetKey, upstream: Node) -> Any:
        partition = upstream.partition or None
        for _ in range(LOAD_TRIES):
            before = self._latest(key)
            try:
                value = self._context.load_asset_value(key, partition_key=partition)
            except Exception as error:
                raise AssetBuildError(
                    self._node.asset,
                    f"the value of {upstream} could not be loaded: {last_line(_innermost(error))}",
                    partition=self._node.partition,
                    details=traceback.format_exc(),
                ) from error
            if self._latest(key) == before:
                return value
        raise AssetBuildError(
            self._node.asset,
            f"upstream {upstream} changed each of {LOAD_TRIES} times while its value was loaded",
            partition=self._node.partition,
        )

    def _latest(self, key: AssetKey) -> object:
        entry = self._context.instance.get_latest_materialization_event(key)
        return None if entry is None else (extract_data_version_from_entry(entry), entry.timestamp)


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
