"""What a request that builds did: data, printed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from examlops_dagster.core.records import Node
from examlops_dagster.governance.refusals import Refusal
from examlops_dagster.ledger.sinks import SinkWrite


@dataclass(frozen=True)
class Failed:
    """A node whose build failed.

    Attributes
    ----------
    reason
        Last line of the error.
    log
        Path of the file with the whole of it; empty if there is none.
    """

    node: Node
    reason: str
    log: str = ""


@dataclass
class Report:
    """What a request did.

    Attributes
    ----------
    targets
        What was asked for.
    rebuilt
        Nodes that were built, and sources that were adopted, in order.
    unchanged
        Nodes that turned out to be no longer stale when their turn came.
    skipped
        Nodes of the slice that were fresh from the start.
    failed
        Nodes that failed.
    failed_sinks
        Sinks that could not be written; the assets themselves were built.
    blocked
        What policy forbids, or what waits for an approval; nothing of its slice was built.
    cancelled
        Whether somebody ended it: Ctrl-C, or Terminate in the UI.
    fallbacks
        Nodes that were built elsewhere than asked, with the reason.
    runs
        Ids of the Dagster runs.
    deferred
        Nodes below datasets or aliases to which nothing was emitted, with what they wait for.
    """

    targets: Sequence[Node] = ()
    rebuilt: list[Node] = field(default_factory=list)
    unchanged: list[Node] = field(default_factory=list)
    skipped: list[Node] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    failed_sinks: list[SinkWrite] = field(default_factory=list)
    blocked: list[Refusal] = field(default_factory=list)
    cancelled: bool = False
    fallbacks: dict[Node, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    deferred: dict[Node, str] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Add what a further request did."""
        for mine in fields(self):
            if isinstance(getattr(self, mine.name), list):
                getattr(self, mine.name).extend(getattr(other, mine.name))
        self.fallbacks.update(other.fallbacks)
        self.cancelled = self.cancelled or other.cancelled

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for is fresh now."""
        return not self.failed and not self.cancelled and not self.blocked


def as_json(report: Report) -> dict[str, Any]:
    """Give a report as ``--json`` shows it."""
    names = list(dict.fromkeys(node.asset for node in report.targets))
    return {
        "target": names[0] if len(names) == 1 else names,
        "rebuilt": list(map(str, report.rebuilt)),
        "skipped": list(map(str, report.skipped)),
        "unchanged": list(map(str, report.unchanged)),
        "failed": [{"name": str(f.node), "error": f.reason, "log": f.log} for f in report.failed],
        "failed_sinks": [
            {"name": str(w.node), "url": w.url, "error": w.error} for w in report.failed_sinks
        ],
        "blocked": [
            {
                "name": each.asset,
                "reason": each.reason,
                "rule": each.rule or None,
                "approval": each.approval or None,
            }
            for each in report.blocked
        ],
        "cancelled": report.cancelled,
        "fallback": {str(node): why for node, why in report.fallbacks.items()},
        "runs": report.runs,
        "not_triggered": {str(node): why for node, why in report.deferred.items()},
    }
