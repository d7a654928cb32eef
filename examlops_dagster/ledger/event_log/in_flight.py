"""What runs and backfills of Dagster are going to build."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from dagster import AssetKey, DagsterEventType, DagsterRun, RunsFilter
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES, DagsterRunStatus
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    BACKFILL_ID_TAG,
    PARTITION_NAME_TAG,
)

from examlops_dagster.clock import utc_now
from examlops_dagster.core.ranges import keys_between
from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.event_log.launched import Launched
from examlops_dagster.ledger.event_log.names import Names
from examlops_dagster.ledger.processes import Process
from examlops_dagster.ledger.tags import PROCESS_TAG, chosen_keys

IN_FLIGHT = [*IN_PROGRESS_RUN_STATUSES, DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED]

logger = logging.getLogger(__name__)


class InFlight(Names):
    """Says which nodes open runs and backfills are still going to build."""

    @cached_property
    def _launched(self) -> Launched:
        return Launched(self.instance)

    def in_flight(self) -> frozenset[Node]:
        """Give the nodes that open runs are still going to build."""
        ledger = BuildsLedger(self._database)
        alive = {claim.run_id for claim in ledger.claims().values()}
        nodes = self._in_backfills()
        dead: list[str] = []
        for record in self.instance.get_run_records(RunsFilter(statuses=IN_FLIGHT)):
            run = record.dagster_run
            if self._is_dead(run, alive):
                dead.append(run.run_id)
            else:
                nodes |= self.planned(run)
        with self._database.write() as connection:
            former = watermark.stored(connection)
            watermark.store(connection, replace(former, dead_runs=tuple(sorted(dead))))
        for run_id in set(dead).difference(former.dead_runs):
            logger.warning(
                "run %s is still open in Dagster, but its process was killed: it counts as running "
                "no longer → end it in Dagster's UI (Terminate, force)",
                run_id,
            )
        return frozenset(nodes)

    def _in_backfills(self) -> set[Node]:
        """Give the nodes that open backfills have not built yet, requested runs or not."""
        open_ones = [BulkActionStatus(status) for status in watermark.OPEN_BACKFILLS]
        nodes: set[Node] = set()
        for backfill in self.instance.get_backfills(BulkActionsFilter(statuses=open_ones)):
            nodes |= self.targets(backfill)
            runs = RunsFilter(tags={BACKFILL_ID_TAG: backfill.backfill_id})
            for run_id in self.instance.get_run_ids(runs):
                nodes -= self._ended_in(run_id)
        return nodes

    def targets(self, backfill: PartitionBackfill) -> set[Node]:
        """Give the nodes that a backfill is for; none for one of a job, whose runs are."""
        if backfill.asset_backfill_data is None:
            return set()
        targets = backfill.asset_backfill_data.target_subset.iterate_asset_partitions()
        return {Node(self.name(asset), key or "") for asset, key in targets}

    def planned(self, run: DagsterRun) -> set[Node]:
        """Give the nodes of a run that it has not built yet."""
        keys: Iterable[AssetKey] = run.asset_selection or ()
        if not keys:
            planned = self.instance.get_records_for_run(
                run.run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION_PLANNED
            ).records
            keys = {
                record.event_log_entry.dagster_event.asset_key
                for record in planned
                if record.event_log_entry.dagster_event
                and record.event_log_entry.dagster_event.asset_key
            }
        ended = self._ended_in(run.run_id)
        names = [self.name(key) for key in keys]
        return {Node(name, key) for name in names for key in self._keys(run, name)} - ended

    def _ended_in(self, run_id: str) -> set[Node]:
        """Give the nodes that a run is done with: built, or failed as often as they may."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT asset, partition, state, count(*) FROM builds WHERE run_id = :run_id "
                "AND state <> 'running' GROUP BY asset, partition, state",
                run_id=run_id,
            )
        ended: set[Node] = set()
        for asset, partition, state, count in rows:
            declaration = self._graph.declarations.get(asset)
            retries = declaration.retries if declaration is not None else 0
            if not BuildState(state).holds or count > retries:
                ended.add(Node(asset, partition))
        return ended

    def _keys(self, run: DagsterRun, name: str) -> Sequence[str]:
        """Give the partition keys of an asset that a run is about."""
        declaration = self._graph.declarations.get(name)
        if declaration is None or declaration.partitions is None:
            return ("",)
        if PARTITION_NAME_TAG in run.tags:
            return (run.tags[PARTITION_NAME_TAG],)
        first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG)
        last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG)
        existing = list(declaration.partitions.keys(utc_now(), self.dynamic_keys()))
        if first is None or last is None or not {first, last} <= set(existing):
            return existing
        keys = keys_between(declaration.partitions, existing, first, last)
        return chosen_keys(run.tags, name, keys)

    def _is_dead(self, run: DagsterRun, alive: set[str]) -> bool:
        """Tell whether the process that executed a run was killed, so that it stays open."""
        if run.run_id in alive:
            return False
        process = run.tags.get(PROCESS_TAG)
        if process is not None:
            return Process.parse(process).is_gone
        if run.status not in (DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING):
            return False
        if not self._database.is_postgres and self._launched.is_gone(run):
            return True
        with self._database.read() as connection:
            return bool(
                connection.execute(
                    "SELECT 1 FROM builds WHERE run_id = :run_id AND state = 'running' LIMIT 1",
                    run_id=run.run_id,
                )
            )
