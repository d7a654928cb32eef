"""Waiting for what other processes and threads do, with patience for a busy machine."""

import subprocess
import sys
import time

import psutil

PATIENCE_SECONDS = 180
QUIET_SECONDS = 2.0
"""What the import of dagster takes at most on a machine with nothing else to do."""


def wait_until(condition, seconds=PATIENCE_SECONDS, step=0.05):
    """Wait for something, and give it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(step)
    return found


def until_prunable():
    """Wait until what has ended by now is older than a second, for ``exa hpc prune``."""
    time.sleep(2.1)  # an exit record has whole seconds


def slowness():
    """Say how many times longer than on a quiet machine a program takes now; 1 or more.

    A test that bounds how long something takes multiplies its bound by this, measured after it.
    """
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import dagster"], check=True, timeout=PATIENCE_SECONDS)
    return max(1.0, (time.monotonic() - started) / QUIET_SECONDS)


def is_alive(pid):
    """Say whether a process is there and has not ended, waited for or not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
