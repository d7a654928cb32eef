"""What a courier does, in its process: delivers until its command ends, then the rest.

``python -m examlops_dagster.governance.lineage_program HOME PID FOLDER SYS_PATH...``. A line on
stdin, its end, or the death of the command (``PID``) ends it; what it says on stderr is for the
user.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from pathlib import Path

from examlops_dagster.errors import ExamlopsError
from examlops_dagster.governance.lineage import Delivered, deliver, tell_outage
from examlops_dagster.governance.lineage_backend import Backend, open_backend
from examlops_dagster.home import Home
from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate

SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
LAST_SECONDS = 30.0
"""No event is begun later than this after the end of the command."""

_TURN_SECONDS = 0.1
"""Between looks whether another deliverer is done."""

logger = logging.getLogger(__name__)


class _Deliverer:
    def __init__(self, home: Home, backend: Backend, command: int) -> None:
        self._home = home
        self._backend = backend
        self._command = command
        self._database = Database(home.database)
        self._error = ""

    def run(self) -> None:
        pause = 0.0
        while not self._is_over(pause):
            if self._deliver(LONGEST_PAUSE_SECONDS).delivered:
                pause = SHORTEST_PAUSE_SECONDS
            else:
                pause = min(max(2 * pause, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        deadline = time.monotonic() + LAST_SECONDS
        done = self._deliver(LAST_SECONDS)
        while done.is_elsewhere and time.monotonic() < deadline:
            time.sleep(_TURN_SECONDS)
            done = self._deliver(deadline - time.monotonic())
        if done.outage and not done.is_elsewhere:  # also one that was found out by another
            tell_outage(done.outage)
        self._database.close()

    def _is_over(self, seconds: float) -> bool:
        readable, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(readable) or os.getppid() != self._command

    def _deliver(self, seconds: float) -> Delivered:
        if not self._database.exists:  # the command has not written yet, or it is gone
            return Delivered()
        try:
            migrate(self._database)
            return deliver(self._database, self._home, seconds=seconds, backend=self._backend)
        except ExamlopsError as error:
            if str(error) != self._error:  # it may last as long as the command
                self._error = str(error)
                logger.warning("lineage events wait: %s", error)
            return Delivered()


def main(home: str, command: str, folder: str, *path: str) -> None:
    """Deliver beside a command.

    Parameters
    ----------
    home
        Folder of the home.
    command
        Process id of the command.
    folder
        In which it works.
    path
        Its ``sys.path``: a transport may be the user's own class.
    """
    os.chdir(folder)
    where = Home(Path(home), exists=True, environment=os.environ)
    sys.path += [each for each in path if each not in sys.path]
    try:
        backend = open_backend(where)
    except ExamlopsError as error:
        logger.warning("lineage events wait: %s", error)
        return
    try:
        _Deliverer(where, backend, int(command)).run()
    finally:
        backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
