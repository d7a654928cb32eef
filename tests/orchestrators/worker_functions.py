"""Production functions of a module that a worker imports; it imports only our package."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.declarations import AssetOutput


def pid():
    return os.getpid()


def arguments(**given):
    return given


def nothing():
    return None


def output():
    return AssetOutput({"rows": 3}, data_version="v3", metadata={"rows": 3})


def fails():
    raise ValueError("no such column\nand more")


def exits():
    sys.exit(3)


def interrupted():
    raise KeyboardInterrupt


def recurses():
    return recurses()


class BrokenError(Exception):
    def __init__(self, handle):
        self.handle = handle

    def __str__(self):
        raise RuntimeError("broken")


def raises_broken():
    raise BrokenError(threading.Lock())  # so it cannot be pickled either


def lock():
    return threading.Lock()


def unusable_metadata():
    return AssetOutput(1, metadata={"lock": threading.Lock()})


def dies(number):
    os.kill(os.getpid(), number)


def leaves():
    os._exit(7)


def says(text):
    print(text)
    print(text.upper(), file=sys.stderr)
    logging.getLogger("user").warning("%s is logged", text)


def writes_lines(count):
    for number in range(count):
        sys.stdout.write(f"{number:>99}\n")


def has_dagster():
    return sorted(name for name in sys.modules if name.split(".")[0] == "dagster")


def surroundings(name):
    return [os.environ.get(name), str(Path.cwd())]


def yields():
    yield Metadata("s3://one", {"rows": 1})
    yield Metadata("s3://two", alias="out")
    return "done"


def yields_values():
    yield 1


async def waits():
    return 1


def sees(output):
    return (True, output)


def sees_wrongly(output):
    return output


def sleeps(folder, ignore_sigterm=False):
    if ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(folder)
    time.sleep(600)


def keeps_the_lock(folder):
    note(folder)
    return sum(range(10**11))  # minutes, in which no other thread of Python runs


def leaves_an_orphan_and_dies(folder):
    orphan = "(setsid sh -c 'echo $$ > {0}/$$; sleep 600 & wait' &) "
    subprocess.run(["sh", "-c", orphan.format(folder)], check=True)
    while not count(folder):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def stops_cleanly(folder):
    """Start a program that takes a moment to clean up after SIGTERM."""
    script = (
        f"trap 'sleep 0.2; echo > {folder}/cleaned; exit' TERM; echo > {folder}/begun; "
        "sleep 600 & wait"
    )
    subprocess.run(["sh", "-c", script], check=True)


def sleeps_with_children(folder):
    """Start a child, a grandchild in a session of its own, and an orphan that ignores SIGTERM."""
    deep = (
        "trap '' TERM; echo $$ > {0}/$$; setsid sh -c 'echo $$ > {0}/$$; sleep 600 & wait' & wait"
    )
    subprocess.Popen(["sh", "-c", deep.format(folder)])
    orphan = "(setsid sh -c 'trap \"\" TERM; echo $$ > {0}/$$; sleep 600 & wait' &) "
    subprocess.run(["sh", "-c", orphan.format(folder)], check=True)
    while count(folder) < 3:
        time.sleep(0.01)
    note(folder)
    time.sleep(600)


def note(folder):
    Path(folder, str(os.getpid())).touch()


def count(folder):
    return len(list(Path(folder).iterdir()))


def forks():
    if os.fork() == 0:
        return "child"
    return "parent"


def dies_with_a_fork():
    """Leave a child behind that holds the connection to the parent open."""
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def holds(path, barrier):
    Path(barrier, path).touch()
    while count(barrier) < 4:
        time.sleep(0.01)
    return os.getpid()


def makes_a_set():
    return {f"name {number}" for number in range(100)}
