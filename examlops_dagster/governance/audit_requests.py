"""Requests, written down before they begin, so that what they did is audited whatever happens.

A request is opened, carried out, and closed with its audit row. Of one whose process died in
between, and of builds that no request of ours made, the next `Requests.settle` writes the rows
from ``builds``; a build is marked as audited in the transaction that adds its row, so that it is
in the log exactly once.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.records import Node
from examlops_dagster.governance.audit import Entry, append
from examlops_dagster.governance.audit_builds import (
    done_by,
    entries_of_run,
    failure_entry,
    mark_audited,
    unaudited,
)
from examlops_dagster.governance.request_rows import (
    MATERIALIZED,
    OPEN,
    REQUESTS,
    Request,
    bind_run,
    insert_request,
    read_request,
    request_by_id,
    request_of_run,
)
from examlops_dagster.ledger.history import NOT_BUILT
from examlops_dagster.ledger.processes import Process, process_started
from examlops_dagster.store.engine import Connection, Database

ELSEWHERE = timedelta(days=7)
"""After so long a request that a process of another host left open counts as abandoned."""

BRIEF = timedelta(minutes=5)
"""How long what takes a moment may take, before its process counts as gone."""


_OF_REQUEST = "run_id IN (SELECT run_id FROM request_runs WHERE request_id = :id)"


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
            insert_request(connection, request, process=str(Process.here(brief=brief)))
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
            former = request_by_id(connection, request.id)
            if former is not None:
                return former
            insert_request(connection, request, process=None)
            if run_id:
                bind_run(connection, request.id, run_id, ())
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
            bind_run(connection, request.id, run_id, nodes)
        return True

    def of_run(self, run_id: str) -> Request | None:
        """Give the request that a run acts for."""
        with self._database.read() as connection:
            return request_of_run(connection, run_id)

    def latest(self, source: str, since: datetime, limit: int = 100) -> list[Request]:
        """Give the latest requests that were asked in one way, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{REQUESTS} WHERE source = :source AND asked_at >= :since "
                "ORDER BY asked_at DESC LIMIT :limit",
                source=source,
                since=since.timestamp(),
                limit=limit,
            )
        return list(map(read_request, rows))

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
            rows = connection.execute(f"{OPEN} WHERE closed = 0")
            alive: list[Request] = []
            for row in rows:
                request = read_request(row)
                if _lives(row[8], request.asked_at, now):
                    alive.append(request)
                else:
                    interrupted = {**done_by(connection, request), "interrupted": True}
                    self._close(connection, request, interrupted)
            self._settle_builds(connection, alive, now)

    def _close(self, connection: Connection, request: Request, details: Mapping[str, Any]) -> None:
        builds = unaudited(connection, _OF_REQUEST, id=request.id)
        recorded = [
            each
            for each in unaudited(connection, "run_id = ''")
            if each.orchestrator in NOT_BUILT
            and each.node.asset in request.assets
            and each.started_at >= request.asked_at.timestamp()
        ]
        entries = [failure_entry(each, request) for each in builds if each.state.holds]
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
        mark_audited(connection, [*builds, *recorded])
        connection.execute("UPDATE requests SET closed = 1 WHERE id = :id", id=request.id)

    @staticmethod
    def _settle_builds(connection: Connection, alive: Sequence[Request], now: datetime) -> None:
        builds = unaudited(connection)
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
            request = request_of_run(connection, run_id)
            entries.extend(entries_of_run(run_id, list(group), request))
        append(connection, entries, now)
        mark_audited(connection, left)


def _lives(text: str, asked_at: datetime, now: datetime) -> bool:
    process = Process.parse(text)
    if process.host != socket.gethostname():
        return now - asked_at < ELSEWHERE
    if process.started:
        return not process.is_gone
    return now - asked_at < BRIEF and process_started(process.pid) > 0
