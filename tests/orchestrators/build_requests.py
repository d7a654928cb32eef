"""What the tests of orchestrators share: requests, and a look at processes."""

from pathlib import Path

from waiting import is_alive

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildRequest


def request(function, arguments=None, *, timeout_seconds=300.0, partition="", **declared):
    declaration = Declaration("numbers", function=function, **declared)
    node = Node("numbers", partition)
    return BuildRequest(declaration, node, 1, "token", arguments or {}, {}, timeout_seconds)


def pids_in(folder):
    return [int(path.name) for path in Path(folder).iterdir()]


def alive(pids):
    return [pid for pid in pids if is_alive(pid)]
