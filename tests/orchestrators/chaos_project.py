"""The project of a storm: small assets of every kind, whose functions write down what they do."""

import json

NOTED = '''\
"""Writes a line when a function starts, and one when it ends."""

import contextlib
import json
import os
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).parent


def born(pid):
    """Give when a process started, in ticks since the boot; None if it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in ("Z", "X") else words[19]


def token():
    """Give what tells the job from all others; nothing outside of jobs."""
    folder = Path(os.environ.get("EXAMLOPS_OUTLET_EVENTS", "")).parent.name
    return folder if len(folder) == 32 else ""


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextlib.contextmanager
def noted(node):
    file, run = HERE / "log" / f"{node}.jsonl", uuid.uuid4().hex

    def note(what, **more):
        line = json.dumps({"what": what, "run": run, "at": time.time(), **more}) + "\\n"
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, line.encode())
        os.close(handle)

    note("start", pid=os.getpid(), born=born(os.getpid()), token=token())
    said = lines(file)
    ended = {line["run"] for line in said if line["what"] == "end"}
    beside = [
        line["run"]
        for line in said
        if line["what"] == "start"
        and line["run"] not in {run, *ended}
        and line["born"] == born(line["pid"])
    ]
    if beside:
        note("beside", runs=beside)
    seconds = json.loads((HERE / "durations.json").read_text())
    time.sleep(seconds.get(node, seconds[""]))
    yield run
    note("end")


if __name__ == "__main__":
    with noted(sys.argv[1]):
        pass
'''

PIPELINE = """\
import sys
from pathlib import Path

from noted import noted

from examlops_dagster import AssetOutput, asset, partitions

HERE = Path(__file__).parent
KEYS = partitions([f"k{n}" for n in range(5)])


def made(node):
    with noted(node) as run:
        return AssetOutput({"run": run}, data_version=run)


def plain(name, **more):
    @asset(name, **more)
    def built(**upstream):
        return made(name)

    built.__name__ = built.__qualname__ = name
    return built


p0, p1, p2, p3 = (plain(f"p{n}", deps=["PM100"]) for n in range(4))
slow = plain("slow")
here = plain("here", deps=["p0"], orchestrator="local")


@asset(deps=["PM100"])
def first(**upstream):
    return made("first")


@asset(inputs={"value": first})
def second(value):
    assert value["run"]
    return made("second")


@asset(inputs={"value": second})
def third(value):
    assert value["run"]
    return made("third")


@asset(partitions={"key": KEYS})
def days(key):
    return made(f"days[{key}]")


@asset(partitions={"key": KEYS}, deps=[days])
def after(key, **upstream):
    return made(f"after[{key}]")


@asset(command=[sys.executable, "-S", str(HERE / "noted.py"), "program"], deps=["p1"])
def program(): ...


@asset
def broken():
    with noted("broken"):
        raise ValueError("it fails by itself")


top = plain("top", deps=["p0", "p1", "p2", "p3", "slow", "third", "after", "program"])
"""

ASSETS = (
    "p0", "p1", "p2", "p3", "slow", "here", "first", "second", "third", "days", "after", "program",
    "top",
)  # fmt: skip
"""All but the one that fails by itself."""

KEYS = [f"k{n}" for n in range(5)]
PARTITIONED = ("days", "after")
BROKEN = "broken"


def write_project(folder, rng):
    """Write the modules, and how long each function takes."""
    (folder / "log").mkdir()
    (folder / "noted.py").write_text(NOTED)
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "pyproject.toml").write_text('[tool.examlops]\nmodules = ["pipeline"]\n')
    nodes = [name for name in ASSETS if name not in PARTITIONED]
    nodes += [f"{name}[{key}]" for name in PARTITIONED for key in KEYS]
    seconds = {node: round(rng.choice([0.0, 0.2, 0.6, 1.2]), 1) for node in nodes}
    (folder / "durations.json").write_text(json.dumps({**seconds, "": 0.1, "slow": 3.0}))
