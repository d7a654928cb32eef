"""What changes a project: declarations, and what others made."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from examlops_dagster.catalog.declarations import COMMAND_LINE
from examlops_dagster.catalog.revisions import Revision
from examlops_dagster.catalog.views import VIEW_KIND, FeatureView
from examlops_dagster.clock import utc_now
from examlops_dagster.core.aliases import Dataset, DatasetAlias, Metadata
from examlops_dagster.core.declarations import DEFAULT_KIND, Declaration, NodeType, Upstream, merge
from examlops_dagster.core.emissions import DatasetEvent, emissions
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.inputs import inputs_as_read
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import parse_space
from examlops_dagster.core.records import Node, Read, Record
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.ticks import first_sights
from examlops_dagster.delivery import deliver
from examlops_dagster.errors import ExamlopsError, UsageError
from examlops_dagster.formats import decode
from examlops_dagster.governance.decision import Action
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.project.reader import ProjectReader

logger = logging.getLogger(__name__)

_CLAIM_SECONDS = 5.0
"""For somebody else's change of a source; a build that goes on takes longer."""
_CLAIM_LOOK_SECONDS = 0.05


@dataclass
class Project(ProjectReader):
    """A project that can be changed; one object serves one request."""

    def see_schedules(self) -> None:
        """Note the scheduled nodes that neither automation nor ``exa run`` has seen yet."""
        nodes = Nodes(self.graph, Snapshot(utc_now(), dynamic=self.dynamic_keys()))
        self.ledger.see(first_sights(nodes, self.ledger.first_seen(), utc_now()))

    def declare(
        self,
        name: str,
        *,
        kind: str = DEFAULT_KIND,
        deps: Sequence[str] = (),
        description: str | None = None,
        partitions: str | None = None,
    ) -> Declaration:
        """Declare an asset outside code; checks only the declarations made so.

        Raises
        ------
        DefinitionError
            If it cannot work: a bad name or kind, or a cycle.
        UsageError
            If the partitions cannot be read.
        """
        try:
            self.see_declarable(name, kind=kind, deps=deps)
            if partitions:
                parse_space(partitions)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.make_home()
        self.governor.require(Action.DECLARE, name, kind=kind)
        with self.governor.recorded(Action.DECLARE, name, kind=kind, deps=list(deps)):
            return self.catalog.declare(
                name,
                now=utc_now(),
                actor=self.home.actor,
                kind=kind,
                deps=deps,
                description=description,
                partitions=partitions,
            )

    def undeclare(self, name: str) -> None:
        """Take back a declaration made outside code; what was built stays recorded.

        Raises
        ------
        UsageError
            If there is none.
        """
        if name not in {declaration.name for declaration in self.catalog.all()}:
            raise UsageError(
                f"{name} was not declared from the command line, so it cannot be undeclared here"
            )
        self.governor.require(Action.UNDECLARE, name)
        with self.governor.recorded(Action.UNDECLARE, name):
            self.catalog.undeclare(name)

    def see_declarable(
        self, name: str, *, kind: str = DEFAULT_KIND, deps: Sequence[str] = ()
    ) -> None:
        """See that a declaration outside code could work among the others.

        Raises
        ------
        DefinitionError
            If it cannot: a bad name or kind, or a cycle.
        """
        others = [d for d in self.catalog.all() if d.name != name]
        upstreams = tuple(Upstream(dep) for dep in deps)
        new = Declaration(name, kind=kind, upstreams=upstreams, where=COMMAND_LINE, outside=True)
        merged, problems = merge((), [*others, new])
        build_graph(merged, problems)

    def declare_view(self, view: FeatureView) -> bool:
        """Declare the asset of a registered view; what stops it is told, and tried again later.

        Policy was asked before the view was registered.
        """
        deps = [view.source] if view.source is not None else []
        now, actor = utc_now(), self.home.actor
        try:
            self.see_declarable(view.name, kind=VIEW_KIND, deps=deps)
            with self.governor.recorded(Action.DECLARE, view.name, kind=VIEW_KIND, deps=deps):
                self.catalog.declare(
                    view.name, now=now, actor=actor, kind=VIEW_KIND, deps=deps, former="relinked"
                )
            self.views.declared(view)
        except ExamlopsError as error:
            logger.warning("feature view %s is registered but not declared: %s", view.name, error)
            return False
        return True

    def catch_up(self) -> None:
        """Do what is recorded and was not done: who records it may be killed before.

        Views get their assets declared, and the assets of revisions their versions.
        """
        for view in self.views.waiting():
            self.declare_view(view)
        for name in dict.fromkeys(r.dataset for r in self.revisions.waiting()):
            try:
                declared = self.graph.declarations.get(name)
                if declared is not None and declared.function is None:  # it may be no source by now
                    self.advance_to_revisions(name)
            except Exception as error:  # noqa: BLE001 - of Dagster or its storage; status goes on
                logger.warning("%s does not have its latest revision yet: %s", name, error)

    def advance_to_revisions(self, name: str) -> None:
        """Give a source a version for each recorded revision that has none, in their order.

        Raises
        ------
        UsageError
            If it is no source, or another process changes it.
        """
        self._see_source(name, stated=True)
        node = Node(name)
        with self._claimed(node):
            self.event_log.sync()
            for revision in self.revisions.waiting(name):
                self._advance_to(node, revision)
        self.event_log.sync()

    def _advance_to(self, node: Node, revision: Revision) -> None:
        current = self._record(node)
        if current is None or current.data_version != revision.revision:
            current = self.event_log.report(self.ledger, node, revision.revision)
        self.revisions.advanced(revision, current.version)

    def advance(self, name: str, data_version: str | None = None) -> tuple[Record, bool]:
        """Give a source its next version.

        Parameters
        ----------
        name
            A declared source.
        data_version
            Identifies the new content; None for a token of its own.

        Returns
        -------
        tuple
            What exists now, and whether that is new: the same data version again is not.
        """
        self._see_source(name, stated=data_version is not None)
        self.make_home()
        self.event_log.sync()
        current = self._record(Node(name))
        if current is not None and current.data_version == data_version:
            return current, False
        self.governor.require(Action.SOURCE_CHANGED, name, kind=self.declared(name).kind)
        with self.governor.recorded(Action.SOURCE_CHANGED, name) as told:
            record = self._report(Node(name), data_version)
            told.update(version=record.version, data_version=record.data_version)
        self.event_log.sync()
        return record, True

    def emit(
        self,
        name: str,
        uri: str,
        extra: Mapping[str, Any] | None = None,
        dataset_extra: Mapping[str, Any] | None = None,
    ) -> DatasetEvent:
        """Emit an event for a producer outside: to an alias, or of a dataset itself.

        Parameters
        ----------
        name
            A declared alias, or the declared dataset.
        uri
            Of the dataset that was written.
        extra, dataset_extra
            Facts about this event, and about the dataset.

        Raises
        ------
        UsageError
            If the name is neither, or does not take the dataset.
        """
        declaration = self.declared(name)
        if not declaration.is_emitted:
            raise UsageError(
                f"{name} is an {declaration.node_type.value}, neither a dataset nor an alias "
                f"→ exa assets report {name} --data-version V"
            )
        is_alias = declaration.node_type is NodeType.ALIAS
        outlet = DatasetAlias(name, declaration.match) if is_alias else Dataset(name)
        added = Metadata(Dataset(uri, dataset_extra or {}), extra, name if is_alias else ())
        emitted = emissions("exa assets emit", (outlet,), [added])
        self.make_home()
        self.governor.require(Action.EMIT, name, kind=declaration.kind)
        with self.governor.recorded(Action.EMIT, name, dataset=uri) as told:
            batch = self.outlets.emit(f"emit-{os.urandom(16).hex()}", emitted)
            self.event_log.send([batch])
            told.update(version=batch.events[0].version)
        self.event_log.sync()
        return batch.events[0]

    def report(
        self, name: str, data_version: str, partition: str | None = None
    ) -> tuple[Record, bool]:
        """Record a content that others made.

        Returns
        -------
        tuple
            What exists now, and whether that is new.
        """
        declaration = self.declared(name)
        if declaration.is_source and partition is None:
            return self.advance(name, data_version)
        found = self.nodes_of(name, partition)
        if len(found) != 1:
            raise UsageError(f"{name} has {len(found)} partitions → name one: --partition KEY")
        [node] = found
        self.make_home()
        self.event_log.sync()
        current = self._record(node)
        if current is not None and current.data_version == data_version:
            return current, False
        self.governor.require(Action.REPORT, name, kind=declaration.kind)
        with self.governor.recorded(Action.REPORT, name, node=str(node)) as told:
            self.event_log.report_outside(node, data_version)
            self.event_log.sync()
            record = self.ledger.records([node])[node]
            told.update(version=record.version, data_version=data_version)
        return record, True

    def adopt(self, name: str) -> list[Node]:
        """Take results that others made for ours, built from what is current today."""
        self.declared(name)
        self.make_home()
        self.event_log.sync()
        snapshot = self.snapshot()
        nodes = Nodes(self.graph, snapshot)
        theirs = {n: r for n in nodes.of(name) if (r := snapshot.records.get(n)) and not r.build_id}
        if not theirs:
            return []
        self.governor.require(Action.ADOPT, name, kind=self.declared(name).kind)
        adopted: list[Node] = []
        with self.governor.recorded(Action.ADOPT, name) as told:
            for node, record in theirs.items():
                read = inputs_as_read(nodes, node, snapshot.records)
                self._report(node, record.data_version, read, self.code_versions.get(name, ""))
                adopted.append(node)
                told["adopted"] = list(map(str, adopted))
        self.event_log.sync()
        return adopted

    def rewrite_sinks(self, name: str, partition: str | None = None) -> list[SinkWrite]:
        """Write the kept value to the sinks of an asset again, without building it.

        A node that another process builds or writes now is left to it, with that as the error.
        """
        declaration = self.declared(name)
        if not declaration.sinks:
            raise UsageError(f"{name} has no sinks → stack @sink(...) below its @asset")
        written: list[SinkWrite] = []
        for node in self.nodes_of(name, partition):
            written += self._rewrite(declaration, node)
        if not written:
            raise UsageError(f"{name} was never built → exa assets materialize {name}")
        return written

    def _rewrite(self, declaration: Declaration, node: Node) -> list[SinkWrite]:
        """Write the sinks of one node under its claim; where another has it, that one writes."""
        if node not in self.ledger.records([node]):
            return []
        token = os.urandom(16).hex()
        held = self.ledger.claim(node, token)
        if held is not None:
            why = (
                f"{node} is being built or written by process {held.pid} on {held.host} "
                "→ ask again when that has ended"
            )
            sinks = enumerate(declaration.sinks, start=1)
            return [SinkWrite(node, n, sink.url, "", why, utc_now()) for n, sink in sinks]
        try:
            record = self.ledger.records([node])[node]
            value, _ = self.value(node)
            written = deliver(
                declaration,
                node,
                record.data_version,
                decode(value),
                folder=self.home.folder,
                writes=self.sink_writes,
            )
            for write in written:
                self.event_log.report_sink(write)
        finally:
            self.ledger.release(node, token)
        return written

    def adopt_source(self, node: Node) -> Record:
        """Give a source its first version, unless it has one."""
        current = self._record(node)
        if current is not None:
            return current
        with self._claimed(node) as token:  # and look again: others adopt it as well
            return self._record(node) or self.event_log.report(self.ledger, node, token)

    def _report(
        self,
        node: Node,
        data_version: str | None,
        built_from: Mapping[Node, Read] | None = None,
        code_version: str = "",
    ) -> Record:
        with self._claimed(node) as token:
            return self.event_log.report(
                self.ledger, node, data_version or token, built_from, code_version
            )

    def _see_source(self, name: str, *, stated: bool) -> None:
        """See that a name may advance without a build; ``stated`` when its content is known."""
        declaration = self.declared(name)
        if declaration.function is not None:
            raise UsageError(
                f"{name} has a production function → exa assets materialize {name} --force"
            )
        if not declaration.is_source and not stated:
            raise UsageError(
                f"{name} is made from {', '.join(e.name for e in declaration.upstreams)} "
                f"→ exa assets report {name} --data-version V records a result made elsewhere"
            )

    @contextmanager
    def _claimed(self, node: Node) -> Iterator[str]:
        """Keep others from changing a node; gives the token of the claim."""
        token = os.urandom(16).hex()
        deadline = time.monotonic() + _CLAIM_SECONDS
        while (held := self.ledger.claim(node, token)) is not None:
            if time.monotonic() > deadline:
                raise UsageError(f"{node} is being changed by process {held.pid} on {held.host}")
            time.sleep(_CLAIM_LOOK_SECONDS)
        try:
            yield token
        finally:
            self.ledger.release(node, token)
