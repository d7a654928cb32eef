"""Dagster's event log: what exists, also when others made it, and what is in flight."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    EventRecordsFilter,
    RunsFilter,
)
from dagster._core.definitions.data_version import extract_data_version_from_entry
from dagster._core.event_api import EventLogRecord
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES, DagsterRunStatus
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    BACKFILL_ID_TAG,
    PARTITION_NAME_TAG,
)

from examlops_dagster.core.graph import Graph, Nodes, key_path
from examlops_dagster.core.partitions import DynamicSpace
from examlops_dagster.core.ranges import keys_between
from examlops_dagster.core.seams import Attempt, BuildState, Node, Read, Record, Snapshot
from examlops_dagster.core.sinks import check_name
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.builds import BuildsLedger, set_head, utc_now
from examlops_dagster.ledger.claims import SAME_PROCESS_SECONDS, process_started
from examlops_dagster.ledger.outside import (
    fill_inputs,
    misnamed,
    open_inputs,
    record_outside,
    rename,
)
from examlops_dagster.ledger.rows import dump_reads, from_epoch, load_reads
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.store.engine import Connection, Database

BUILD_TAG = "examlops/build"
VERSION_TAG = "examlops/version"
BUILT_FROM = "examlops/built_from"
SLICE_TAG = "examlops/slice"
FORCED_TAG = "examlops/forced"
KEYS_TAG = "examlops/keys"
"""Asset to ``[first, last]`` ranges of its keys, where a run is not about its whole range."""

PROCESS_TAG = "examlops/process"
"""``host:pid:started`` of the process that executes a run of the command line."""

DATA_VERSION_TAG = "dagster/data_version"
CODE_VERSION_TAG = "dagster/code_version"
IN_FLIGHT = [*IN_PROGRESS_RUN_STATUSES, DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED]
PAGE = 1000


class EventLog:
    """Brings platform.db up to date with Dagster's event log, and writes events to it.

    Parameters
    ----------
    instance
        Dagster's instance; its storage may be any.
    database
        platform.db of the same home.
    graph
        Gives the declared names of keys, and what a record made outside was built from.
    """

    def __init__(self, instance: DagsterInstance, database: Database, graph: Graph) -> None:
        self.instance = instance
        self._database = database
        self._graph = graph
        self._names = {key_path(d): name for name, d in graph.declarations.items()}
        self._dynamic = sorted(
            {
                space.name
                for declaration in graph.declarations.values()
                if declaration.partitions is not None
                for _, space in declaration.partitions.dimensions
                if isinstance(space, DynamicSpace)
            }
        )
        self._home = Path(instance.root_directory)
        self._nodes = Nodes(graph, Snapshot(utc_now()))

    def key(self, name: str) -> AssetKey:
        """Give the Dagster key of a declared name."""
        return AssetKey(list(key_path(self._graph.declarations[name])))

    def name(self, key: AssetKey) -> str:
        """Give the declared name of a key; for a key that nobody declares, its parts."""
        return self._names.get(tuple(key.path), "/".join(key.path))

    def sync(self) -> None:
        """Take over every event since the last sync, in their order.

        Builds of ours whose process died after the event was stored are completed; what others
        reported or built gets a version and the upstream versions that were current at its time.
        """
        self._nodes = Nodes(self._graph, Snapshot(utc_now(), dynamic=self.dynamic_keys()))
        if self._nothing_to_do():
            return
        with self._database.write() as connection:
            rename(connection, misnamed(connection, self._graph))
            former = watermark.stored(connection)
            read_until = former.event_id
            current = watermark.read(self._home)
            if current is not None:
                read_until = watermark.read_until(self._home, former)
            mark = current or replace(former, wiped_at=self._wiped_at())
            wiped = (
                mark.wiped_at != former.wiped_at
                or mark.events < former.events
                or read_until < former.event_id
            )
            if wiped:
                self._drop_wiped(connection)
            for record in self._events_after(read_until):
                self._apply(connection, record)
                if current is None:
                    mark = replace(mark, event_id=max(mark.event_id, record.storage_id))
            if wiped:  # a storage may keep the events of what was wiped
                self._drop_wiped(connection)
            fill_inputs(connection, self._nodes)
            watermark.store(connection, replace(mark, dead_runs=former.dead_runs))

    def _nothing_to_do(self) -> bool:
        """Tell whether a sync would change nothing, without taking the writer's lock."""
        current = watermark.read(self._home)
        if current is None:
            return False
        with self._database.read() as connection:
            former = watermark.stored(connection)
            return (
                replace(current, dead_runs=former.dead_runs) == former
                and not open_inputs(connection, self._nodes)
                and not misnamed(connection, self._graph)
            )

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
            mark = replace(watermark.stored(connection), dead_runs=tuple(sorted(dead)))
            watermark.store(connection, mark)
        return frozenset(nodes)

    def report(
        self,
        ledger: BuildsLedger,
        node: Node,
        data_version: str,
        built_from: Mapping[Node, Read] | None = None,
        code_version: str = "",
    ) -> Record:
        """Record that a node has a content now, by an event without a run.

        The caller holds the claim of the node.

        Parameters
        ----------
        ledger
            Where the attempt is written down.
        data_version
            Identifies the content.
        built_from, code_version
            What it was built from, where that is known.
        """
        read = built_from or {}
        attempt = Attempt(node, secrets.token_hex(16), "", code_version, read, "report")
        ledger.begin(attempt)
        try:
            version = ledger.allot(attempt, data_version)
            self.instance.report_runless_asset_event(
                AssetMaterialization(
                    self.key(node.asset),
                    partition=node.partition or None,
                    metadata={BUILT_FROM: dump_reads(read), "version": version},
                    tags={
                        DATA_VERSION_TAG: data_version,
                        VERSION_TAG: str(version),
                        BUILD_TAG: attempt.build_id,
                        **({CODE_VERSION_TAG: code_version} if code_version else {}),
                    },
                )
            )
        except BaseException as error:
            ledger.fail(attempt, BuildState.FAILED, str(error))
            raise
        return ledger.complete(attempt, version, data_version, {})

    def report_sink(self, write: SinkWrite) -> None:
        """Report how a sink ended that was written without a build, as the check of its asset."""
        self.instance.report_runless_asset_event(
            AssetCheckEvaluation(
                asset_key=self.key(write.node.asset),
                check_name=check_name(write.number),
                passed=not write.error,
                metadata={"url": write.url, **({"error": write.error} if write.error else {})},
                severity=AssetCheckSeverity.ERROR,
                blocking=False,
                partition=write.node.partition or None,
            )
        )

    def report_outside(self, node: Node, data_version: str) -> None:
        """Report a result of others, whose inputs nobody recorded; the next sync takes it over."""
        self.instance.report_runless_asset_event(
            AssetMaterialization(
                self.key(node.asset),
                partition=node.partition or None,
                tags={DATA_VERSION_TAG: data_version},
            )
        )

    def _wiped_at(self) -> str:
        """Give when an asset was last wiped, from a storage that the watermark cannot read."""
        storage = self.instance.event_log_storage
        if not isinstance(storage, SqlEventLogStorage):
            return ""
        with storage.index_connection() as connection:
            [(wiped_at,)] = connection.execute(
                sqlalchemy.text("SELECT max(wipe_timestamp) FROM asset_keys")
            )
        return str(wiped_at or "")

    def _events_after(self, cursor: int) -> Iterable[EventLogRecord]:
        found: list[EventLogRecord] = []
        stored = watermark.kinds_after(self._home, cursor)  # Dagster takes 5 ms to say "none"
        for kind in (DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_OBSERVATION):
            if stored is not None and kind.value not in stored:
                continue
            after = cursor
            while True:
                page = self.instance.event_log_storage.get_event_records(
                    EventRecordsFilter(event_type=kind, after_cursor=after),
                    limit=PAGE,
                    ascending=True,
                )
                found.extend(page)
                if len(page) < PAGE:
                    break
                after = page[-1].storage_id
        return sorted(found, key=lambda record: record.storage_id)

    def _apply(self, connection: Connection, record: EventLogRecord) -> None:
        entry = record.event_log_entry
        event = entry.asset_materialization or entry.asset_observation
        if event is None:
            return
        node = Node(self.name(event.asset_key), event.partition or "")
        tags = event.tags or {}
        build_id = tags.get(BUILD_TAG, "")
        at = from_epoch(entry.timestamp)
        if build_id and self._complete_own(connection, build_id, record, at):
            return
        stated = extract_data_version_from_entry(entry)
        if entry.asset_materialization is None and stated is None:
            return  # an observation that names no data version says nothing about content
        data_version = stated.value if stated is not None else str(record.storage_id)
        if build_id and VERSION_TAG in tags:
            self._rebuild_own(connection, node, build_id, data_version, record, at)
            return
        record_outside(
            connection,
            self._nodes,
            node,
            data_version,
            at,
            event_id=record.storage_id,
            run_id=entry.run_id or "",
        )

    def _complete_own(
        self, connection: Connection, build_id: str, stored: EventLogRecord, at: datetime
    ) -> bool:
        rows = connection.execute(
            "SELECT asset, partition, version, data_version, code_version, built_from, run_id, "
            "state, event_id FROM builds WHERE build_id = :build_id",
            build_id=build_id,
        )
        if not rows:
            return False
        [row] = rows
        if row[8] is not None:
            return True
        if row[2] is None:  # a platform.db restored from a copy that was made during the build
            connection.execute("DELETE FROM builds WHERE build_id = :build_id", build_id=build_id)
            return False
        event_id = stored.storage_id
        state = BuildState(row[7])
        if state is not BuildState.UNCHANGED:
            if state is not BuildState.SUCCEEDED:
                connection.execute(
                    "DELETE FROM holds WHERE asset = :asset AND partition = :partition",
                    asset=row[0],
                    partition=row[1],
                )
            state = BuildState.SUCCEEDED
        connection.execute(
            "UPDATE builds SET event_id = :event_id, state = :state, "
            "ended_at = coalesce(ended_at, :at), error = '' WHERE build_id = :build_id",
            event_id=event_id,
            state=state.value,
            at=at.timestamp(),
            build_id=build_id,
        )
        node = Node(row[0], row[1])
        record = Record(row[2], row[3], row[4], load_reads(row[5]), at, build_id, row[6])
        set_head(connection, node, record, event_id)
        return True

    def _rebuild_own(
        self,
        connection: Connection,
        node: Node,
        build_id: str,
        data_version: str,
        record: EventLogRecord,
        at: datetime,
    ) -> None:
        """Write the row of a build of ours that platform.db has lost, from its event."""
        entry = record.event_log_entry
        event = entry.asset_materialization
        tags = (event.tags if event is not None else None) or {}
        text = event.metadata[BUILT_FROM].value if event and BUILT_FROM in event.metadata else "[]"
        version = int(tags[VERSION_TAG])
        code_version = tags.get(CODE_VERSION_TAG, "")
        connection.execute(
            "INSERT INTO builds (build_id, asset, partition, state, fingerprint, code_version, "
            "built_from, orchestrator, run_id, provenance, version, data_version, event_id, error, "
            "started_at, ended_at) VALUES (:build_id, :asset, :partition, 'succeeded', '', "
            ":code_version, :built_from, '', :run_id, '{}', :version, :data_version, :event_id, "
            "'', :at, :at)",
            build_id=build_id,
            **node._asdict(),
            code_version=code_version,
            built_from=str(text),
            run_id=entry.run_id,
            version=version,
            data_version=data_version,
            event_id=record.storage_id,
            at=at.timestamp(),
        )
        connection.execute(
            "INSERT INTO versions (asset, partition, version, data_version, given_at) VALUES "
            "(:asset, :partition, :version, :data_version, :at) ON CONFLICT DO NOTHING",
            **node._asdict(),
            version=version,
            data_version=data_version,
            at=at.timestamp(),
        )
        head = Record(
            version, data_version, code_version, load_reads(str(text)), at, build_id, entry.run_id
        )
        set_head(connection, node, head, record.storage_id)

    def _drop_wiped(self, connection: Connection) -> None:
        """Forget what was wiped in Dagster: an asset, or some of its partitions."""
        heads = connection.execute("SELECT asset, partition, event_id FROM heads")
        names = {row[0] for row in heads}
        keys = {
            name: AssetKey(list(key_path(self._graph.declarations[name])))
            if name in self._graph.declarations
            else AssetKey(name.split("/"))
            for name in names
        }
        records = self.instance.get_asset_records(list(keys.values()))
        existing = {
            r.asset_entry.asset_key
            for r in records
            if r.asset_entry.last_materialization_record is not None
        }
        for key in set(keys.values()) - existing:  # a head may rest on an observation alone
            if self.instance.fetch_observations(key, limit=1).records:
                existing.add(key)
        partitions: dict[str, set[str]] = {}
        gone: list[dict[str, Any]] = []
        for name, partition, _ in heads:
            if keys[name] not in existing:
                gone.append({"asset": name, "partition": partition})
            elif partition:
                if name not in partitions:
                    partitions[name] = set(self.instance.get_materialized_partitions(keys[name]))
                if partition not in partitions[name]:
                    gone.append({"asset": name, "partition": partition})
        connection.execute_many(
            "DELETE FROM heads WHERE asset = :asset AND partition = :partition", gone
        )

    def _in_backfills(self) -> set[Node]:
        """Give the nodes that open backfills have not built yet, requested runs or not."""
        open_ones = [BulkActionStatus(status) for status in watermark.OPEN_BACKFILLS]
        nodes: set[Node] = set()
        for backfill in self.instance.get_backfills(BulkActionsFilter(statuses=open_ones)):
            if backfill.asset_backfill_data is None:
                continue  # of a job, whose runs are in flight by themselves
            for asset, key in backfill.asset_backfill_data.target_subset.iterate_asset_partitions():
                nodes.add(Node(self.name(asset), key or ""))
            runs = RunsFilter(tags={BACKFILL_ID_TAG: backfill.backfill_id})
            for run_id in self.instance.get_run_ids(runs):
                nodes -= self._ended_in(run_id)
        return nodes

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

    def dynamic_keys(self) -> dict[str, Sequence[str]]:
        """Give the keys of every dynamic partition space that is declared."""
        return {name: self.instance.get_dynamic_partitions(name) for name in self._dynamic}

    def _is_dead(self, run: DagsterRun, alive: set[str]) -> bool:
        """Tell whether the process that executed a run was killed, so that it stays open."""
        if run.run_id in alive:
            return False
        process = run.tags.get(PROCESS_TAG)
        if process is not None:
            host, pid, started = process.rsplit(":", 2)
            apart = abs(process_started(int(pid)) - float(started))
            return host == socket.gethostname() and apart > SAME_PROCESS_SECONDS
        if run.status is not DagsterRunStatus.STARTED:
            return False
        with self._database.read() as connection:
            return bool(
                connection.execute(
                    "SELECT 1 FROM builds WHERE run_id = :run_id AND state = 'running' LIMIT 1",
                    run_id=run.run_id,
                )
            )


def open_event_log(home_folder: Path, database: Database, graph: Graph) -> EventLog:
    """Open Dagster's instance of a home, and give its event log.

    Parameters
    ----------
    home_folder
        ``DAGSTER_HOME``.
    database
        platform.db of that home.
    graph
        Declared names and edges.
    """
    return EventLog(DagsterInstance.from_config(str(home_folder)), database, graph)


def chosen_keys(tags: Mapping[str, str], name: str, keys: Sequence[str]) -> Sequence[str]:
    """Give those of a run's keys that it is about for an asset.

    Parameters
    ----------
    tags
        Of the run.
    name
        Of the asset.
    keys
        Of the run's range, in order.
    """
    chosen = tags.get(KEYS_TAG)
    if chosen is None:
        return keys
    position = {key: n for n, key in enumerate(keys)}
    return [
        key
        for first, last in json.loads(chosen).get(name, [])
        if first in position and last in position
        for key in keys[position[first] : position[last] + 1]
    ]


def process_tag() -> str:
    """Describe this process, so that others can tell whether it still lives."""
    return f"{socket.gethostname()}:{os.getpid()}:{process_started(os.getpid()):.2f}"
