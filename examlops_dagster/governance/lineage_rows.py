"""What platform.db knows of attempts, as their lineage events are made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from examlops_dagster.core.records import BuildState, Node, Read
from examlops_dagster.ledger.history import NOT_BUILT
from examlops_dagster.ledger.notes import read_notes
from examlops_dagster.ledger.rows import from_epoch, listed, load_reads, slots
from examlops_dagster.store.engine import Connection

_SELECT = (
    "SELECT build_id, asset, partition, state, code_version, built_from, orchestrator, run_id, "
    "provenance, version, data_version, error, started_at, ended_at FROM builds"
)
_WRITTEN = (
    "SELECT build_id, dataset, partition, version, data_version, aliases, happened_at "
    "FROM dataset_events WHERE build_id IN ({slots}) ORDER BY dataset, version"
)
_JOBS = (
    "SELECT build_id, scheduler, job_id, cluster, hosts, state FROM hpc_jobs "
    "WHERE job_id <> '' AND build_id IN ({slots}) ORDER BY submitted_at"
)
_BUILT = "SELECT build_id FROM builds WHERE asset = :asset ORDER BY id DESC LIMIT :limit"
_EMITTED_TO_DATASET = (
    "SELECT build_id FROM dataset_events WHERE dataset = :asset GROUP BY build_id "
    "ORDER BY max(happened_at) DESC LIMIT :limit"
)
_EMITTED_TO_ALIAS = (
    "SELECT e.build_id FROM alias_events a JOIN dataset_events e ON e.id = a.event "
    "WHERE a.alias = :asset GROUP BY e.build_id ORDER BY max(a.version) DESC LIMIT :limit"
)


class Written(NamedTuple):
    """A dataset that an attempt wrote, with the aliases through which it said so."""

    node: Node
    read: Read
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """One attempt, with all that is noted of it.

    Attributes
    ----------
    version, data_version
        Of the result; None without one.
    started_at, ended_at
        Aware UTC datetimes.
    begun, ended, run
        Notes of the attempt and of its run.
    assets
        Notes of its asset and upstreams, by name.
    job
        The batch job in which it ran; empty if there was none.
    written
        Datasets that it wrote beside its own result; known once it has succeeded.
    is_emission
        Whether there was no attempt: somebody said from outside that he wrote these.
    """

    build_id: str
    node: Node
    state: BuildState
    code_version: str
    built_from: Mapping[Node, Read]
    orchestrator: str
    run_id: str
    provenance: Mapping[str, str]
    version: int | None
    data_version: str | None
    error: str
    started_at: datetime
    ended_at: datetime | None
    begun: Mapping[str, Any] = field(default_factory=dict)
    ended: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    assets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    job: Mapping[str, str] = field(default_factory=dict)
    written: tuple[Written, ...] = ()
    is_emission: bool = False

    @property
    def is_reported(self) -> bool:
        """Whether nothing was built: such an attempt is told by its end alone."""
        return self.orchestrator in NOT_BUILT

    def of_asset(self, name: str) -> Mapping[str, Any]:
        """Give what is noted of the asset or of an upstream."""
        return self.assets.get(name, {})


def facts_of(connection: Connection, build_ids: Iterable[str]) -> dict[str, Facts]:
    """Give the attempts with these tokens, those that are recorded; up to a few hundred."""
    wanted = list(dict.fromkeys(build_ids))
    if not wanted:
        return {}
    named = slots(wanted)
    inside = listed(named)
    rows = connection.execute(f"{_SELECT} WHERE build_id IN ({inside})", **named)
    jobs = {
        row[0]: dict(
            zip(("scheduler", "job_id", "cluster", "hosts", "state"), row[1:], strict=True)
        )
        for row in connection.execute(_JOBS.format(slots=inside), **named)
    }
    written: dict[str, list[Written]] = {}
    moments: dict[str, datetime] = {}
    for row in connection.execute(_WRITTEN.format(slots=inside), **named):
        aliases = tuple(json.loads(row[5]))
        event = Written(Node(row[1], row[2]), Read(row[3], row[4]), aliases)
        written.setdefault(row[0], []).append(event)
        moments[row[0]] = from_epoch(row[6])
    found = _with_notes(connection, rows, jobs, written)
    for build_id in written.keys() - found.keys():
        found[build_id] = _emission(build_id, written[build_id], moments[build_id])
    return found


def facts_of_asset(connection: Connection, asset: str, limit: int) -> list[Facts]:
    """Give the latest attempts of an asset, newest first; of a dataset or alias, who wrote it."""
    rows: list[Any] = []
    for sql in (_BUILT, _EMITTED_TO_DATASET, _EMITTED_TO_ALIAS):
        rows = rows or connection.execute(sql, asset=asset, limit=limit)
    found = facts_of(connection, [row[0] for row in rows])
    return [found[row[0]] for row in rows if row[0] in found]


def _emission(build_id: str, written: list[Written], moment: datetime) -> Facts:
    named = written[0].aliases[0] if written[0].aliases else written[0].node.asset
    return Facts(
        build_id,
        Node(named),
        BuildState.SUCCEEDED,
        "",
        {},
        NOT_BUILT[0],
        "",
        {},
        None,
        None,
        "",
        moment,
        moment,
        written=tuple(written),
        is_emission=True,
    )


def _with_notes(
    connection: Connection,
    rows: list[Any],
    jobs: Mapping[str, Mapping[str, str]],
    written: Mapping[str, list[Written]],
) -> dict[str, Facts]:
    reads = {row[0]: load_reads(row[5]) for row in rows}
    names = {row[1] for row in rows} | {n.asset for read in reads.values() for n in read}
    assets = read_notes(connection, "asset", names)
    runs = read_notes(connection, "run", [row[7] for row in rows if row[7]])
    begun = read_notes(connection, "begun", reads)
    ended = read_notes(connection, "ended", reads)
    return {
        row[0]: Facts(
            row[0],
            Node(row[1], row[2]),
            BuildState(row[3]),
            row[4],
            reads[row[0]],
            row[6],
            row[7] or "",
            json.loads(row[8]),
            row[9],
            row[10],
            row[11],
            from_epoch(row[12]),
            None if row[13] is None else from_epoch(row[13]),
            begun.get(row[0], {}),
            ended.get(row[0], {}),
            runs.get(row[7], {}),
            assets,
            jobs.get(row[0], {}),
            tuple(written.get(row[0], ())),
        )
        for row in rows
    }
