"""A function that a worker process imports and that runs longer than it may."""

import os
import time
from pathlib import Path

from examlops_dagster import asset


@asset(timeout_seconds=5, retries=1)
def slow():
    (Path(os.environ["TIMEOUT_CALLS"]) / str(os.getpid())).touch()
    time.sleep(600)


def calls():
    """Give the processes that called it."""
    return [int(path.name) for path in Path(os.environ["TIMEOUT_CALLS"]).iterdir()]
