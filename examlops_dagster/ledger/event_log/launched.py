"""Tells whether the process of a run that Dagster launched on this host is still there.

Dagster's code server sees the end of the processes that it started. Where it was killed with them
nobody does, and such a run stays open for ever: the default launcher has no health check, so that
Dagster's run monitoring does not end it either.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from dagster import DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import deserialize_value

from examlops_dagster.ledger.processes import SAME_PROCESS_SECONDS, process_started

ANSWER_SECONDS = 5
_STARTED = "Started process for run"
_EARLY = 50
"""Events in which that of the process is, among the first of the run."""


class Launched:
    """Looks at the processes of open runs.

    Parameters
    ----------
    instance
        Dagster's; used by this host alone, so that a process id is one of this host.
    """

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance
        self._known: dict[str, tuple[int, float]] = {}

    def is_gone(self, run: DagsterRun) -> bool:
        """Tell whether the default launcher started a process for a run, and it is no more."""
        place = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
        if place.get("host") not in ("localhost", "127.0.0.1", socket.gethostname()):
            return False
        found = self._known.get(run.run_id) or self._process(run.run_id)
        if found is None:
            return False
        self._known[run.run_id] = pid, told_at = found
        started = process_started(pid)
        is_there = 0.0 < started <= told_at + SAME_PROCESS_SECONDS
        return not is_there and not _has_server(run, place)

    def _process(self, run_id: str) -> tuple[int, float] | None:
        """Give the process id that the run's process told, and when (seconds since the epoch)."""
        events = self._instance.get_records_for_run(
            run_id, of_type=DagsterEventType.ENGINE_EVENT, limit=_EARLY
        )
        for record in events.records:
            entry = record.event_log_entry
            event = entry.dagster_event
            if event is not None and (event.message or "").startswith(_STARTED):
                pid = event.engine_event_data.metadata.get("pid")
                if pid is not None:
                    return int(str(pid.value)), entry.timestamp
        return None


def _has_server(run: DagsterRun, place: Mapping[str, Any]) -> bool:
    """Ask the code server whether it executes a run: in a container, whose processes nobody sees.

    One that was started again since does not.
    """
    client = DagsterGrpcClient(
        port=place.get("port"),
        socket=place.get("socket"),
        host=place["host"],
        use_ssl=bool(place.get("use_ssl")),
    )
    try:
        answer = client.can_cancel_execution(
            CanCancelExecutionRequest(run_id=run.run_id), timeout=ANSWER_SECONDS
        )
    except DagsterUserCodeUnreachableError:
        return False
    return bool(deserialize_value(answer, CanCancelExecutionResult).can_cancel)
