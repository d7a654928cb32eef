"""1,000 partitions of one asset as job arrays: submissions, and time beside the bare array.

On the Slurm of ``tests/cluster/with-slurm`` (or any, with EXAMLOPS_TEST_SLURM=1), else on the mock
scheduler. Two programs: ``true`` as an asset's command, beside an array of ``true``; and a Python
function that works for some seconds (it sleeps, since a node of a cluster has a core for each
task and this machine has not), beside an array of a script that calls the same function. As many
tasks run at once as ``--at-once`` says, on both sides: more than the cores of this machine would
measure how long Python takes to start on one that is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from functools import partial
from pathlib import Path

from _common import PYTHON, Took, home_in, once, run, scratch, show

MODULE = """
import time
from examlops_dagster import asset, partitions

SPACE = {"key": partitions([f"k{n}" for n in range(SIZE)])}

@asset(partitions=SPACE, orchestrator="scheduler", command=["true"])
def program(key): ...

@asset(partitions=SPACE, orchestrator="scheduler")
def function(key):
    time.sleep(SECONDS)
    return {"key": key}
"""

BARE = """
import time

def function(key):
    time.sleep(SECONDS)
    return {"key": key}

if __name__ == "__main__":
    import json, os, sys
    with open(f"{sys.argv[1]}.json", "w") as file:
        json.dump(function(sys.argv[1]), file)
"""

ON_MOCK = """
import sys, time
from pathlib import Path
from examlops_dagster.schedulers.base import Submission
from examlops_dagster.schedulers.mock import MockScheduler

size, at_once, line = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
script = Path("run.sh").absolute()
script.write_text(f"#!/usr/bin/env bash\\nSLURM_ARRAY_TASK_ID=$EXAMLOPS_ARRAY_INDEX\\n{line}\\n")
script.chmod(0o700)
mock = MockScheduler()
jobs = mock.submit(Submission("0" * 32, "bare", script, script.parent, array=size, at_once=at_once))
while not all(status.state.final for status in mock.poll(jobs).values()):
    time.sleep(0.1)
"""


def exa(home: Path, variables: dict[str, str], *words: str) -> str:
    """Run exa in a home, with variables of its own."""
    settings = [f"{name}={value}" for name, value in variables.items()]
    command = str(Path(PYTHON).with_name("exa"))
    return run(["env", *settings, command, "-m", "mine", *words], home)


def submissions(home: Path, variables: dict[str, str], asset: str, size: int) -> int:
    """Count the arrays whose tasks were recorded, and see that all of them ended well."""
    words = ("hpc", "jobs", "--asset", asset, "-n", str(10 * size), "--json")
    jobs = json.loads(exa(home, variables, *words))
    assert len({job["partition"] for job in jobs if job["state"] == "COMPLETED"}) == size
    return len({job["job_id"].partition("_")[0] for job in jobs})


def bare(folder: Path, scheduler: str, size: int, at_once: int, line: str) -> None:
    """Submit an array by hand, and wait for it."""
    if scheduler == "mock":
        run([PYTHON, "-c", ON_MOCK, str(size), str(at_once), line], folder)
        return
    argv = shlex.join(
        ["sbatch", "--parsable", f"--array=0-{size - 1}%{at_once}", "--job-name=bare",
         f"--chdir={folder}", "--output=out.%a.log", f"--wrap={line}"]
    )  # fmt: skip
    # sbatch --wait looks seldom, and would be slower
    run(
        ["sh", "-c", f"job=$({argv}) && while squeue -h -j $job | grep -q .; do sleep 0.5; done"],
        folder,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--what", choices=["program", "function", "both"], default="both")
    given = parser.parse_args()
    scheduler = "slurm" if os.environ.get("EXAMLOPS_TEST_SLURM") else "mock"
    lines = {
        "program": "true",
        "function": f"{shlex.quote(PYTHON)} bare.py k$SLURM_ARRAY_TASK_ID",
    }
    chosen = lines if given.what == "both" else {given.what: lines[given.what]}
    rows: list[tuple[object, ...]] = []
    with scratch() as folder:
        sizes = {"SIZE": str(given.size), "SECONDS": str(given.seconds)}
        texts = {"mine": MODULE, "bare": BARE}
        for old, new in sizes.items():
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        variables = {
            "EXAMLOPS_HPC_SCHEDULER": scheduler,
            "EXAMLOPS_ARRAY_LIMIT": str(given.at_once),
            "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
        }
        for name, line in chosen.items():
            home = home_in(folder, name, texts)
            exa(home, variables, "assets", "status")  # makes the databases
            by_hand = once(partial(bare, home, scheduler, given.size, given.at_once, line))
            ours = once(partial(exa, home, variables, "assets", "materialize", name))
            number = submissions(home, variables, name, given.size)
            nothing = once(partial(exa, home, variables, "assets", "materialize", name))
            rows.append((name, number, by_hand, ours, _ratio(ours, by_hand), nothing))
    head = ("what", "submissions", "bare array", "exa", "exa / bare", "exa again")
    title = f"{given.size} partitions on {scheduler}, {given.at_once} at once"
    show(title, head, rows)


def _ratio(ours: Took, by_hand: Took) -> str:
    """Give the ratio on the clock: the jobs are no children of the command."""
    return f"{ours.wall / by_hand.wall:.2f}"


if __name__ == "__main__":
    main()
