"""The courier: a process of its own that delivers lineage beside a command.

An event for the start and one for the end of each build, and the import of OpenLineage's client,
would cost a short command a fifth of its time. With a courier it waits for the last events alone,
and no longer than a moment: a courier that a slow backend keeps goes on without the command, and
ends by itself. Whatever becomes of it, the events wait in platform.db for the next one.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from examlops_dagster.governance.lineage_backend import is_configured
from examlops_dagster.governance.lineage_spool import Spool
from examlops_dagster.home import Home
from examlops_dagster.store.engine import Database

PROGRAM = "examlops_dagster.governance.lineage_program"
SECONDS_AFTER_A_COMMAND = 2.0
MOST_LINES = 20
"""Of what a courier said, for the user; the rest is in ``exa lineage --undelivered``."""

_PACKAGE_ROOT = Path(__file__).parents[2]

logger = logging.getLogger(__name__)


class Courier:
    """Delivers for one command; nothing here raises for its own sake: lineage stops no build."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    @contextmanager
    def recalled(self) -> Iterator[None]:
        """Recall it at the end, whatever that is."""
        try:
            yield
        finally:
            self.recall()

    def set_off(self, home: Home) -> None:
        """Start it, where there is a backend; once in a command."""
        if self._process is not None:
            return
        try:
            if is_configured(home):
                self._start(home)
        except Exception:
            logger.warning("lineage events are not delivered; they wait", exc_info=True)

    def recall(self, seconds: float = SECONDS_AFTER_A_COMMAND) -> None:
        """Have it deliver what is left, wait for that for a moment, and tell what it said.

        Parameters
        ----------
        seconds
            After which it goes on alone.
        """
        process, self._process = self._process, None
        said, self._said = self._said, None
        if process is None or said is None:
            return
        try:
            with said:
                self._end(process, said, seconds)
        except Exception:
            logger.warning("the delivery of lineage cannot be looked after", exc_info=True)

    def _start(self, home: Home) -> None:
        words = [str(home.folder), str(os.getpid()), str(Path.cwd()), *map(str, sys.path)]
        # Not a pipe: nobody reads it meanwhile, and it outlives this process. Nor our own stderr:
        # who reads that to its end would wait for the courier.
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the courier is recalled
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, *words],
                cwd=_PACKAGE_ROOT,  # -m puts it first on sys.path, before modules of the user
                env=dict(home.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # the terminal's end, or its Ctrl-C, is not meant for it
            )
        except BaseException:
            said.close()
            raise
        self._said = said

    @staticmethod
    def _end(process: subprocess.Popen[bytes], said: IO[bytes], seconds: float) -> None:
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin:  # it may have ended
                process.stdin.write(b"\n")  # a child that was forked meanwhile keeps the pipe open
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            logger.info("process %d goes on delivering lineage events", process.pid)
        finally:
            if process.returncode is None:  # so that it is no zombie if we live longer
                threading.Thread(target=process.wait, daemon=True).start()
        said.seek(0)
        _tell(said.read().decode("utf-8", "replace"), process.returncode)


def _tell(text: str, code: int | None) -> None:
    lines = list(dict.fromkeys(text.splitlines()))
    if code and not lines:
        lines = [f"lineage events wait: the process that delivered them ended with {code}"]
    if len(lines) > MOST_LINES:
        lines = [*lines[-MOST_LINES:], "more of this: exa lineage --undelivered"]
    for line in lines:
        logger.warning("%s", line)


def deliver_later(database: Database, home: Home) -> None:
    """Have delivered what waits, by a courier that nobody waits for; never raises.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """
    try:
        if not home.exists or not is_configured(home):
            return
        spool = Spool(database)
        outage = spool.outage()
        is_left_alone = outage is not None and outage.next_at > time.time()
        if is_left_alone or spool.is_empty():
            return
    except Exception:
        logger.warning("lineage events are not delivered; they wait", exc_info=True)
        return
    courier = Courier()
    courier.set_off(home)
    courier.recall(seconds=0)
