"""A request of the command line under policy: asked before anything is built, and audited.

No dagster is imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.approvals import Fingerprint
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import Plan, without
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import Judge
from examlops_dagster.dagster_bridge.report import Report
from examlops_dagster.governance.audit import Entry
from examlops_dagster.governance.lineage_courier import Courier
from examlops_dagster.governance.refusals import Refusal
from examlops_dagster.governance.request_rows import MATERIALIZED
from examlops_dagster.project import Project
from examlops_dagster.schedulers.resources import merged


@dataclass(frozen=True)
class Governed:
    """How a request is asked for and told of.

    Attributes
    ----------
    source
        exa or python.
    orchestrator, resources
        What the request names; the latter for the targets alone.
    details
        Further facts for the audit log.
    courier
        Delivers the lineage of the builds; who asks for them recalls it.
    """

    project: Project
    source: str = "exa"
    orchestrator: str | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    courier: Courier = field(default_factory=Courier)

    def refusals(self, plan: Plan, only: Collection[Node] | None = None) -> list[Refusal]:
        """Ask policy for the slice, or for some nodes of it; nothing where it may be built."""
        project = self.project
        nodes = [step.node for step in plan.steps if only is None or step.node in only]
        targets = {node.asset for node in plan.targets}

        def resources_of(declared: Declaration) -> Mapping[str, Any]:
            if declared.name in targets and self.resources:
                return merged(declared.resources, self.resources)
            return declared.resources

        names = [node.asset for node in nodes]
        wishes = list(project.wishes(names, self.orchestrator, resources_of))
        if not wishes:
            return []
        if project.governor.decide(wishes, project.home.actor, self.source):
            project.make_home()  # what is refused is recorded
        return project.governor.refusals(
            wishes,
            nodes,
            self._fingerprint,
            actor=project.home.actor,
            source=self.source,
            details={"targets": list(map(str, plan.targets)), **self.details},
        )

    def passed(self, plan: Plan) -> tuple[Plan, list[Refusal], set[Node]]:
        """Give what may be built of all that is due, and what was left out with the reasons."""
        refused: list[Refusal] = []
        left: set[Node] = set()
        if self.project.governor.policy is not None:
            for name in dict.fromkeys(step.node.asset for step in plan.steps):
                nodes = {step.node for step in plan.steps if step.node.asset == name}
                found = self.refusals(plan, nodes)
                if found:
                    refused += found
                    left |= nodes
        if left:
            graph = self.project.graph
            existing = Nodes(graph, Snapshot(utc_now(), dynamic=self.project.dynamic_keys()))
            plan = without(existing, plan, left, left)
        return plan, refused, left

    def build(self, plan: Plan, **how: Any) -> Report:
        """Carry a request out, and record what it did, whatever becomes of it.

        Parameters
        ----------
        how
            As `execute` takes it.
        """
        project = self.project
        project.make_home()
        self.courier.set_off(project.home)  # before the second that the next line takes
        from examlops_dagster.dagster_bridge.execute import (  # noqa: PLC0415 - imports dagster
            execute,
        )

        governor = project.governor
        governor.settle()
        nodes = {step.node: "" for step in plan.steps}
        policy = governor.policy
        held = project.ledger.holds(nodes) if plan.targets else {}
        asked = {
            "targets": list(map(str, plan.targets)),
            "skipped": list(map(str, plan.skipped)),
            "forced": [str(step.node) for step in plan.steps if step.forced],
            "decision": "allow",
            **({"lifted": sorted(map(str, held))} if held else {}),
            **({"policy": policy.digest} if policy is not None else {}),
            **({"orchestrator": self.orchestrator} if self.orchestrator else {}),
            **({"resources": dict(self.resources)} if self.resources else {}),
            **self.details,
        }
        request = governor.opened(MATERIALIZED, project.home.actor, self.source, nodes, asked)
        done: Mapping[str, Any] = {}
        try:
            report = execute(project, plan, orchestrator=self.orchestrator, request=request, **how)
            done = _told(report)
        except BaseException as error:
            done = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            governor.closed(request, done)
        return report

    def nothing_to_do(self, plan: Plan) -> None:
        """Record that somebody asked for what is fresh."""
        project = self.project
        if not project.home.exists or not project.database.exists:
            return
        entry = Entry(
            MATERIALIZED,
            project.home.actor,
            list(dict.fromkeys(node.asset for node in plan.targets)),
            {
                "source": self.source,
                "targets": list(map(str, plan.targets)),
                "rebuilt": [],
                "skipped": list(map(str, plan.skipped)),
                **self.details,
            },
        )
        project.governor.keep(lambda: project.governor.audit.append(entry))

    def _fingerprint(self) -> Fingerprint:
        project = self.project
        return Judge(project.graph, project.snapshot(), project.code_versions).fingerprint


def _told(report: Report) -> dict[str, Any]:
    failed: Sequence[Any] = report.failed
    return {
        "rebuilt": list(map(str, report.rebuilt)),
        "unchanged": list(map(str, report.unchanged)),
        "failed": {str(each.node): each.reason for each in failed},
        "cancelled": report.cancelled,
        "fallback": {str(node): why for node, why in report.fallbacks.items()},
        "runs": report.runs,
    }
