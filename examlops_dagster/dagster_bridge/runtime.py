"""What the op bodies of one process share: the ledger, the event log, the orchestrators."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import DagsterInstance, SensorEvaluationContext
from dagster._core.definitions.selector import RepositorySelector

from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.jobs import JobsLedger
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.seams import AssetOrchestrator, Progress
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.home import Home
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.ledger.outlets import Outlets
from examlops_dagster.ledger.sinks import SinkWrites
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.registry import make
from examlops_dagster.store.engine import Database
from examlops_dagster.store.hosts import check_host
from examlops_dagster.store.migrations import migrate

if TYPE_CHECKING:
    from examlops_dagster.ledger.event_log import EventLog


@dataclass(frozen=True)
class Runtime:
    """Over one instance; kept for the life of the process, since workers in it stay warm.

    Attributes
    ----------
    home
        The instance's folder, with the environment of the process.
    database, ledger, event_log, sink_writes, jobs, outlets
        platform.db of that home, and what is read and written in it.
    """

    home: Home
    database: Database
    ledger: BuildsLedger
    event_log: EventLog
    sink_writes: SinkWrites
    jobs: HpcJobs
    outlets: Outlets


class Location:
    """What one code location has loaded: the graph, and the code versions of that moment.

    Parameters
    ----------
    graph
        Declared names and edges.
    code_versions
        Of the loaded production functions, by name.
    environment
        Of this process.
    is_older
        Tells whether a function's file was edited after it was loaded.
    """

    def __init__(
        self,
        graph: Graph,
        code_versions: Mapping[str, str],
        environment: Mapping[str, str],
        is_older: Callable[[Declaration], bool] = lambda declaration: False,  # noqa: ARG005
    ) -> None:
        self.graph = graph
        self.code_versions = dict(code_versions)
        self.environment = environment
        self.is_older = is_older
        self.due_by_tick: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """What was due, by the object that stands for a tick of Dagster's conditions."""
        self.probed: frozenset[str] = frozenset()
        """Sensors that are probed in ticks of their own, and never requested."""
        self.selector_id = ""
        """Dagster's id of this repository in this code location; empty until a tick told it."""
        self.lost_runs_noted: datetime | None = None
        """Up to when runs were looked at that ended before they began to build."""
        self.lost_backfills: set[str] = set()
        """Ids of backfills that were looked at, since they ended before they were done."""
        self.admitted: dict[str, str] = {}
        """Runs of which it is known whether they may build: empty, or why they may not."""
        self.progress: Progress | None = None
        """Told by orchestrators what a person who waits wants to know."""
        self._nodes = Nodes(graph, Snapshot(utc_now()))
        self._lock = threading.Lock()
        self._runtimes: dict[tuple[str, str], Runtime] = {}
        self._orchestrators: dict[str, AssetOrchestrator] = {}

    def learn_place(self, context: SensorEvaluationContext) -> None:
        """Take from a tick which of the workspace's code locations this is."""
        origin = context.code_location_origin
        if origin is not None and context.repository_name is not None:
            place = RepositorySelector(
                location_name=origin.location_name, repository_name=context.repository_name
            )
            self.selector_id = place.selector_id

    def runtime(self, instance: DagsterInstance) -> Runtime:
        """Give what the bodies share over an instance."""
        # definitions are loaded without it: it imports SQLAlchemy, a tenth of a second
        from examlops_dagster.ledger.event_log import EventLog  # noqa: PLC0415

        home = Home(Path(instance.root_directory), exists=True, environment=self.environment)
        with self._lock:
            found = self._runtimes.get((str(home.folder), home.database))
            if found is None:
                database = Database(home.database)
                migrate(database)
                check_host(database)
                found = Runtime(
                    home,
                    database,
                    BuildsLedger(database),
                    EventLog(instance, database, self.graph),
                    SinkWrites(database),
                    HpcJobs(database),
                    Outlets(database),
                )
                self._runtimes[str(home.folder), home.database] = found
            return found

    def nodes_at(self, snapshot: Snapshot) -> Nodes:
        """Give which partitions exist at a moment.

        What is asked for each of 10,000 keys must not list 10,000 keys each time.
        """
        self._nodes = self._nodes.at(snapshot)
        return self._nodes

    def orchestrator(
        self, name: str, jobs: JobsLedger, *, in_process: bool = False
    ) -> AssetOrchestrator:
        """Give an orchestrator by name; made once, so that its workers stay warm.

        ``jobs`` remembers batch jobs; ``in_process`` calls functions in this process, whatever
        their limit, where the orchestrator is local.
        """
        if in_process and name == LocalOrchestrator.name:
            return LocalOrchestrator(in_process=True)
        with self._lock:
            found = self._orchestrators.get(name)
            if found is None:
                found = self._orchestrators[name] = make(name, jobs=jobs, progress=self.progress)
            return found

    def close(self) -> None:
        """End the workers and close the databases."""
        with self._lock:
            for orchestrator in self._orchestrators.values():
                close = getattr(orchestrator, "close", None)
                if close is not None:
                    close()
            for runtime in self._runtimes.values():
                runtime.ledger.close()
                runtime.database.close()
            self._orchestrators.clear()
            self._runtimes.clear()
