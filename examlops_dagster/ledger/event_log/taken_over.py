"""What others and killed builds of ours left in Dagster's event log, taken over in their order."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy
from dagster import AssetKey, DagsterEventType, EventRecordsFilter, MetadataValue
from dagster._core.definitions.data_version import extract_data_version_from_entry
from dagster._core.event_api import EventLogRecord
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.emissions import DatasetEvent, Emission
from examlops_dagster.core.graph import key_path
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import BuildState, Node, Record
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.emissions import REPORTED, publish, record_reported, restore
from examlops_dagster.ledger.event_log.names import Names
from examlops_dagster.ledger.heads import advance_head
from examlops_dagster.ledger.holds import drop_holds
from examlops_dagster.ledger.outside import (
    fill_inputs,
    misnamed,
    open_inputs,
    record_outside,
    rename,
)
from examlops_dagster.ledger.rows import from_epoch, load_reads
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    OUTLET_TAG,
    VERSION_TAG,
)
from examlops_dagster.store.engine import Connection

PAGE = 1000

LONGEST_COMMIT = timedelta(seconds=60)
"""Between an event that is seen and one of a lower id that was stored at the same time and is seen
later: Postgres gives an id when a transaction begins to store, not when it ends."""

logger = logging.getLogger(__name__)


class TakenOver(Names):
    """Brings platform.db up to date with Dagster's event log."""

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
            if current is None:
                read_until = self._surely_read_until(read_until)
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

    def _surely_read_until(self, event_id: int) -> int:
        """Give the id up to which no event can be missing, where ids are not in order of storing.

        Events behind it are read again; each is taken over once.
        """
        storage = self.instance.event_log_storage
        if not isinstance(storage, SqlEventLogStorage):
            return event_id
        table = SqlEventLogStorageTable.c
        with storage.index_connection() as connection:
            made = connection.execute(
                sqlalchemy.select(table.timestamp)
                .where(table.id <= event_id)
                .order_by(table.id.desc())
                .limit(1)
            ).scalar()
            if made is None:
                return 0
            found = connection.execute(
                sqlalchemy.select(table.id)
                .where(table.timestamp < made - LONGEST_COMMIT)
                .where(table.id <= event_id)
                .order_by(table.id.desc())
                .limit(1)
            ).scalar()
        return int(found or 0)

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
        if OUTLET_TAG in tags:
            self._restore_emitted(connection, record)
            return
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
        declaration = self._graph.declarations.get(node.asset)
        emitted = declaration is not None and declaration.is_emitted
        reported = _reported(node.asset, event.metadata) if emitted else None
        is_alias = declaration is not None and declaration.node_type is NodeType.ALIAS
        if is_alias and reported is not None and reported.dataset == node.asset:
            logger.warning("a report on alias %s names no dataset in its metadata", node.asset)
            return
        run_id = entry.run_id or ""
        if not is_alias:
            record_outside(
                connection,
                self._nodes,
                node,
                data_version,
                at,
                event_id=record.storage_id,
                run_id=run_id,
            )
        if reported is not None:
            build_id = f"{REPORTED}{record.storage_id}-{entry.timestamp:.6f}"
            record_reported(connection, node.asset, reported, build_id, run_id, at)

    def _restore_emitted(self, connection: Connection, record: EventLogRecord) -> None:
        """Record what a node of ours emitted, if platform.db has lost it."""
        entry = record.event_log_entry
        event = entry.asset_materialization
        if event is None or "uri" not in event.metadata:
            return  # an alias's, whose datasets have events of their own
        said: dict[str, Any] = {name: value.value for name, value in event.metadata.items()}
        tags = event.tags or {}
        declaration = self._graph.declarations.get(said["uri"])
        restore(
            connection,
            DatasetEvent(
                said["uri"],
                said["extra"],
                said["dataset_extra"],
                tuple(said["aliases"]),
                said["source"],
                said["source_partition"],
                entry.run_id or "",
                from_epoch(entry.timestamp),
                said["version"],
                tags[DATA_VERSION_TAG],
                event.partition or "",
            ),
            tags[OUTLET_TAG],
            is_source=declaration is not None and declaration.is_source,
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
                drop_holds(connection, [Node(row[0], row[1])])
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
        advance_head(connection, node, record, event_id)
        publish(connection, build_id, node, row[6], at)
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
        advance_head(connection, node, head, record.storage_id)

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


def _reported(name: str, metadata: Mapping[str, MetadataValue[Any]]) -> Emission:
    """Read the event of a dataset that others reported, of its own key or of an alias."""
    given = {key: metadata[key].value for key in ("dataset", "uri", "extra") if key in metadata}
    uri = given.get("dataset") or given.get("uri")
    extra = given.get("extra")
    if isinstance(extra, str):
        with suppress(ValueError):
            extra = json.loads(extra)
    if not isinstance(extra, Mapping):
        extra = {
            key: value.value
            for key, value in metadata.items()
            if isinstance(value.value, (str, int, float)) and key not in given
        }
    if not isinstance(uri, str) or uri == name:
        return Emission(name, extra)
    return Emission(uri, extra, aliases=(name,))
