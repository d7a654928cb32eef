"""A project: its home, its declarations, its snapshot; and the functions for scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from examlops_dagster.catalog.declarations import COMMAND_LINE, Catalog
from examlops_dagster.core.declarations import (
    DEFAULT_KIND,
    Declaration,
    NodeType,
    Upstream,
    closed_over,
    merge,
)
from examlops_dagster.core.declared import declarations_of
from examlops_dagster.core.graph import Graph, Nodes, build_graph, key_path
from examlops_dagster.core.inputs import inputs_as_read
from examlops_dagster.core.partitions import DynamicSpace, parse_space
from examlops_dagster.core.plan import Plan, joined, plan_due, plan_targets, without
from examlops_dagster.core.ranges import select_keys
from examlops_dagster.core.seams import ORCHESTRATORS, Node, Read, Record, Snapshot, Value
from examlops_dagster.core.status import Status, first_sights, statuses
from examlops_dagster.delivery import deliver
from examlops_dagster.errors import (
    UnknownAssetError,
    UsageError,
)
from examlops_dagster.formats import decode
from examlops_dagster.home import Home, cache_folder, find_home, use_home
from examlops_dagster.initialise import ensure_home
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.builds import Build, BuildsLedger, utc_now
from examlops_dagster.ledger.outside import odd_keys
from examlops_dagster.ledger.sinks import SinkWrite, SinkWrites
from examlops_dagster.loading import ModuleLike, configured_modules, load_modules
from examlops_dagster.store.engine import Database
from examlops_dagster.store.hosts import check_host
from examlops_dagster.store.migrations import migrate
from examlops_dagster.values import FileValues

if TYPE_CHECKING:
    from examlops_dagster.fingerprint import Fingerprints
    from examlops_dagster.ledger.event_log import EventLog


@dataclass
class Project:
    """What is declared, loaded and recorded; one object serves one request.

    Attributes
    ----------
    home
        Where the instance and platform.db are.
    modules
        The user's modules, loaded.
    reading
        True for a request that writes nothing: a home that does not exist answers as an empty
        one, and is not made. Any other request makes it when it first writes, so that one that is
        refused leaves nothing behind.
    on_home_made
        Told that there is a home now, and the files that were written for it.
    """

    home: Home
    modules: Sequence[ModuleType] = ()
    reading: bool = True
    on_home_made: Callable[[Home, Sequence[str]], None] | None = None

    @cached_property
    def database(self) -> Database:
        """platform.db, with its tables; in memory where there is none to read."""
        database = Database(self.home.database)
        if (self.reading or not self.home.exists) and not database.exists:
            database = Database(":memory:")
        migrate(database)
        if not self.reading and database.exists:
            check_host(database)
        return database

    @cached_property
    def ledger(self) -> BuildsLedger:
        """The attempts, versions, claims and holds."""
        return BuildsLedger(self.database)

    @cached_property
    def catalog(self) -> Catalog:
        """The declarations made outside code."""
        return Catalog(self.database)

    @cached_property
    def in_code(self) -> list[Declaration]:
        """What the modules declare."""
        found = [d for module in self.modules for d in declarations_of(module)]
        return list({id(d): d for d in found}.values())

    @cached_property
    def graph(self) -> Graph:
        """The declared names and edges.

        Raises
        ------
        DefinitionError
            With every problem of every declaration.
        """
        merged, problems = merge(closed_over(self.in_code), self.catalog.all())
        return build_graph(merged, problems, orchestrators=_orchestrators(merged.values()))

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Reads the user's code; the first look at a file is what counts as loaded."""
        from examlops_dagster.fingerprint import Fingerprints  # noqa: PLC0415 - only with modules

        return Fingerprints(cache_folder())

    @cached_property
    def code_versions(self) -> dict[str, str]:
        """Code versions of the loaded production functions, by name."""
        buildable = {
            name: declaration
            for name, declaration in self.graph.declarations.items()
            if declaration.function is not None
        }
        if not buildable:
            return {}
        return {name: self.fingerprints.code_version(d) for name, d in buildable.items()}

    def code_is_older(self, declaration: Declaration) -> bool:
        """Tell whether a function's file was edited after it was loaded, as servers should say."""
        return self.fingerprints.loaded_code_is_older(declaration)

    @cached_property
    def event_log(self) -> EventLog:
        """Dagster's event log; the first use imports dagster and opens its instance."""
        use_home(self.home)
        from examlops_dagster.ledger.event_log import open_event_log  # noqa: PLC0415 - a second

        return open_event_log(self.home.folder, self.database, self.graph)

    def make_home(self) -> None:
        """Make the home of a request that is about to write, if there is none yet."""
        if self.home.exists:
            return
        self.database.close()
        self.home, written = ensure_home(self.home)
        for name in ("database", "ledger", "catalog"):
            self.__dict__.pop(name, None)
        if self.on_home_made is not None:
            self.on_home_made(self.home, written)

    def snapshot(self) -> Snapshot:
        """Take all that a verdict rests on, now; reads what others wrote, if they did."""
        queued: frozenset[Node] = frozenset()
        records = self.ledger.records()
        declared = self.graph.declarations
        left_open = any(r.built_from is None and n.asset in declared for n, r in records.items())
        left_open = left_open or not odd_keys(self.graph).keys().isdisjoint(
            node.asset for node in records
        )
        others_wrote = not watermark.nothing_new(self.home.folder, self.database)
        if self.home.exists and (left_open or others_wrote):
            queued = self.event_log.in_flight()
            self.event_log.sync()
            records = self.ledger.records()
        return Snapshot(
            now=utc_now(),
            zone=self.home.zone,
            records=records,
            holds=self.ledger.holds(),
            claims=self.ledger.claims(),
            queued=queued,
            first_seen=self.ledger.first_seen(),
            dynamic=self.dynamic_keys(),
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
        snapshot = self.snapshot()
        nodes = Nodes(self.graph, snapshot)
        verdicts = self.statuses(snapshot)
        plan = plan_due(self.graph, nodes, verdicts, only=names or None)
        always = (NodeType.SENSOR, NodeType.TASK)
        named = [Node(n) for n in names if self.declared(n).node_type in always]
        targets = [node for node in named if node not in done]
        if targets:
            plan = joined(self.graph, plan_targets(self.graph, nodes, verdicts, targets), plan)
        return without(nodes, plan, done, failed)

    def see_schedules(self) -> None:
        """Note the scheduled nodes that neither automation nor ``exa run`` has seen yet."""
        nodes = Nodes(self.graph, Snapshot(utc_now(), dynamic=self.dynamic_keys()))
        self.ledger.see(first_sights(nodes, self.ledger.first_seen(), utc_now()))

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
        others = [d for d in self.catalog.all() if d.name != name]
        upstreams = tuple(Upstream(dep) for dep in deps)
        try:
            new = Declaration(
                name, kind=kind, upstreams=upstreams, where=COMMAND_LINE, outside=True
            )
            merged, problems = merge((), [*others, new])
            build_graph(merged, problems)
            if partitions:
                parse_space(partitions)
            self.make_home()
            return self.catalog.declare(
                name,
                now=utc_now(),
                actor=self.home.actor,
                kind=kind,
                deps=deps,
                description=description,
                partitions=partitions,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error

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
        declaration = self.declared(name)
        if declaration.function is not None:
            raise UsageError(
                f"{name} has a production function → exa assets materialize {name} --force"
            )
        if not declaration.is_source and data_version is None:
            raise UsageError(
                f"{name} is made from {', '.join(e.name for e in declaration.upstreams)} "
                f"→ exa assets report {name} --data-version V records a result made elsewhere"
            )
        self.make_home()
        self.event_log.sync()
        current = self.ledger.records([Node(name)]).get(Node(name))
        if current is not None and current.data_version == data_version:
            return current, False
        record = self._report(Node(name), data_version)
        self.event_log.sync()
        return record, True

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
        current = self.ledger.records([node]).get(node)
        if current is not None and current.data_version == data_version:
            return current, False
        self.event_log.report_outside(node, data_version)
        self.event_log.sync()
        return self.ledger.records([node])[node], True

    def adopt(self, name: str) -> list[Node]:
        """Take results that others made for ours, built from what is current today."""
        self.declared(name)
        self.make_home()
        self.event_log.sync()
        snapshot = self.snapshot()
        nodes = Nodes(self.graph, snapshot)
        adopted = []
        for node in nodes.of(name):
            record = snapshot.records.get(node)
            if record is None or record.build_id:
                continue
            read = inputs_as_read(nodes, node, snapshot.records)
            self._report(node, record.data_version, read, self.code_versions.get(name, ""))
            adopted.append(node)
        self.event_log.sync()
        return adopted

    @cached_property
    def sink_writes(self) -> SinkWrites:
        """How the last write of each sink ended."""
        return SinkWrites(self.database)

    def failed_sinks(self) -> dict[Node, list[SinkWrite]]:
        """Give the sinks whose last write failed, of what is declared with sinks now."""
        found: dict[Node, list[SinkWrite]] = {}
        for write in self.sink_writes.failed():
            declaration = self.graph.declarations.get(write.node.asset)
            if declaration is not None and len(declaration.sinks) >= write.number:
                found.setdefault(write.node, []).append(write)
        return found

    @property
    def values(self) -> FileValues:
        """The values that our I/O manager keeps."""
        return FileValues(self.home.folder / "storage" / "examlops")

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

    def rewrite_sinks(self, name: str, partition: str | None = None) -> list[SinkWrite]:
        """Write the kept value to the sinks of an asset again, without building it."""
        declaration = self.declared(name)
        if not declaration.sinks:
            raise UsageError(f"{name} has no sinks → stack @sink(...) below its @asset")
        nodes = self.nodes_of(name, partition)
        records = self.ledger.records(nodes)
        written: list[SinkWrite] = []
        for node in nodes:
            if node not in records:
                continue
            value, _ = self.value(node)
            written += deliver(
                declaration,
                node,
                records[node].data_version,
                decode(value),
                folder=self.home.folder,
                writes=self.sink_writes,
            )
        if not written:
            raise UsageError(f"{name} was never built → exa assets materialize {name}")
        for write in written:
            self.event_log.report_sink(write)
        return written

    def history(self, name: str, partition: str | None = None, limit: int = 50) -> list[Build]:
        """Give the builds of an asset, newest first, also of one that is no longer declared."""
        if self.home.exists and not watermark.nothing_new(self.home.folder, self.database):
            self.event_log.sync()
        node = Node(name, partition) if partition is not None else None
        found = self.ledger.history(node, name, limit)
        if not found:
            self.declared(name)
        return found

    def adopt_source(self, node: Node) -> Record:
        """Give a source its first version, unless it has one."""
        current = self.ledger.records([node]).get(node)
        return current or self._report(node, None)

    def _report(
        self,
        node: Node,
        data_version: str | None,
        built_from: Mapping[Node, Read] | None = None,
        code_version: str = "",
    ) -> Record:
        token = os.urandom(16).hex()
        held = self.ledger.claim(node, token)
        if held is not None:
            raise UsageError(f"{node} is being changed by process {held.pid} on {held.host}")
        try:
            return self.event_log.report(
                self.ledger, node, data_version or token, built_from, code_version
            )
        finally:
            self.ledger.release(node, token)

    def close(self) -> None:
        """Close what is open; the object must not be used any more."""
        self.ledger.close()
        self.database.close()


def open_project(
    modules: Iterable[ModuleLike] = (),
    *,
    file: str | None = None,
    reading: bool = True,
    home: Home | None = None,
) -> Project:
    """Open the project of the working directory.

    Parameters
    ----------
    modules
        Modules, or their names; with none (and no ``file``) those of ``EXAMLOPS_MODULES``, else of
        ``[tool.examlops] modules`` in pyproject.toml.
    file
        Path of a module, imported by its stem with its folder as import root.
    reading
        Whether the request writes nothing.
    home
        Where the project lives; found from the working directory by default.

    Raises
    ------
    UsageError
        If a module cannot be found.
    """
    home = home or find_home()
    wanted: list[ModuleLike] = list(modules)
    if not wanted and file is None:
        wanted = list(configured_modules(home))
    loaded = load_modules(wanted, file)
    return Project(home, loaded, reading)


def declare_asset(
    name: str,
    *,
    kind: str = DEFAULT_KIND,
    deps: Sequence[str] = (),
    description: str | None = None,
    partitions: str | None = None,
) -> None:
    """Declare an asset in platform.db, as ``exa assets declare`` does.

    Parameters
    ----------
    name
        Any printable text for a source; see `asset` for one with a function.
    kind
        dataset, feature, model, report, or any lower-case word.
    deps
        Names of its upstreams.
    description
        For people.
    partitions
        Text such as ``daily:2024-01-01``.

    Raises
    ------
    DefinitionError, UsageError
        If it cannot work.
    """
    project = Project(find_home(), reading=False)
    project.declare(name, kind=kind, deps=deps, description=description, partitions=partitions)
    project.close()


def asset_status(
    name: str | None = None, *, modules: Iterable[ModuleLike] = ()
) -> dict[Node, Status]:
    """Say of every node, or of those of one asset, whether it is stale and why.

    Parameters
    ----------
    name
        An asset; None for all.
    modules
        Where the assets are declared; the configured ones by default.
    """
    project = open_project(modules)
    try:
        if name is not None:
            project.declared(name)
        found = project.statuses()
        return {node: s for node, s in found.items() if name is None or node.asset == name}
    finally:
        project.close()


def plan(
    name: str | None = None,
    *,
    modules: Iterable[ModuleLike] = (),
    partition: str | None = None,
    force: bool = False,
    no_deps: bool = False,
) -> Plan:
    """Say what a request for ``name``, or for all that is due, would build; changes nothing."""
    project = open_project(modules)
    try:
        names = [name] if name is not None else []
        return project.plan(names, partition=partition, force=force, deps=not no_deps)
    finally:
        project.close()


def mark_source_changed(
    name: str, data_version: str | None = None, *, modules: Iterable[ModuleLike] = ()
) -> int:
    """Say that a source changed, and give its new version.

    Parameters
    ----------
    name
        A declared source.
    data_version
        Identifies the content; the same again changes nothing. None for "it is new".
    modules
        Where the assets are declared; the configured ones by default.
    """
    project = open_project(modules, reading=False)
    try:
        record, _ = project.advance(name, data_version)
        return record.version
    finally:
        project.close()


def _orchestrators(declarations: Iterable[Declaration]) -> frozenset[str]:
    """Give the known names; installed packages are asked only where somebody names another."""
    named = {d.orchestrator for d in declarations if d.orchestrator is not None}
    if named <= ORCHESTRATORS:
        return ORCHESTRATORS
    from examlops_dagster.orchestrators.registry import known_orchestrators  # noqa: PLC0415

    return known_orchestrators()
