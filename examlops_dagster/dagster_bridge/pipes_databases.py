"""platform.db of the homes whose steps run programs by our Pipes clients."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagster import DagsterInstance

from examlops_dagster.home import Home
from examlops_dagster.store.engine import Database
from examlops_dagster.store.hosts import check_host
from examlops_dagster.store.migrations import migrate


@dataclass
class _Open:
    database: Database
    users: int = 0


class Databases:
    """Each is open while a call uses it; calls in a thousand threads share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    @contextmanager
    def of(self, instance: DagsterInstance) -> Iterator[Database]:
        """Give the one of an instance's home, with its tables, meanwhile."""
        home = Home(Path(instance.root_directory), exists=True, environment=os.environ)
        with self._lock:
            found = self._open.get(home.database)
            if found is None:
                found = self._open[home.database] = _Open(_opened(home.database))
            found.users += 1
        try:
            yield found.database
        finally:
            with self._lock:
                found.users -= 1
                if not found.users:
                    del self._open[home.database]
                    found.database.close()


def _opened(location: str) -> Database:
    database = Database(location)
    try:
        migrate(database)
        check_host(database)
    except BaseException:
        database.close()
        raise
    return database
