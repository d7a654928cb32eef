"""A project's home, databases, declarations and code; opened when they are first used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from examlops_dagster.catalog.declarations import Catalog
from examlops_dagster.catalog.revisions import Revisions
from examlops_dagster.catalog.views import FeatureViews
from examlops_dagster.core.declarations import Declaration, closed_over, merge
from examlops_dagster.core.declared import declarations_of
from examlops_dagster.core.graph import Graph, build_graph
from examlops_dagster.core.seams import ORCHESTRATORS
from examlops_dagster.governance.governor import Governor
from examlops_dagster.home import Home, cache_folder, use_home
from examlops_dagster.initialise import ensure_home
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.outlets import Outlets
from examlops_dagster.ledger.sinks import SinkWrites
from examlops_dagster.store.engine import Database
from examlops_dagster.store.hosts import check_host
from examlops_dagster.store.migrations import migrate
from examlops_dagster.values import FileValues

if TYPE_CHECKING:
    from typing_extensions import Self

    from examlops_dagster.fingerprint import Fingerprints
    from examlops_dagster.ledger.event_log import EventLog

logger = logging.getLogger(__name__)


@dataclass
class OpenedProject:
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
    def governor(self) -> Governor:
        """Policy, approvals and the audit log."""
        return Governor(self.home, self.database)

    @cached_property
    def catalog(self) -> Catalog:
        """The declarations made outside code."""
        return Catalog(self.database)

    @cached_property
    def revisions(self) -> Revisions:
        """The contents that datasets had."""
        return Revisions(self.database)

    @cached_property
    def views(self) -> FeatureViews:
        """The feature views."""
        return FeatureViews(self.database)

    @cached_property
    def outlets(self) -> Outlets:
        """The events of datasets and aliases."""
        return Outlets(self.database)

    @cached_property
    def sink_writes(self) -> SinkWrites:
        """How the last write of each sink ended."""
        return SinkWrites(self.database)

    @property
    def values(self) -> FileValues:
        """The values that our I/O manager keeps."""
        return FileValues(self.home.folder / "storage" / "examlops")

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

    def over(self, database: Database, home: Home | None = None, *, reading: bool = True) -> Self:
        """Give the same code over another connection: what a server has loaded, for one request.

        Parameters
        ----------
        database
            Open, with its tables.
        home
            None for the same one.
        """
        found = replace(self, home=home or self.home, reading=reading, on_home_made=None)
        found.__dict__.update(
            database=database,
            in_code=self.in_code,
            fingerprints=self.fingerprints,
            code_versions=self.code_versions,
        )
        return found

    def make_home(self) -> None:
        """Make the home of a request that is about to write, if there is none yet."""
        if self.home.exists:
            return
        self.database.close()
        self.home, written = ensure_home(self.home)
        for name in ("database", "ledger", "catalog", "outlets", "revisions", "views", "governor"):
            self.__dict__.pop(name, None)
        if self.on_home_made is not None:
            self.on_home_made(self.home, written)

    def close(self) -> None:
        """Close what is open; the object must not be used any more."""
        self.ledger.close()
        self.database.close()


def _orchestrators(declarations: Iterable[Declaration]) -> frozenset[str]:
    """Give the known names; installed packages are asked only where somebody names another."""
    named = {d.orchestrator for d in declarations if d.orchestrator is not None}
    if named <= ORCHESTRATORS:
        return ORCHESTRATORS
    from examlops_dagster.orchestrators.registry import known_orchestrators  # noqa: PLC0415

    return known_orchestrators()
