"""The processes of Dagster beside the web server: started, watched, and ended with it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

logger = logging.getLogger(__name__)

END_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 60.0
_LOOK_SECONDS = 0.5


class Watched:
    """A process that is started again when it ends by itself.

    Parameters
    ----------
    name
        For messages.
    argv
        The program and its arguments.
    """

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self._name = name
        self._argv = list(argv)
        self._ending = threading.Event()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name=f"examlops-{name}", daemon=True)
        self._watcher.start()

    @property
    def state(self) -> str:
        """``running`` or ``ended``."""
        return "running" if self._process.poll() is None else "ended"

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._process.pid

    def end(self) -> None:
        """End it: SIGTERM, and SIGKILL where that has no effect for 30 s."""
        self._ending.set()
        self._watcher.join(END_SECONDS)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning("%s does not end by itself: killed", self._name)
                self._process.kill()
                self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        tied = [sys.executable, "-m", "examlops_dagster.web.tied", str(os.getpid())]
        # in a group of its own: Ctrl-C is for us, and we end it after the requests under way
        return subprocess.Popen(
            [*tied, *self._argv], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _watch(self) -> None:
        pause = 1.0
        while True:
            started = time.monotonic()
            while self._process.poll() is None:
                if self._ending.wait(_LOOK_SECONDS):
                    return
            if time.monotonic() - started > LONGEST_PAUSE_SECONDS:
                pause = 1.0
            logger.warning(
                "%s ended with %s: started again in %.0f s",
                self._name,
                self._process.returncode,
                pause,
            )
            if self._ending.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._process = self._start()


def daemon_command(workspace: str) -> list[str]:
    """Give the command of Dagster's daemon over a workspace file."""
    return [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace]
