"""A ledger in memory: for tests and notebooks, gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from examlops_dagster.core.records import Attempt, BuildState, Claim, Hold, Node, Record
from examlops_dagster.core.seams import Value
from examlops_dagster.core.versions import next_version

T = TypeVar("T")


class MemoryLedger:
    """Keeps records, holds, claims and values in dictionaries.

    Parameters
    ----------
    clock
        Gives the time as an aware UTC datetime.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[Node, Record] = {}
        self._holds: dict[Node, Hold] = {}
        self._claims: dict[Node, Claim] = {}
        self._highest: dict[Node, int] = {}
        self._values: dict[Node, Value] = {}
        self.attempts: list[tuple[Attempt, BuildState]] = []
        """Every attempt with its end, oldest first."""

    def records(self, nodes: Iterable[Node] | None = None) -> dict[Node, Record]:
        """See Ledger."""
        return _chosen(self._records, nodes)

    def holds(self, nodes: Iterable[Node] | None = None) -> dict[Node, Hold]:
        """See Ledger."""
        return _chosen(self._holds, nodes)

    def claims(self) -> dict[Node, Claim]:
        """See Ledger."""
        return dict(self._claims)

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """See Ledger."""
        with self._lock:
            held = self._claims.get(node)
            if held is not None and held.token != token:
                return held
            now = self._clock()
            self._claims[node] = Claim(token, "memory", 0, run_id, now, now)
            return None

    def release(self, node: Node, token: str) -> None:
        """See Ledger."""
        with self._lock:
            if (held := self._claims.get(node)) is not None and held.token == token:
                del self._claims[node]

    def begin(self, attempt: Attempt) -> None:
        """See Ledger."""
        with self._lock:
            self.attempts.append((attempt, BuildState.RUNNING))

    def allot(self, attempt: Attempt, data_version: str) -> int:
        """See Ledger."""
        with self._lock:
            former = self._records.get(attempt.node)
            highest = self._highest.get(attempt.node, 0)
            version = next_version(former, highest, data_version)
            self._highest[attempt.node] = max(highest, version)
            return version

    def complete(
        self, attempt: Attempt, version: int, data_version: str, provenance: Mapping[str, str]
    ) -> Record:
        """See Ledger; the provenance is not kept."""
        del provenance
        record = Record(
            version,
            data_version,
            attempt.code_version,
            dict(attempt.built_from),
            self._clock(),
            attempt.build_id,
            attempt.run_id,
        )
        with self._lock:
            self._records[attempt.node] = record
            self._holds.pop(attempt.node, None)
            self._ended(attempt, BuildState.SUCCEEDED)
        return record

    def fail(self, attempt: Attempt, state: BuildState, error: str) -> Hold:
        """See Ledger."""
        with self._lock:
            hold = Hold.after(self._holds.get(attempt.node), attempt, state, error, self._clock())
            self._holds[attempt.node] = hold
            self._ended(attempt, state)
        return hold

    def lift(self, nodes: Iterable[Node]) -> None:
        """See Ledger."""
        with self._lock:
            for node in nodes:
                self._holds.pop(node, None)

    def report(self, node: Node, data_version: str) -> Record:
        """Record what others produced, with its inputs not recorded."""
        with self._lock:
            former = self._records.get(node)
            highest = self._highest.get(node, 0)
            version = next_version(former, highest, data_version)
            self._highest[node] = max(highest, version)
            record = Record(version, data_version, None, None, self._clock())
            self._records[node] = record
        return record

    def keep(self, node: Node, value: Value) -> None:
        """Keep the value of a node for those that have it as input."""
        self._values[node] = value

    def value(self, node: Node) -> Value | None:
        """Give the value of a node; None where its function stores its result itself."""
        return self._values.get(node)

    def _ended(self, attempt: Attempt, state: BuildState) -> None:
        for n in reversed(range(len(self.attempts))):
            if self.attempts[n][0].build_id == attempt.build_id:
                self.attempts[n] = (attempt, state)
                return


def _chosen(found: Mapping[Node, T], nodes: Iterable[Node] | None) -> dict[Node, T]:
    if nodes is None:
        return dict(found)
    return {node: found[node] for node in nodes if node in found}
