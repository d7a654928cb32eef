"""The words in which a node is judged: its state, the reasons for it, and both together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from examlops_dagster.core.records import Node


class State(Enum):
    """What may happen to a node now; the value is what JSON shows."""

    FRESH = "fresh"
    RUNNABLE = "runnable_stale"
    WAITING_FOR_SCHEDULE = "stale_waiting_for_schedule"
    WAITING_FOR_UPSTREAM = "stale_waiting_for_upstream"
    WAITING_FOR_REQUEST = "stale_waiting_for_request"
    RUNNING = "running"
    FAILED = "failed"
    HISTORICAL = "historical"
    UNDECLARED = "undeclared"

    @property
    def shown(self) -> str:
        """The words for people."""
        return _SHOWN.get(self, self.value)

    @property
    def settled(self) -> bool:
        """Whether a node below may run, in the plan of all that may run now."""
        return self in (State.FRESH, State.RUNNABLE)

    @property
    def in_order(self) -> bool:
        """Whether ``exa assets status --check`` lets it pass."""
        return self in (State.FRESH, State.RUNNING, State.HISTORICAL)


_SHOWN = {
    State.RUNNABLE: "stale",
    State.WAITING_FOR_SCHEDULE: "waiting for schedule",
    State.WAITING_FOR_UPSTREAM: "waiting for upstream",
    State.WAITING_FOR_REQUEST: "waiting for request",
}


class ReasonKind(Enum):
    """Why a node is stale; the values are what JSON shows."""

    NEVER = "never_materialized"
    CODE = "code_changed"
    NOT_RECORDED = "upstream_not_recorded"
    CHANGED = "upstream_changed"
    REMOVED = "upstream_removed"
    TICK = "tick_passed"
    UPSTREAM = "upstream_stale"


@dataclass(frozen=True)
class Reason:
    """One reason for which a node is stale.

    Attributes
    ----------
    upstream
        The upstream that it is about, where there is one.
    detail
        Versions or tick, ready to be shown.
    more
        How many further partitions of the same upstream it holds for.
    """

    kind: ReasonKind
    upstream: Node | None = None
    detail: str = ""
    more: int = 0

    def __str__(self) -> str:
        text = _WORDS[self.kind].format(upstream=self.upstream, detail=self.detail)
        return f"{text} (+{self.more} more)" if self.more else text


_WORDS = {
    ReasonKind.NEVER: "never materialized",
    ReasonKind.CODE: "code changed",
    ReasonKind.NOT_RECORDED: "upstream {upstream} not recorded at build",
    ReasonKind.CHANGED: "upstream {upstream} changed ({detail})",
    ReasonKind.REMOVED: "upstream {upstream} removed",
    ReasonKind.TICK: "tick {detail} passed",
    ReasonKind.UPSTREAM: "upstream {upstream} is stale",
}


@dataclass(frozen=True)
class Status:
    """The verdict on one node.

    Attributes
    ----------
    version
        Integer version; 0 before the first build.
    reasons
        Why it is stale; empty when it is not.
    note
        What holds it up and the command that helps, or the last line of its error.
    shown
        State in the words that people read.
    """

    node: Node
    state: State
    version: int = 0
    reasons: tuple[Reason, ...] = ()
    note: str = ""
    shown: str = ""

    @staticmethod
    def of(
        node: Node,
        state: State,
        version: int = 0,
        reasons: Iterable[Reason] = (),
        note: str = "",
        shown: str = "",
    ) -> Status:
        """Make a verdict; it is shown in the words of its state unless others are given."""
        return Status(node, state, version, tuple(reasons), note, shown or state.shown)

    @property
    def why(self) -> tuple[str, ...]:
        """Reasons and note in words."""
        words = tuple(map(str, self.reasons))
        return (*words, self.note) if self.note else words
