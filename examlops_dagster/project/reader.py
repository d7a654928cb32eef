"""What a project can be asked: how things stand, what would be built, what was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.emissions import DatasetEvent
from examlops_dagster.core.graph import key_path
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import DynamicSpace
from examlops_dagster.core.plan import Plan, joined, plan_due, plan_targets, without
from examlops_dagster.core.ranges import select_keys
from examlops_dagster.core.records import Node, Record
from examlops_dagster.core.seams import Value
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import statuses
from examlops_dagster.core.verdicts import Status
from examlops_dagster.errors import UnknownAssetError, UsageError
from examlops_dagster.governance.wishes import Wish, wishes_of
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.history import Build
from examlops_dagster.ledger.outlets import AliasState
from examlops_dagster.ledger.outside import odd_keys
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.project.opened import OpenedProject

logger = logging.getLogger(__name__)


@dataclass
class ProjectReader(OpenedProject):
    """A project that can be asked; changes nothing but what others wrote and is taken over."""

    def snapshot(self) -> Snapshot:
        """Take all that a verdict rests on, now; reads what others wrote, if they did."""
        queued: frozenset[Node] = frozenset()
        records = self.ledger.records(datasets=self.graph.datasets)
        declared = self.graph.declarations
        left_open = any(r.built_from is None and n.asset in declared for n, r in records.items())
        left_open = left_open or not odd_keys(self.graph).keys().isdisjoint(
            node.asset for node in records
        )
        others_wrote = not watermark.nothing_new(self.home.folder, self.database)
        if self.home.exists and (left_open or others_wrote):
            queued = self.event_log.in_flight()
            self.event_log.sync()
            records = self.ledger.records(datasets=self.graph.datasets)
        return Snapshot(
            now=utc_now(),
            zone=self.home.zone,
            records=records,
            holds=self.ledger.holds(),
            claims=self.ledger.claims(),
            queued=queued,
            first_seen=self.ledger.first_seen(),
            dynamic=self.dynamic_keys(),
            gates=self.governor.gates(self.wishes(self.graph.declarations)),
        )

    def wishes(
        self,
        names: Iterable[str],
        orchestrator: str | None = None,
        resources: Callable[[Declaration], Mapping[str, Any]] = lambda d: d.resources,
    ) -> Iterator[Wish]:
        """Give what policy is asked of assets that would be built; nothing without a policy.

        Parameters
        ----------
        orchestrator
            The one that was asked for.
        resources
            Gives what the job of an asset would ask for.
        """
        if self.governor.policy is None:
            return
        from examlops_dagster.orchestrators.registry import choose  # noqa: PLC0415 - with policy

        environment = self.home.environment
        yield from wishes_of(
            self.graph,
            names,
            lambda declared: choose(orchestrator, declared.orchestrator, environment)[0],
            resources,
        )

    def dynamic_keys(self) -> Mapping[str, Sequence[str]]:
        """Give the keys of dynamic spaces, by name; Dagster is asked only where there is one."""
        spaces = [d.partitions for d in self.graph.declarations.values() if d.partitions]
        if any(isinstance(each, DynamicSpace) for s in spaces for _, each in s.dimensions):
            return self.event_log.dynamic_keys()
        return {}

    def statuses(self, snapshot: Snapshot | None = None) -> dict[Node, Status]:
        """Judge every declared and every recorded node."""
        return statuses(self.graph, snapshot or self.snapshot(), self.code_versions)

    def plan(
        self,
        names: Sequence[str] = (),
        *,
        partition: str | None = None,
        force: bool = False,
        deps: bool = True,
        named: bool = True,
    ) -> Plan:
        """Plan a request for ``names``, or for all that is due; changes nothing.

        The arguments are those of `plan_targets`.

        Raises
        ------
        UnknownAssetError
            For a name that nobody declared.
        UsageError
            For a partition that does not exist, or of an asset without partitions.
        """
        snapshot = self.snapshot()
        nodes = Nodes(self.graph, snapshot)
        verdicts = self.statuses(snapshot)
        if not names:
            return plan_due(self.graph, nodes, verdicts)
        targets = [n for name in names for n in self.targets(nodes, name, partition)]
        return plan_targets(
            self.graph, nodes, verdicts, targets, force=force, deps=deps, named=named
        )

    def plan_due(
        self,
        names: Sequence[str] = (),
        done: Collection[Node] = (),
        failed: Collection[Node] = (),
    ) -> Plan:
        """Plan what is due.

        Parameters
        ----------
        names
            Confine it to these and what they are made from; a sensor or task among them runs in
            any case.
        done
            Nodes to leave out.
        failed
            Nodes to leave out what is below them.
        """
        snapshot = self.snapshot()._replace(gates={})  # a person asks, and not automation
        nodes = Nodes(self.graph, snapshot)
        verdicts = self.statuses(snapshot)
        plan = plan_due(self.graph, nodes, verdicts, only=names or None)
        always = (NodeType.SENSOR, NodeType.TASK)
        named = [Node(n) for n in names if self.declared(n).node_type in always]
        targets = [node for node in named if node not in done]
        if targets:
            plan = joined(self.graph, plan_targets(self.graph, nodes, verdicts, targets), plan)
        return without(nodes, plan, done, failed)

    def _record(self, node: Node) -> Record | None:
        datasets = [node.asset] if node.asset in self.graph.datasets else []
        return self.ledger.records([node], datasets).get(node)

    def nodes_of(self, name: str, partition: str | None = None) -> list[Node]:
        """Give the nodes that a name and a partition stand for, as of now."""
        nodes = Nodes(self.graph, Snapshot(utc_now(), dynamic=self.dynamic_keys()))
        return self.targets(nodes, name, partition)

    def targets(self, nodes: Nodes, name: str, partition: str | None) -> list[Node]:
        """Give the nodes that a name and a partition stand for."""
        declaration = self.declared(name)
        if partition is None:
            return nodes.of(name)
        if declaration.partitions is None:
            raise UsageError(
                f"{name} has no partitions, so --partition {partition} means nothing "
                "→ for a partition of the cluster use --resources partition=..."
            )
        try:
            keys = select_keys(declaration.partitions, nodes.keys(name), partition)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from error
        return [Node(name, key) for key in keys]

    def declared(self, name: str) -> Declaration:
        """Give a declaration.

        Raises
        ------
        UnknownAssetError
            With the nearest names.
        UsageError
            For a name that is only an upstream of a command-line declaration.
        """
        declaration = self.graph.declarations.get(name)
        if declaration is None:
            raise UnknownAssetError(name, self.graph.declarations)
        if name in self.graph.undeclared:
            raise UsageError(
                f"{name} is named as an upstream but was never declared → exa assets declare {name}"
            )
        return declaration

    def aliases(self) -> list[AliasState]:
        """Give the aliases with what each was resolved to last, those no longer declared too."""
        self._read_others()
        last = self.outlets.resolved_aliases()
        found = {
            name: AliasState(name, tuple(edge.name for edge in declaration.upstreams))
            for name, declaration in self.graph.declarations.items()
            if declaration.node_type is NodeType.ALIAS
        }
        for name, event in last.items():
            state = found.get(name) or AliasState(name)
            found[name] = replace(state, version=event.version, last=event)
        return list(found.values())

    def resolved(self, name: str, limit: int = 20) -> list[DatasetEvent]:
        """Give the latest events of an alias, or of a dataset, newest first.

        Raises
        ------
        UnknownAssetError, UsageError
            If it is neither and never was.
        """
        self._read_others()
        declaration = self.graph.declarations.get(name)
        kinds: tuple[bool, ...] = (True, False)
        if declaration is not None and declaration.is_emitted:
            kinds = (declaration.node_type is NodeType.ALIAS,)
        for alias in kinds:
            found = self.outlets.events(name, alias=alias, limit=limit)
            if found:
                return found[::-1]
        if not self.declared(name).is_emitted:
            raise UsageError(
                f"{name} is neither an alias nor a dataset → exa assets history {name}"
            )
        return []

    def failed_sinks(self) -> dict[Node, list[SinkWrite]]:
        """Give the sinks whose last write failed, of what is declared with sinks now."""
        found: dict[Node, list[SinkWrite]] = {}
        for write in self.sink_writes.failed():
            declaration = self.graph.declarations.get(write.node.asset)
            if declaration is not None and len(declaration.sinks) >= write.number:
                found.setdefault(write.node, []).append(write)
        return found

    def value(self, node: Node) -> tuple[Value, Path]:
        """Give the value of a node, and the file that holds it.

        Raises
        ------
        UsageError
            When nothing is kept of it.
        """
        key = key_path(self.declared(node.asset))
        record = self.ledger.records([node]).get(node)
        if record is None:
            raise UsageError(f"{node} was never built → exa assets materialize {node.asset}")
        path = self.values.path(key, node.partition, record.data_version)
        value = self.values.load(key, node.partition, record.data_version)
        if path is None or value is None:
            raise UsageError(
                f"no value of {node} is kept: its function returns nothing → let it return the "
                "value, or AssetOutput(value=...)"
            )
        return value, path

    def history(self, name: str, partition: str | None = None, limit: int = 50) -> list[Build]:
        """Give the builds of an asset, newest first, also of one that is no longer declared.

        Raises
        ------
        UsageError
            For a name or a partition that is not there, and was not.
        """
        self._read_others()
        node = Node(name, partition) if partition is not None else None
        found = self.ledger.history(node, name, limit)
        if found:
            return found
        self.declared(name)
        if partition is None:
            return []
        several = [self.ledger.history(n, name, limit) for n in self.nodes_of(name, partition)]
        found = [build for builds in several for build in builds]
        return sorted(found, key=lambda build: build.started_at, reverse=True)[:limit]

    def _read_others(self) -> None:
        """Take over what others wrote, if they did."""
        if self.home.exists and not watermark.nothing_new(self.home.folder, self.database):
            self.event_log.sync()
