"""What the tests on a real Dagster instance share: a project in a folder, and ways to build in it."""

import importlib
import itertools
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from dagster import AssetKey, DagsterInstance

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.definitions import build_definitions
from examlops_dagster.dagster_bridge.run import materialize_in
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.formats import decode
from examlops_dagster.home import Home
from examlops_dagster.ledger.outlets import Outlets
from examlops_dagster.project import Project

PROGRAMS = Path(sys.executable).parent
LIMIT_SECONDS = 300  # only what hangs takes as long

INSTANCE = """\
telemetry:
  enabled: false
"""

CHAIN = """\
from examlops_dagster import asset


@asset("features", deps=["PM100"], timeout_seconds=None)
def build_features(**upstream):
    return {"read": upstream["PM100"]}


@asset("model", inputs={"features": build_features}, timeout_seconds=None)
def build_model(features):
    return {"from": features}
"""
"""PM100 (a source of the command line) -> features -> model."""

_numbers = itertools.count()


def names_of(nodes):
    return [str(node) for node in nodes]


class Homestead:
    """A folder that is Dagster's home, with modules in it."""

    def __init__(self, folder, monkeypatch, instance=INSTANCE, copy_of=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if copy_of is not None:
            shutil.copytree(copy_of, folder, dirs_exist_ok=True)
        (folder / "dagster.yaml").write_text(instance)
        monkeypatch.setenv("DAGSTER_HOME", str(folder))
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        monkeypatch.syspath_prepend(folder)
        monkeypatch.chdir(folder)
        self._locations = locations = []

        class Closed(Location):
            """What lives as long as its process is closed at the end of the test."""

            def __init__(self, *arguments, **named):
                super().__init__(*arguments, **named)
                locations.append(self)

        monkeypatch.setattr("examlops_dagster.dagster_bridge.definitions.Location", Closed)
        self._instance = None
        self._projects = []

    @property
    def instance(self):
        if self._instance is None:
            self._instance = DagsterInstance.from_config(str(self.folder))
        return self._instance

    def close(self):
        for thing in (*self._projects, *self._locations):
            thing.close()
        if self._instance is not None:
            self._instance.dispose()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def module(self, text=CHAIN, name=None):
        """Write a module under a name of its own, and import it."""
        name = name or f"pipeline_{os.getpid()}_{next(_numbers)}"
        self.write(f"{name}.py", text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def declare(self, name, **how):
        project = self.project()
        project.declare(name, **how)
        project.close()

    def project(self, *modules, reading=False):
        home = Home(self.folder, exists=True, environment=os.environ)
        project = Project(home, modules, reading)
        self._projects.append(project)
        return project

    def exa(self, modules, *names, **how):
        """Build as the command line does."""
        project = self.project(*_several(modules))
        try:
            return materialize_in(project, names, **how)
        finally:
            project.close()

    def definitions(self, modules, **how):
        return build_definitions(_several(modules), **how)

    def click(self, definitions, *names, tags=None, partition=None):
        """Build as the UI's button does, in this process."""
        if not hasattr(definitions, "get_repository_def"):
            definitions = self.definitions(definitions)
        keys = {AssetKey(name.split("/")) for name in names}
        repository = definitions.get_repository_def()
        job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(
            asset_selection=keys
        )
        return job.execute_in_process(
            instance=self.instance, raise_on_error=False, tags=tags, partition_key=partition
        )

    def advance(self, name, data_version=None, modules=()):
        project = self.project(*_several(modules))
        record, _ = project.advance(name, data_version)
        project.close()
        return record.version

    def status(self, modules=()):
        """Give the verdicts by name."""
        project = self.project(*_several(modules))
        found = {str(node): verdict for node, verdict in project.statuses().items()}
        project.close()
        return found

    def states(self, modules=()):
        return {name: s.shown or s.state.value for name, s in self.status(modules).items()}

    def versions(self, modules=()):
        return {name: s.version for name, s in self.status(modules).items()}

    def why(self, modules, name):
        return self.status(modules)[name].why

    def records(self, modules=()):
        project = self.project(*_several(modules))
        found = {str(node): record for node, record in project.snapshot().records.items()}
        project.close()
        return found

    def value(self, modules, name):
        """Give the value of an asset as it was last recorded."""
        project = self.project(*_several(modules))
        found = decode(project.value(Node(name))[0])
        project.close()
        return found

    def emit(self, modules, name, uri):
        """Emit an event to an alias or a dataset from outside."""
        project = self.project(*_several(modules))
        project.emit(name, uri)
        project.close()

    def emissions(self, name, *, alias=True):
        """Give the events of an alias or of a dataset, oldest first."""
        project = self.project()
        found = Outlets(project.database).events(name, alias=alias)
        project.close()
        return found

    def calls(self):
        """Give what the functions of a module have written to the file ``calls``."""
        path = self.folder / "calls"
        return path.read_text().split() if path.exists() else []

    def builds(self, name, partition=None, modules=()):
        """Give the attempts of an asset, oldest first."""
        project = self.project(*_several(modules))
        node = None if partition is None else Node(name, partition)
        found = project.ledger.history(node, name, 1000)[::-1]
        project.close()
        return found

    def endings(self, name):
        return [build.state.value for build in self.builds(name)]

    def sql(self, statement, **parameters):
        """Run a statement on platform.db, in a transaction of its own."""
        project = self.project()
        with project.database.write() as connection:
            rows = connection.execute(statement, **parameters)
        project.close()
        return rows

    def report(self, name, data_version=None, partition=None):
        """Report a materialization from outside, as Dagster's REST endpoint does."""
        from dagster import AssetMaterialization

        tags = {} if data_version is None else {"dagster/data_version": data_version}
        key = AssetKey(name.split("/"))
        self.instance.report_runless_asset_event(
            AssetMaterialization(key, partition=partition, tags=tags)
        )

    def observe(self, name, data_version=None):
        from dagster import AssetObservation

        tags = {} if data_version is None else {"dagster/data_version": data_version}
        self.instance.report_runless_asset_event(
            AssetObservation(AssetKey(name.split("/")), tags=tags)
        )

    def wipe(self, *names):
        self.instance.wipe_assets([AssetKey(name.split("/")) for name in names])

    def events(self, name):
        """Give the materializations of an asset, oldest first."""
        found = self.instance.fetch_materializations(AssetKey(name.split("/")), limit=1000)
        return [record.asset_materialization for record in found.records[::-1]]


def _several(modules):
    return tuple(modules) if isinstance(modules, (list, tuple)) else (modules,)


def run_program(folder, *argv, code=0, **environment):
    """Run a command as from a shell that knows no home, and see that it ends as expected."""
    own = ("DAGSTER_", "EXAMLOPS_", "PREFECT_", "PYTHONPATH", "PLATFORM_DB", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    program = PROGRAMS / argv[0]
    done = subprocess.run(
        [program, *map(str, argv[1:])],
        cwd=folder,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert code is None or done.returncode == code, f"{argv} ended with {done}"
    return done
