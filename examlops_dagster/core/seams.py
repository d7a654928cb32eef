"""The seams: what an orchestrator and a ledger must do, and the data that cross them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from examlops_dagster.errors import AssetBuildError

if TYPE_CHECKING:
    from examlops_dagster.core.aliases import Metadata
    from examlops_dagster.core.approvals import Gate
    from examlops_dagster.core.declarations import Declaration


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


@dataclass(frozen=True)
class Value:
    """What a production function returned, as bytes that can cross a process and be stored.

    Attributes
    ----------
    format
        Name of the serializer: json, pickle, parquet.
    payload
        The serialized value.
    """

    format: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True)
class BuildRequest:
    """One attempt, as an orchestrator gets it.

    Attributes
    ----------
    declaration
        The asset, its function and its limits.
    node
        Asset and partition.
    attempt
        Counted from 1 for this fingerprint.
    build_id
        Token of the attempt.
    arguments
        Keyword arguments of the function: versions of deps, values of inputs, keys of the
        partition's dimensions.
    built_from
        The versions that were read, to be recorded.
    timeout_seconds
        Limit of this attempt; None for none.
    resources
        What a job asks for.
    fingerprint
        Of the attempt; a job of the same one is taken over instead of submitting another.
    run_id
        Dagster run; empty if there is none.
    code_version
        Of the loaded function.
    ends_job
        Tells whether an interrupt is meant for the build, given the number of the signal (None
        where it is not known): then a job is cancelled. Any other leaves it running, to be
        found again. None takes SIGINT alone.
    pause
        Lets so many seconds pass, and raises what interrupts the waiting: signals reach the main
        thread alone, and a build may wait in another.
    heard
        Gets what a program said over Dagster Pipes as it comes: the method of the message, and
        its parameters. ``closed`` comes last; ``restarted`` is ours, and says that what was heard
        before is of an attempt that no longer counts.
    told
        Told of its job what a person who waits wants to know: its id, its state and the reason.
    environment
        Variables that the program gets besides the submitter's; in no file of the job.
    pipes
        The context that a program gets over Dagster Pipes, where another step than ours has one.
    """

    declaration: Declaration
    node: Node
    attempt: int
    build_id: str
    arguments: Mapping[str, Any]
    built_from: Mapping[Node, Read]
    timeout_seconds: float | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    run_id: str = ""
    code_version: str = ""
    ends_job: Callable[[int | None], bool] | None = field(default=None, compare=False)
    pause: Callable[[float], None] = field(default=time.sleep, compare=False)
    heard: Callable[[str, Mapping[str, Any]], None] | None = field(default=None, compare=False)
    told: Callable[[str], None] | None = field(default=None, compare=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    pipes: Mapping[str, Any] | None = None


LEFT_RUNNING = "examlops_left_running"
"""Attribute of an interrupt that left a job running: no end of the attempt is known then."""


@dataclass(frozen=True)
class BuildResult:
    """What an orchestrator gives back for a build that succeeded.

    Attributes
    ----------
    value
        The serialized value; None when the function stores its result itself.
    data_version
        As the function gave it; None lets the ledger derive it from the value.
    metadata
        Facts for the materialization.
    provenance
        ``orchestrator`` and, where they apply, ``fallback``, ``scheduler``, ``hpc_job_id``, ...
    update_detected
        What a sensor said; None for any other node.
    events
        Datasets that were written, as a function yielded them or a program reported them; in
        order.
    """

    value: Value | None = None
    data_version: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    update_detected: bool | None = None
    events: tuple[Metadata, ...] = ()


ORCHESTRATORS = frozenset({"local", "scheduler", "prefect"})
"""Names of the orchestrators of this package; installed packages register more."""


@runtime_checkable
class AssetOrchestrator(Protocol):
    """Runs one build where it belongs, and waits for it.

    ``run`` returns a BuildResult, raises AssetBuildError (or a subclass) when the production
    function did not produce, and LaunchError when it could not be started.
    """

    name: str

    def run(self, request: BuildRequest) -> BuildResult:
        """Run the build and wait for its end."""
        ...


Ended = tuple[BuildRequest, BuildResult | AssetBuildError]
"""A request and what became of it."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """An orchestrator that runs many requests of one asset together."""

    def run_many(self, requests: Iterable[BuildRequest]) -> Generator[Ended, None, None]:
        """Run the builds, and give each as it ends; one that fails keeps no other back.

        The requests are taken one by one, and given back without their arguments: values of
        thousands of partitions need not fit into memory. Whoever is interrupted between two
        results throws that into the generator (``throw``), which cancels what it was meant for
        and says in ``LEFT_RUNNING`` whether anything goes on.
        """
        ...


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


class Ledger(Protocol):
    """What was built, what is being built, and what may not be tried again."""

    def records(self, nodes: Iterable[Node] | None = None) -> dict[Node, Record]:
        """Give what exists of ``nodes``, or of all; one query, however many there are."""
        ...

    def holds(self, nodes: Iterable[Node] | None = None) -> dict[Node, Hold]:
        """Give the attempts without success of ``nodes``, or of all."""
        ...

    def claims(self) -> dict[Node, Claim]:
        """Give the claims whose process is alive."""
        ...

    def claim(self, node: Node, token: str, run_id: str = "") -> Claim | None:
        """Claim a node for a build; None when it was got, else who has it."""
        ...

    def release(self, node: Node, token: str) -> None:
        """Give a claim back."""
        ...

    def begin(self, attempt: Attempt) -> None:
        """Write the attempt down, before the function starts."""
        ...

    def allot(self, attempt: Attempt, data_version: str) -> int:
        """Give the version of the result: the former one if the content is the same."""
        ...

    def complete(
        self, attempt: Attempt, version: int, data_version: str, provenance: Mapping[str, str]
    ) -> Record:
        """Record the success; what was held is held no longer."""
        ...

    def fail(self, attempt: Attempt, state: BuildState, error: str) -> Hold:
        """Record the end without success."""
        ...

    def lift(self, nodes: Iterable[Node]) -> None:
        """Forget the attempts without success: somebody asks for these nodes."""
        ...


class Snapshot(NamedTuple):
    """Everything outside the declarations that a verdict rests on, taken at one moment.

    Attributes
    ----------
    now
        Aware UTC datetime.
    zone
        IANA name of the zone of schedules that name none.
    records, holds, claims
        As in the ledger.
    queued
        Nodes that a queued or started run, or an open backfill, is going to build.
    first_seen
        When automation first saw a scheduled node (aware UTC datetimes).
    dynamic
        Keys of dynamic partition spaces.
    gates
        What keeps automation from building an asset by itself, by name.
    """

    now: datetime
    zone: str = "UTC"
    records: Mapping[Node, Record] = {}
    holds: Mapping[Node, Hold] = {}
    claims: Mapping[Node, Claim] = {}
    queued: frozenset[Node] = frozenset()
    first_seen: Mapping[Node, datetime] = {}
    dynamic: Mapping[str, Sequence[str]] = {}
    gates: Mapping[str, Gate] = {}


Progress = Callable[[str], None]
"""Told in a few words what is going on, for a person who waits."""
