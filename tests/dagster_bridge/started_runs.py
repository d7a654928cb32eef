"""Runs of Dagster in processes of their own, whose jobs leave ``started-PID`` in a folder."""

import os
import subprocess
import sys

from waiting import PATIENCE_SECONDS, is_alive, wait_until


def start(home, program, folder, *words, count=1):
    """Start a run, and give its process and the run once so many of its programs run."""
    process = subprocess.Popen(
        [sys.executable, program.__file__, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=home.folder,
        start_new_session=True,
    )
    wait_until(lambda: process.poll() is not None or running(folder) == count)
    assert process.poll() is None
    [found] = home.instance.get_runs()
    return process, found


def end(process, number):
    process.send_signal(number)
    process.wait(PATIENCE_SECONDS)


def running(folder):
    """Count the programs of jobs that run."""
    numbers = [int(path.name.partition("-")[2]) for path in folder.glob("started-*")]
    return sum(map(is_alive, numbers))
