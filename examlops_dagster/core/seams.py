"""The seams: what an orchestrator and a ledger must do, and the data that cross them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from examlops_dagster.core.records import Attempt, BuildState, Claim, Hold, Node, Read, Record
from examlops_dagster.errors import AssetBuildError

if TYPE_CHECKING:
    from examlops_dagster.core.aliases import Metadata
    from examlops_dagster.core.declarations import Declaration


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

_SCHEDULERS = frozenset({"slurm", "flux", "mock"})


def unknown_orchestrator(name: str, known: Iterable[str]) -> str:
    """Say that there is no such orchestrator; a scheduler is what one of them submits to."""
    text = f"unknown orchestrator {name!r}; known: {', '.join(sorted(known))}"
    if name.strip().lower() in _SCHEDULERS:
        text += f" ('scheduler' submits to {name}: EXAMLOPS_HPC_SCHEDULER={name})"
    return text


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


Progress = Callable[[str], None]
"""Told in a few words what is going on, for a person who waits."""
