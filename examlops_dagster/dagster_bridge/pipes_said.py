"""What a program says over Dagster Pipes while a node is built, in the log of the run."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetKey,
    AssetRecordsFilter,
    DagsterInstance,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)

from examlops_dagster.core.records import Node
from examlops_dagster.core.sinks import check_name
from examlops_dagster.dagster_bridge.pipes_metadata import as_metadata
from examlops_dagster.orchestrators.outlets import OUTLET_MESSAGE, outlet_event
from examlops_dagster.orchestrators.reported import exception_text

LONGEST_MESSAGE = 32_768
"""Characters of one message that the log shows."""

MESSAGES_AT_ONCE = 500
MESSAGES_A_SECOND = 5.0
"""A node may log so many at once, and so many a second after that: floods freeze the UI
(dagster#13026), and each line is a transaction of the event log, for which the wait for the job
stands still. The file of the program's messages holds them all."""

_logger = logging.getLogger(__name__)

_LEVELS = {"CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"}


@dataclass(frozen=True)
class _Check:
    name: str
    passed: bool
    severity: AssetCheckSeverity
    metadata: Mapping[str, Any]


class Said:
    """Takes the messages of one node, in whatever thread they come, and never raises.

    Parameters
    ----------
    log
        Of the step.
    node
        Of which the partition stands before each line, since a run may build many.
    sinks
        Number of its sinks, whose checks are ours.
    """

    def __init__(self, log: Any, node: Node, sinks: int = 0) -> None:
        self._log = log
        self._node = node
        self._ours = {check_name(number) for number in range(1, sinks + 1)}
        self._checks: dict[str, _Check] = {}
        self._lock = threading.Lock()
        self._left = float(MESSAGES_AT_ONCE)
        self._filled_at = time.monotonic()
        self._dropped = 0

    def tell(self, text: str, level: str = "INFO") -> None:
        """Say what happens to its job."""
        self._write(level, text)

    def __call__(self, method: str, params: Mapping[str, Any]) -> None:
        """Take one message; see BuildRequest.heard."""
        try:
            self._hear(method, params)
        except Exception as error:  # noqa: BLE001 - a message is no reason to lose a build
            text = f"a message cannot be read ({type(error).__name__}: {error}): {method} {params}"
            self._write("WARNING", f"[pipes] {text}")

    def evaluations(self, key: AssetKey, instance: DagsterInstance) -> Iterator[Any]:
        """Give the checks that were reported, as events of the step.

        Dagster takes an evaluation of a check that the step does not declare, and shows it with
        a check of that name that is defined elsewhere; the result of an undeclared one would
        fail the step.
        """
        with self._lock:
            checks = list(self._checks.values())
        if not checks:
            return
        target = _target(instance, key, self._node.partition)
        for check in checks:
            yield AssetCheckEvaluation(
                asset_key=key,
                check_name=check.name,
                passed=check.passed,
                metadata=as_metadata(check.metadata),
                target_materialization_data=target,
                severity=check.severity,
                blocking=False,
                partition=self._node.partition or None,
            )

    def _hear(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "log":
                level = str(params.get("level", "")).upper()
                self._write(level if level in _LEVELS else "INFO", str(params.get("message")))
            case "opened":
                self._write("DEBUG", "[pipes] the program opened Dagster Pipes")
            case "closed":
                self._closed(params)
            case "restarted":
                with self._lock:
                    self._checks.clear()
                self._write("WARNING", "[pipes] started again: what it said before is forgotten")
            case "report_asset_materialization" | "report_asset_check":
                if params.get("asset_key") not in (None, self._node.asset):
                    key = params["asset_key"]
                    self._write("WARNING", f"[pipes] {key} is another asset, and left: {params}")
                elif method == "report_asset_check":
                    self._check(params)
            case "report_custom_message":
                self._custom(params.get("payload"))
            case "log_external_stream":
                pass  # a copy of the output, which is passed on already
            case _:
                self._write("WARNING", f"[pipes] no such message is known: {method} {params}")

    def _closed(self, params: Mapping[str, Any]) -> None:
        told = exception_text(params.get("exception"))
        if told:
            self._write("ERROR", f"[pipes] the program closed it with an exception\n{told}")
        else:
            self._write("DEBUG", "[pipes] the program closed Dagster Pipes")

    def end(self) -> None:
        """Tell how much was too much; the program has ended."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self._put("WARNING", f"[pipes] {dropped} more messages were not shown")

    def _check(self, params: Mapping[str, Any]) -> None:
        metadata = params.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise ValueError("its metadata is no object")  # noqa: TRY004 - of a file, not a type
        found = _Check(
            str(params["check_name"]),
            bool(params["passed"]),
            AssetCheckSeverity(params.get("severity") or "ERROR"),
            metadata,
        )
        if found.name in self._ours:
            text = f"[pipes] the check {found.name} is that of a sink, and left: {params}"
            self._write("WARNING", text)
            return
        with self._lock:
            self._checks[found.name] = found
        level = "WARNING" if not found.passed else "INFO"
        said = "passed" if found.passed else f"did not pass ({found.severity.value})"
        facts = {
            name: value.get("raw_value", value) if isinstance(value, dict) else value
            for name, value in found.metadata.items()
        }
        more = f": {json.dumps(facts, ensure_ascii=False, default=str)}" if facts else ""
        self._write(level, f"[pipes] check {found.name} {said}{more}")

    def _custom(self, payload: Any) -> None:
        if isinstance(payload, dict) and OUTLET_MESSAGE in payload:
            try:
                outlet_event(payload[OUTLET_MESSAGE])
            except ValueError as error:
                self._write("WARNING", f"[pipes] an outlet event is left out, {error}: {payload}")
            return
        self._write("INFO", f"[pipes] {json.dumps(payload, ensure_ascii=False, default=str)}")

    def _write(self, level: str, text: str) -> None:
        with self._lock:
            now = time.monotonic()
            filled = self._left + (now - self._filled_at) * MESSAGES_A_SECOND
            self._left, self._filled_at = min(filled, float(MESSAGES_AT_ONCE)), now
            if self._left < 1:
                self._dropped += 1
                return
            self._left -= 1
        self._put(level, text)

    def _put(self, level: str, text: str) -> None:
        where = f"[{self._node.partition}] " if self._node.partition else ""
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[:LONGEST_MESSAGE]} … ({len(text)} characters in all)"
        try:
            self._log.log(level, f"{where}{text}")
        except Exception as error:  # noqa: BLE001 - a line is no reason to leave a job alone
            _logger.warning("the log of the run is not told (%s): %s%s", error, where, text)


def _target(instance: DagsterInstance, key: AssetKey, partition: str) -> Target | None:
    """Give the materialization that a check is about: the one that was stored just now."""
    filtered = AssetRecordsFilter(key, asset_partitions=[partition] if partition else None)
    records: Sequence[Any] = instance.fetch_materializations(filtered, limit=1).records
    if not records:
        return None
    latest = records[0]
    return Target(storage_id=latest.storage_id, run_id=latest.run_id, timestamp=latest.timestamp)
