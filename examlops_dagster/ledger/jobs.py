"""Batch jobs in platform.db: what was submitted, what became of it, and where its files are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Database

OPEN_STATES = ("SUBMITTING", "PENDING", "STUCK", "RUNNING", "SUSPENDED", "COMPLETING", "UNKNOWN")
"""Words of the states in which nobody has seen the end of a job."""

_SHORTEST_TOKEN = 8

_COLUMNS = (
    "token", "scheduler", "cluster", "job_id", "submitted_at", "model", "asset", "partition",
    "fingerprint", "build_id", "run_id", "folder", "state", "reason", "started_at", "ended_at",
    "exit_code", "hosts", "nodes", "gpus", "cpus", "array_index",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(f'j.{c}' for c in _COLUMNS)} FROM hpc_jobs j"  # noqa: S608
_OPEN = ", ".join(f"'{word}'" for word in OPEN_STATES)

_BY_ITSELF = -1
"""Index of a job that is no task of an array: NULL is equal to nothing in a key."""

_UNRECORDED = "('running', 'died', 'cancelled')"
"""States of a build whose job ended well: its process died, or was interrupted at that moment."""

_UNCLAIMED = f"""{_SELECT} LEFT JOIN builds b ON b.build_id = j.build_id
    WHERE j.asset = :asset AND ((j.state IN ({_OPEN}) AND coalesce(b.state, '') <> 'succeeded')
        OR (j.state = 'COMPLETED' AND b.state IN {_UNRECORDED}
        AND NOT EXISTS (SELECT 1 FROM builds s WHERE s.asset = j.asset
            AND s.partition = j.partition AND s.state = 'succeeded'
            AND s.started_at > j.submitted_at)))"""  # noqa: S608 - the parts are constants
_OF_A_FINGERPRINT = " AND j.partition = :partition AND j.fingerprint = :fingerprint"
_NEWEST_FIRST = " ORDER BY j.submitted_at DESC, j.token, j.array_index"


class HpcJobs:
    """The jobs of one platform.db.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, job: HpcJob) -> None:
        """See JobsLedger."""
        self.record_all([job])

    def record_all(self, jobs: Iterable[HpcJob]) -> None:
        """See JobsLedger."""
        names = ", ".join(_COLUMNS)
        slots = ", ".join(f":{name}" for name in _COLUMNS)
        changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != "token")
        with self._database.write() as connection:
            connection.execute_many(
                f"INSERT INTO hpc_jobs ({names}) VALUES ({slots}) "  # noqa: S608
                f"ON CONFLICT (token, array_index) DO UPDATE SET {changes}",
                list(map(_row, jobs)),
            )

    def unclaimed(self, node: Node, fingerprint: str) -> Sequence[HpcJob]:
        """See JobsLedger."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_UNCLAIMED}{_OF_A_FINGERPRINT}{_NEWEST_FIRST}",
                **node._asdict(),
                fingerprint=fingerprint,
            )
        return list(map(_job, rows))

    def has_unclaimed(self, node: Node) -> bool:
        """Tell whether a job of a node may still run, or ended unseen."""
        with self._database.read() as connection:
            found = connection.execute(
                f"{_UNCLAIMED} AND j.partition = :partition LIMIT 1", **node._asdict()
            )
        return bool(found)

    def unclaimed_of(self, asset: str) -> Mapping[Node, Sequence[HpcJob]]:
        """See JobsLedger."""
        with self._database.read() as connection:
            rows = connection.execute(f"{_UNCLAIMED}{_NEWEST_FIRST}", asset=asset)
        found: dict[Node, list[HpcJob]] = {}
        for job in map(_job, rows):
            found.setdefault(job.node, []).append(job)
        return found

    def listed(self, *, asset: str | None = None, limit: int = 20) -> list[HpcJob]:
        """Give the latest jobs, of one asset or of all, newest first."""
        clause = "" if asset is None else " WHERE j.asset = :asset"
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_SELECT}{clause}{_NEWEST_FIRST} LIMIT :limit",
                limit=limit,
                **({} if asset is None else {"asset": asset}),
            )
        return list(map(_job, rows))

    def named(self, name: str) -> HpcJob | None:
        """Give the latest job with an id, a token (or its start), or of an asset or node.

        The id of a whole array is that of its first task.
        """
        clause, more = "", {}
        if len(name) >= _SHORTEST_TOKEN:
            clause, more = " OR substr(j.token, 1, :size) = :name", {"size": len(name)}
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE j.job_id = :name OR j.asset = :name OR (j.array_index >= 0 "
                "AND substr(j.job_id, 1, :length) = :name || '_') "
                f"OR j.asset || '[' || j.partition || ']' = :name{clause} "
                f"{_NEWEST_FIRST} LIMIT 1",
                name=name,
                length=len(name) + 1,
                **more,
            )
        return _job(rows[0]) if rows else None

    def meant_by(self, name: str) -> list[HpcJob]:
        """Give the job that `named` gives; of an array all tasks, unless the name is of one."""
        job = self.named(name)
        if job is None:
            return []
        if job.array_index is None or name in (job.job_id, str(job.node)):
            return [job]
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE j.token = :token ORDER BY j.array_index", token=job.token
            )
        return list(map(_job, rows))

    def ended_before(self, moment: datetime) -> list[HpcJob]:
        """Give the jobs that ended before a moment, and whose end was seen.

        Tasks of an array of which one goes on, or ended later, are left out: they share a folder.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE j.state NOT IN ({_OPEN}) "  # noqa: S608
                "AND COALESCE(j.ended_at, j.submitted_at) < :moment "
                "AND NOT EXISTS (SELECT 1 FROM hpc_jobs o WHERE o.token = j.token "
                f"AND (o.state IN ({_OPEN}) OR COALESCE(o.ended_at, o.submitted_at) >= :moment)) "
                "ORDER BY j.submitted_at",
                moment=moment.timestamp(),
            )
        return list(map(_job, rows))

    def open_before(self, moment: datetime) -> Mapping[str, Sequence[HpcJob]]:
        """Give the jobs submitted before a moment whose end nobody has seen, by their token."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE j.state IN ({_OPEN}) AND j.submitted_at < :moment "
                "ORDER BY j.submitted_at, j.array_index",
                moment=moment.timestamp(),
            )
        found: dict[str, list[HpcJob]] = {}
        for job in map(_job, rows):
            found.setdefault(job.token, []).append(job)
        return found


def _row(job: HpcJob) -> dict[str, Any]:
    return {
        **{c: getattr(job, c) for c in _COLUMNS if c not in ("asset", "partition")},
        **job.node._asdict(),
        "reason": job.reason.replace("\0", "\\x00")[:2000],
        "array_index": _BY_ITSELF if job.array_index is None else job.array_index,
        "submitted_at": job.submitted_at.timestamp(),
        "started_at": None if job.started_at is None else job.started_at.timestamp(),
        "ended_at": None if job.ended_at is None else job.ended_at.timestamp(),
    }


def _job(row: Any) -> HpcJob:
    found = dict(zip(_COLUMNS, row, strict=True))
    node = Node(found.pop("asset"), found.pop("partition"))
    if found["array_index"] == _BY_ITSELF:
        found["array_index"] = None
    for name in ("submitted_at", "started_at", "ended_at"):
        if found[name] is not None:
            found[name] = from_epoch(found[name])
    return HpcJob(node=node, **found)
