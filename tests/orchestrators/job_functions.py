"""Production functions that jobs import."""

import functools
import os
import signal
import sys
import time
from pathlib import Path

from examlops_dagster import AssetOutput, asset


def versions(**upstream):
    return {"upstream": upstream, "pid": os.getpid()}


def ds_and_versions(ds, **upstream):
    return [ds, upstream]


def loaded(**upstream):
    names = ("dagster", "dagster_shared", "sqlalchemy", "sqlite3", "psycopg", "dagster_pipes")
    return [name for name in names if name in sys.modules]


def fails(**upstream):
    print("on stdout before", flush=True)
    raise ValueError("this is why")


def exits(**upstream):
    sys.exit("no more")


def returns_nothing(**upstream):
    return None


def unusable(**upstream):
    return lambda: 1


def says_more(**upstream):
    return AssetOutput({"a": 1}, data_version="v7", metadata={"rows": 3, "when": (1, 2)})


def sees(**upstream):
    return True, "new"


def frame(table):
    return table.assign(twice=table["x"] * 2)


def sleeps(folder, seconds, **upstream):
    Path(folder, f"started-{os.getpid()}").touch()
    time.sleep(seconds)
    return "slept"


def killed(**upstream):
    os.kill(os.getpid(), signal.SIGKILL)


def where(**upstream):
    return [str(Path.cwd()), os.environ.get("EXAMLOPS_ASSET"), sys.path[:3]]


def logs_to_pipes(**upstream):
    from dagster_pipes import PipesContext

    context = PipesContext.get()
    context.log.warning("from the job")
    context.report_asset_materialization(metadata={"loss": 0.5}, data_version="p1")
    return {"partition": context.partition_key if context.is_partition_step else None}


@asset("declared", deps=["PM100"])
def declared(**upstream):
    return upstream


def outer():
    def inner(**upstream):
        return 1

    return inner


inner = outer()
anonymous = lambda **upstream: "lambda"  # noqa: E731


def original(**upstream):
    return "original"


@functools.wraps(original)
def wrapper(**upstream):
    return "wrapper"


hidden = original


def of_key(key, **upstream):
    print("building", key, flush=True)
    if key.startswith("bad"):
        raise ValueError(f"{key} is no good")
    return {"key": key, "task": os.environ.get("EXAMLOPS_PARTITION"), **upstream}


def of_key_waiting(key, folder, waits=True):
    """Note the start; one that waits ends when the file ``go on`` is there."""
    with Path(folder, f"started-{key}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if waits:
        _until_it_may_go_on(folder)
    return key


def talks(folder, **upstream):
    Path(folder, f"started-{os.getpid()}").touch()
    print("first line", flush=True)
    _until_it_may_go_on(folder)
    print("last line", flush=True)
    return "talked"


def _until_it_may_go_on(folder):
    deadline = time.monotonic() + 600  # where a test left it
    while not Path(folder, "go on").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def environment(**upstream):
    return dict(os.environ)


def fails_for_a_cause(**upstream):
    try:
        {}["the cause"]
    except KeyError as error:
        raise OSError("this is why") from error


def takes_memory(mebibytes, **upstream):
    held = bytearray(mebibytes << 20)
    for start in range(0, len(held), 4096):
        held[start] = 1
    time.sleep(600)
    return len(held)
