"""What the tests of orchestrators share: requests, and a look at processes."""

import time
from pathlib import Path

import psutil

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.seams import BuildRequest, Node


def request(function, arguments=None, *, timeout_seconds=30.0, partition="", **declared):
    declaration = Declaration("numbers", function=function, **declared)
    node = Node("numbers", partition)
    return BuildRequest(declaration, node, 1, "token", arguments or {}, {}, timeout_seconds)


def pids_in(folder):
    return [int(path.name) for path in Path(folder).iterdir()]


def alive(pids):
    def runs(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if runs(pid)]


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found
