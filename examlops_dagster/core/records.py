"""What is kept of nodes: what exists, how attempts ended, and who builds at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple


class Node(NamedTuple):
    """One asset, or one partition of it (``partition`` is empty without partitions)."""

    asset: str
    partition: str = ""

    def __str__(self) -> str:
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset


class Read(NamedTuple):
    """What a build read of one upstream: the integer version and the data version."""

    version: int
    data_version: str


@dataclass(frozen=True)
class Record:
    """What exists of one node: the result of its last success, or what others reported.

    Attributes
    ----------
    version
        The integer that people read.
    data_version
        Identifies the content.
    code_version
        Of the function that built it; None where it is not known (sources, reports).
    built_from
        What the build read of each upstream; None for a record made outside (no row in
        ``builds``), whose inputs were not recorded.
    built_at
        Aware UTC datetime of the end of the build.
    build_id
        Token of the attempt; empty for a record made outside.
    run_id
        Dagster run in which it was built; empty if there was none.
    """

    version: int
    data_version: str
    code_version: str | None
    built_from: Mapping[Node, Read] | None
    built_at: datetime
    build_id: str = ""
    run_id: str = ""


class BuildState(Enum):
    """State of one attempt in ``builds``; the value is what is stored."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    DIED = "died"

    @property
    def holds(self) -> bool:
        """Whether such an end counts against the budget of its fingerprint."""
        return self in _HOLDING


_HOLDING = frozenset(
    {BuildState.FAILED, BuildState.TIMED_OUT, BuildState.CANCELLED, BuildState.DIED}
)


@dataclass(frozen=True)
class Attempt:
    """One try at a node, as the ledger writes it down before the function starts."""

    node: Node
    build_id: str
    fingerprint: str
    code_version: str
    built_from: Mapping[Node, Read]
    orchestrator: str
    run_id: str = ""


@dataclass(frozen=True)
class Hold:
    """The attempts in a row that did not succeed, all of one fingerprint.

    Attributes
    ----------
    fingerprint
        Of code, inputs, tick and the way of running.
    failures
        Attempts that failed, timed out or were cancelled.
    deaths
        Processes in a row that died while they built.
    state
        How the last one ended.
    error
        Last line of its error.
    ended_at
        Aware UTC datetime.
    run_id
        Dagster run of the last one.
    """

    fingerprint: str
    failures: int
    deaths: int
    state: BuildState
    error: str
    ended_at: datetime
    run_id: str = ""

    @property
    def shown(self) -> str:
        """How the last one ended, in the words that people read."""
        return "failed" if self.state is BuildState.DIED else self.state.value

    @property
    def why(self) -> str:
        """The last line of its error, or what is known without one."""
        return self.error or ("process died" if self.state is BuildState.DIED else "")

    @staticmethod
    def after(
        former: Hold | None, attempt: Attempt, state: BuildState, error: str, now: datetime
    ) -> Hold:
        """Count one more end without success; those of another fingerprint count no longer."""
        failures = deaths = 0
        if former is not None and former.fingerprint == attempt.fingerprint:
            failures, deaths = former.failures, former.deaths
        if state is BuildState.DIED:
            deaths += 1
        else:
            failures, deaths = failures + 1, 0
        return Hold(attempt.fingerprint, failures, deaths, state, error, now, attempt.run_id)


@dataclass(frozen=True)
class Claim:
    """Who builds a node at the moment."""

    token: str
    host: str
    pid: int
    run_id: str
    started_at: datetime
    heartbeat_at: datetime
