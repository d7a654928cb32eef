"""What every answer of the server is made from: one snapshot, kept for as long as it is true."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence

from dagster import DagsterInstance

from examlops_dagster.catalog.declarations import Catalog
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.records import Node
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.verdicts import Status
from examlops_dagster.ledger.event_log import EventLog
from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.project import Project
from examlops_dagster.web.marks import Marks
from examlops_dagster.web.rows import Rows
from examlops_dagster.web.untouched import Untouched


class Moment(Project):
    """A project at one moment: it answers as `Project` does, and reads nothing anew.

    Attributes
    ----------
    rows
        What is shown of each asset.
    number
        Counts the moments of one server.
    """

    rows: Rows
    number: int

    def __init__(self, project: Project, taken: Snapshot, number: int) -> None:
        super().__init__(project.home, project.modules)
        kept = ("database", "ledger", "catalog", "graph", "code_versions", "sink_writes")
        self.__dict__.update({name: getattr(project, name) for name in kept})
        self._taken = taken
        self._failed_sinks = Project.failed_sinks(project)
        self._verdicts = Project.statuses(self, taken)
        self.number = number
        self.jobs = HpcJobs(project.database)
        self.rows = Rows.of(self)

    def snapshot(self) -> Snapshot:
        """Give the snapshot of this moment."""
        return self._taken

    def statuses(self, snapshot: Snapshot | None = None) -> dict[Node, Status]:
        """Give the verdicts of this moment."""
        del snapshot
        return self._verdicts

    def dynamic_keys(self) -> Mapping[str, Sequence[str]]:
        """Give the keys of dynamic spaces at this moment."""
        return self._taken.dynamic

    def failed_sinks(self) -> dict[Node, list[SinkWrite]]:
        """Give the sinks whose last write had failed."""
        return self._failed_sinks


class Moments:
    """Gives the present moment, and takes a new one only when something has changed.

    Parameters
    ----------
    loaded
        An open project, whose code is what the server has loaded; platform.db is there.
    instance
        Dagster's, of the same home.
    """

    def __init__(self, loaded: Project, instance: DagsterInstance) -> None:
        self._instance = instance
        self._loaded = loaded
        self._database = Untouched(loaded.home.database)
        self._marks = Marks(loaded.home, self._database, instance)
        self._lock = threading.Lock()
        self._declared: list[Declaration] = []
        self._project: Project | None = None
        self._mark: Hashable = None
        self._moment: Moment | None = None

    def now(self) -> Moment:
        """Give what is true now.

        Raises
        ------
        DefinitionError
            If declarations made since the start cannot work with the others.
        """
        with self._lock:
            if self._project is None or self._moment is None:
                self._project = self._with_declarations()
            # read before the rest: whatever changes from here on makes another mark
            mark = self._marks.now(self._project.graph, self._alive(self._project))
            if self._moment is None or mark != self._mark:
                self._moment, self._mark = self._take(), mark
            return self._moment

    def code_is_older(self) -> list[str]:
        """Give the assets whose file was edited after the server loaded it."""
        in_code = [d for d in self._loaded.in_code if d.function is not None]
        with self._lock:
            return [d.name for d in in_code if self._loaded.code_is_older(d)]

    def close(self) -> None:
        """Close the databases."""
        with self._lock:
            self._marks.close()
            self._database.close()

    @staticmethod
    def _alive(project: Project) -> Hashable:
        return frozenset((node, claim.token) for node, claim in project.ledger.claims().items())

    def _take(self) -> Moment:
        self._project = project = self._with_declarations()
        with self._database.looking():
            taken = project.snapshot()
        return Moment(project, taken, self._moment.number + 1 if self._moment else 1)

    def _with_declarations(self) -> Project:
        """Give the project with what is declared outside code now."""
        declared = Catalog(self._database).all()
        if self._project is not None and declared == self._declared:
            return self._project
        project = self._loaded.over(self._database)
        log = EventLog(self._instance, self._database, project.graph)
        project.__dict__["event_log"] = log
        self._declared = declared
        return project
