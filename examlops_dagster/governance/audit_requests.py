"""Requests, written down before they begin, so that what they did is audited whatever happens.

A request is opened, carried out, and closed with its audit row. Of one whose process died in
between, and of builds that no request of ours made, the next `Requests.settle` writes the rows
from ``builds``; a build is marked as audited in the transaction that adds its row, so that it is
in the log exactly once.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.governance.audit import Entry, append
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.ledger.claims import SAME_PROCESS_SECONDS, process_started
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Connection, Database

ELSEWHERE = timedelta(days=7)
"""After so long a request that a process of another host left open counts as abandoned."""

BRIEF = timedelta(minutes=5)
"""How long what takes a moment may take, before its process counts as gone."""

MATERIALIZED = "asset_materialize"
ENDINGS = {BuildState.CANCELLED: "asset_build_cancelled"}
FAILED = "asset_build_failed"
RECORDED = "asset_recorded"
REPORTED = frozenset({"report", "outside"})
"""Orchestrators of records that are no builds of ours: an adopted source, a content of others."""

AUTOMATION = "automation"
"""The actor, and the source, of what Dagster's daemon requests by itself."""


@dataclass(frozen=True)
class Request:
    """One thing that somebody asked for.

    Attributes
    ----------
    nodes
        What it is about, each with a fingerprint where one counts.
    refusal
        Why nothing may be built by it; empty where it may.
    asked_at
        Aware UTC datetime.
    """

    id: str
    action: str
    actor: str
    source: str
    nodes: Mapping[Node, str]
    asked_at: datetime
    refusal: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def assets(self) -> list[str]:
        """Names of the assets, each once."""
        return list(dict.fromkeys(node.asset for node in self.nodes))


class Requests:
    """The requests of all processes.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock

    def open(
        self,
        action: str,
        actor: str,
        source: str,
        nodes: Mapping[Node, str],
        details: Mapping[str, Any] | None = None,
        *,
        brief: bool = False,
    ) -> Request:
        """Write down what is about to be done by this process.

        Parameters
        ----------
        brief
            It takes a moment, and does not pay for finding out when this process started.
        """
        request = Request(
            secrets.token_hex(16), action, actor, source, nodes, self._clock(), "", details or {}
        )
        with self._database.write() as connection:
            _insert(connection, request, process=_this_process(brief=brief))
        return request

    def note(self, request: Request, run_id: str = "", entries: Sequence[Entry] = ()) -> Request:
        """Keep what was decided where no process of ours waits for the end, once for an id.

        Parameters
        ----------
        run_id
            The run that it is about.
        entries
            For the audit log, if it is new.

        Returns
        -------
        Request
            What is kept: that of whoever was first.
        """
        with self._database.write() as connection:
            former = _by_id(connection, request.id)
            if former is not None:
                return former
            _insert(connection, request, process=None)
            if run_id:
                _bind(connection, request.id, run_id, ())
            append(connection, entries, self._clock())
        return request

    def bind(self, request: Request, run_id: str, nodes: Collection[Node] = ()) -> bool:
        """Let a run act for a request, and say whether it may: of two for one node the first."""
        with self._database.write() as connection:
            rows = connection.execute(
                "SELECT run_id, nodes FROM request_runs WHERE request_id = :id", id=request.id
            )
            for other, text in rows:
                if other == run_id:
                    return True
                if nodes and not {Node(*node) for node in json.loads(text)}.isdisjoint(nodes):
                    return False
            _bind(connection, request.id, run_id, nodes)
        return True

    def of_run(self, run_id: str) -> Request | None:
        """Give the request that a run acts for."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT request_id FROM request_runs WHERE run_id = :run_id", run_id=run_id
            )
            return _by_id(connection, rows[0][0]) if rows else None

    def latest(self, source: str, since: datetime, limit: int = 100) -> list[Request]:
        """Give the latest requests that were asked in one way, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{_REQUESTS} WHERE source = :source AND asked_at >= :since "
                "ORDER BY asked_at DESC LIMIT :limit",
                source=source,
                since=since.timestamp(),
                limit=limit,
            )
        return list(map(_request, rows))

    def close(self, request: Request, details: Mapping[str, Any]) -> None:
        """Record what a request did; its builds, and what it recorded, are part of that row."""
        with self._database.write() as connection:
            self._close(connection, request, details)

    def settle(self) -> None:
        """Record what nobody recorded: of dead processes, and of builds that Dagster started."""
        with self._database.read() as connection:
            waiting = connection.execute(
                "SELECT 1 FROM requests WHERE closed = 0 UNION ALL "
                "SELECT 1 FROM builds WHERE audited = 0 AND state <> 'running' LIMIT 1"
            )
        if not waiting:
            return
        now = self._clock()
        with self._database.write() as connection:
            rows = connection.execute(f"{_OPEN} WHERE closed = 0")
            alive: list[Request] = []
            for row in rows:
                request = _request(row)
                if _lives(row[8], request.asked_at, now):
                    alive.append(request)
                else:
                    interrupted = {**_done_by(connection, request), "interrupted": True}
                    self._close(connection, request, interrupted)
            self._settle_builds(connection, alive, now)

    def _close(self, connection: Connection, request: Request, details: Mapping[str, Any]) -> None:
        builds = _unaudited(connection, "run_id IN (SELECT run_id FROM request_runs "
                            "WHERE request_id = :id)", id=request.id)  # fmt: skip
        recorded = [
            each
            for each in _unaudited(connection, "run_id = ''")
            if each.orchestrator in REPORTED
            and each.node.asset in request.assets
            and each.started_at >= request.asked_at.timestamp()
        ]
        entries = [_failure(each, request) for each in builds if each.state.holds]
        told = {
            "request": request.id,
            "source": request.source,
            **request.details,
            **details,
        }
        facts = {str(each.node): each.facts for each in builds if not each.state.holds}
        if facts and request.action == MATERIALIZED:
            told["builds"] = facts
        assets = dict.fromkeys([*request.assets, *(each.node.asset for each in builds)])
        entries.append(Entry(request.action, request.actor, list(assets), told))
        append(connection, entries, self._clock())
        _mark(connection, [*builds, *recorded])
        connection.execute("UPDATE requests SET closed = 1 WHERE id = :id", id=request.id)

    @staticmethod
    def _settle_builds(connection: Connection, alive: Sequence[Request], now: datetime) -> None:
        builds = _unaudited(connection, "1 = 1")
        theirs = {
            run_id
            for request in alive
            for (run_id,) in connection.execute(
                "SELECT run_id FROM request_runs WHERE request_id = :id", id=request.id
            )
        }
        busy = {asset for request in alive for asset in request.assets}
        left = [
            each
            for each in builds
            if each.run_id not in theirs and (each.run_id or each.node.asset not in busy)
        ]
        entries: list[Entry] = []
        for run_id, group in groupby(left, key=lambda each: each.run_id):
            found = connection.execute(
                "SELECT request_id FROM request_runs WHERE run_id = :run_id", run_id=run_id
            )
            request = _by_id(connection, found[0][0]) if found else None
            entries.extend(_of_run(run_id, list(group), request))
        append(connection, entries, now)
        _mark(connection, left)


@dataclass(frozen=True)
class _Build:
    build_id: str
    node: Node
    state: BuildState
    version: int | None
    orchestrator: str
    run_id: str
    provenance: Mapping[str, str]
    error: str
    started_at: float

    @property
    def facts(self) -> dict[str, Any]:
        """What the log says of a build: where it ran, and what became of it."""
        found: dict[str, Any] = {
            "state": self.state.value,
            "version": self.version,
            "orchestrator": self.orchestrator,
            "run": self.run_id,
            "build": self.build_id,
        }
        for name in ("hpc_job_id", "scheduler", "prefect_flow_run_id", "fallback"):
            if self.provenance.get(name):
                found[name] = self.provenance[name]
        return found


def _failure(build: _Build, request: Request | None) -> Entry:
    details = {**build.facts, "error": build.error, "node": str(build.node)}
    if request is not None:
        details.update(source=request.source, request=request.id)
    action = ENDINGS.get(build.state, FAILED)
    actor = request.actor if request is not None else ""
    return Entry(action, actor, [build.node.asset], details)


def _of_run(run_id: str, builds: list[_Build], request: Request | None) -> list[Entry]:
    """Give the rows of builds that were made without a request of ours, an asset at a time."""
    entries = [_failure(each, request) for each in builds if each.state.holds]
    good = [each for each in builds if not each.state.holds]
    by_asset: dict[str, list[_Build]] = {}
    for each in good:
        by_asset.setdefault(each.node.asset, []).append(each)
    for asset, found in by_asset.items():
        details: dict[str, Any] = {"run": run_id} if run_id else {}
        for word, state in (("rebuilt", BuildState.SUCCEEDED), ("unchanged", BuildState.UNCHANGED)):
            details[word] = [str(each.node) for each in found if each.state is state]
        details["builds"] = {str(each.node): each.facts for each in found}
        if request is not None:
            details.update(source=request.source, request=request.id)
        ours = found[0].orchestrator not in REPORTED
        probed = ours and not run_id
        action = MATERIALIZED if ours else RECORDED
        who = request.actor if request else AUTOMATION if probed else ""
        entries.append(Entry(action, who, [asset], details))
    return entries


def _done_by(connection: Connection, request: Request) -> dict[str, Any]:
    """Give what a request that never ended has built, from what it left."""
    rows = connection.execute(
        "SELECT asset, partition, state FROM builds WHERE run_id IN (SELECT run_id FROM "
        "request_runs WHERE request_id = :id) ORDER BY id",
        id=request.id,
    )
    if request.action != MATERIALIZED:
        return {}
    words: dict[str, list[str]] = {"rebuilt": [], "unchanged": [], "failed": []}
    for asset, partition, state in rows:
        word = {"succeeded": "rebuilt", "unchanged": "unchanged"}.get(state, "failed")
        words[word].append(str(Node(asset, partition)))
    return dict(words)


def _unaudited(connection: Connection, where: str, **named: Any) -> list[_Build]:
    rows = connection.execute(
        f"{_BUILDS} WHERE audited = 0 AND state <> 'running' AND {where} ORDER BY run_id, id",
        **named,
    )
    return [
        _Build(
            row[0], Node(row[1], row[2]), BuildState(row[3]), row[4], row[5], row[6],
            json.loads(row[7]), row[8], row[9],
        )
        for row in rows
    ]  # fmt: skip


def _mark(connection: Connection, builds: Iterable[_Build]) -> None:
    connection.execute_many(
        "UPDATE builds SET audited = 1 WHERE build_id = :id",
        [{"id": each.build_id} for each in builds],
    )


_BUILDS = (
    "SELECT build_id, asset, partition, state, version, orchestrator, run_id, provenance, error, "
    "started_at FROM builds"
)
_REQUESTS = "SELECT id, action, actor, source, nodes, refusal, details, asked_at FROM requests"
_OPEN = _REQUESTS.replace(" FROM", ", process FROM")


def _request(row: Any) -> Request:
    nodes = {Node(asset, partition): text for asset, partition, text in json.loads(row[4])}
    return Request(
        row[0], row[1], row[2], row[3], nodes, from_epoch(row[7]), row[5], json.loads(row[6])
    )


def _by_id(connection: Connection, id_: str) -> Request | None:
    rows = connection.execute(f"{_REQUESTS} WHERE id = :id", id=id_)
    return _request(rows[0]) if rows else None


def _insert(connection: Connection, request: Request, process: str | None) -> None:
    connection.execute(
        "INSERT INTO requests (id, action, actor, source, nodes, refusal, details, process, "
        "asked_at, closed) VALUES (:id, :action, :actor, :source, :nodes, :refusal, :details, "
        ":process, :now, :closed)",
        id=request.id,
        action=request.action,
        actor=request.actor,
        source=request.source,
        nodes=json.dumps([[*node, text] for node, text in request.nodes.items()]),
        refusal=request.refusal,
        details=json.dumps(dict(request.details), default=str),
        process=process or "",
        now=request.asked_at.timestamp(),
        closed=int(process is None),
    )


def _bind(connection: Connection, id_: str, run_id: str, nodes: Collection[Node]) -> None:
    connection.execute(
        "INSERT INTO request_runs (run_id, request_id, nodes) VALUES (:run_id, :id, :nodes) "
        "ON CONFLICT DO NOTHING",
        run_id=run_id,
        id=id_,
        nodes=json.dumps([list(node) for node in nodes]),
    )


def _this_process(*, brief: bool) -> str:
    started = 0.0 if brief else process_started(os.getpid())
    return f"{socket.gethostname()}:{os.getpid()}:{started:.2f}"


def _lives(process: str, asked_at: datetime, now: datetime) -> bool:
    host, pid, started = process.rsplit(":", 2)
    if host != socket.gethostname():
        return now - asked_at < ELSEWHERE
    if float(started):
        return abs(process_started(int(pid)) - float(started)) <= SAME_PROCESS_SECONDS
    return now - asked_at < BRIEF and process_started(int(pid)) > 0
