"""Waiting for what other processes and threads do, with patience for a busy machine."""

import time

import psutil

PATIENCE_SECONDS = 90


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


def is_alive(pid):
    """Say whether a process is there and has not ended, waited for or not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
