"""1,000 assets as jobs that are waited for at once in one run, beside a loop of ``sbatch --wait``.

On real Slurm where ``EXAMLOPS_TEST_SLURM`` and ``SLURM_CONF`` are set (tests/cluster/with-slurm),
else on the mock scheduler, which has no ``sbatch`` to compare with. Every job sleeps. Status
commands are counted by programs of the same name that come first on PATH; memory is that of the
command and of all that it starts. Then: from a job's end to its version recorded, for a few jobs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from _common import PYTHON, environment, home_in, scratch, seconds, show

POLL_SECONDS = 5.0
ASKING = ("squeue", "sacct", "scontrol")
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Measured:
    """What a command took."""

    seconds: float
    peak_bytes: int
    asked: int


def module(size: int, sleep: float) -> str:
    """Write the assets, which have nothing to do with each other."""
    return f"""\
from examlops_dagster import asset

for n in range({size}):
    @asset(f"a{{n}}", command=["sleep", "{sleep}"], orchestrator="scheduler")
    def built(): ...
    globals()[f"a{{n}}"] = built
"""


def variables(home: Path, scheduler: str, slots: int) -> dict[str, str]:
    """Give the environment, in which every question to the scheduler leaves a line."""
    found = {
        **environment(home),
        "EXAMLOPS_HPC_SCHEDULER": scheduler,
        "EXAMLOPS_HPC_POLL_SECONDS": str(POLL_SECONDS),
        "EXAMLOPS_MOCK_SLOTS": str(slots),
        "XDG_RUNTIME_DIR": "",
    }
    counting = home / "counting"
    counting.mkdir(exist_ok=True)
    for name in ASKING:
        real = shutil.which(name)
        if real is not None:
            program = counting / name
            program.write_text(f'#!/bin/sh\necho {name} >> "{home}/asked"\nexec {real} "$@"\n')
            program.chmod(0o755)
    found["PATH"] = f"{counting}{os.pathsep}{found['PATH']}"
    return found


def measure(argv: list[str], home: Path, variables: dict[str, str]) -> Measured:
    """Run a command to its end, looking at the memory of all its processes."""
    asked = home / "asked"
    asked.unlink(missing_ok=True)
    start = time.perf_counter()
    with (home / "output").open("w") as output:
        process = subprocess.Popen(argv, cwd=home, env=variables, stdout=output, stderr=output)
    peak, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.5):
            peak[0] = max(peak[0], memory(process.pid))

    looking = threading.Thread(target=look)
    looking.start()
    code = process.wait()
    took = time.perf_counter() - start
    done.set()
    looking.join()
    if code:
        sys.exit(f"{argv[:3]} ended with {code}\n{(home / 'output').read_text()[-3000:]}")
    lines = asked.read_text().splitlines() if asked.exists() else []
    return Measured(took, peak[0], len(lines))


def memory(pid: int) -> int:
    """Give the memory of a process and of all that it started.

    What they share counts once (PSS): a process that is just started shares all of its parent's.
    """
    total = 0
    try:
        root = psutil.Process(pid)
        every = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in every:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def ours(folder: Path, name: str, scheduler: str, size: int, sleep: float, slots: int) -> Path:
    """Make a home with the assets in it."""
    home = home_in(folder, name, {"mine": module(size, sleep)})
    (home / "names").write_text(" ".join(f"a{n}" for n in range(size)))
    variables(home, scheduler, slots)
    return home


def exa(home: Path) -> list[str]:
    """Give the command that builds them all."""
    names = (home / "names").read_text().split()
    return [str(Path(PYTHON).with_name("exa")), "-m", "mine", "assets", "materialize", *names]


def loop(size: int, sleep: float, folder: Path) -> list[str]:
    """Give the loop that people write."""
    submit = (
        f'sbatch --wait --output=/dev/null --chdir="{folder}" --wrap "sleep {sleep}" >/dev/null'
    )
    return ["/bin/sh", "-c", f"for n in $(seq {size}); do {submit} & done; wait"]


def delays(home: Path) -> list[float]:
    """Give for each job the seconds from its exit file to the end of its build in the ledger."""
    with sqlite3.connect(home / "platform.db") as database:
        rows = database.execute(
            "SELECT j.folder, b.ended_at FROM hpc_jobs j JOIN builds b ON b.build_id = j.build_id"
        ).fetchall()
    # the exit file itself states whole seconds
    return sorted(ended - (Path(job) / "exit.json").stat().st_mtime for job, ended in rows)


def most_waiting(home: Path) -> int:
    """Give how many jobs were submitted and not ended at one time."""
    with sqlite3.connect(home / "platform.db") as database:
        rows = database.execute("SELECT submitted_at, ended_at FROM hpc_jobs").fetchall()
    edges = sorted([(begin, 1) for begin, _ in rows] + [(end, -1) for _, end in rows])
    waiting = most = 0
    for _, step in edges:
        waiting += step
        most = max(most, waiting)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--sleep", type=float, default=5.0, help="seconds of each job")
    parser.add_argument("--few", type=int, default=20, help="jobs of which the delay is measured")
    parser.add_argument("--slots", type=int, default=100, help="jobs that the mock runs at once")
    given = parser.parse_args()
    on_slurm = os.environ.get("EXAMLOPS_TEST_SLURM") == "1" and bool(os.environ.get("SLURM_CONF"))
    scheduler = "slurm" if on_slurm else "mock"
    with scratch() as folder:
        rows: list[tuple[object, ...]] = []
        home = ours(folder, "many", scheduler, given.size, given.sleep, given.slots)
        environment_ = variables(home, scheduler, given.slots)
        many = measure(exa(home), home, environment_)
        intervals = many.seconds / POLL_SECONDS
        rows += [
            ("most jobs waited for at once", most_waiting(home), ""),
            ("time", many.seconds, ""),
            ("peak memory of all its processes", f"{many.peak_bytes / MEGABYTE:.0f} MB", "600 MB"),
            (
                "status commands an interval of 5 s",
                f"{many.asked / intervals:.2f}" if on_slurm else "none: the mock is free to ask",
                "1",
            ),
        ]
        if on_slurm:
            theirs = measure(loop(given.size, given.sleep, folder), home, environment_)
            rows += [
                ("loop of sbatch --wait: time", theirs.seconds, ""),
                ("of that loop", f"{many.seconds / theirs.seconds:.2f}", "1"),
            ]
        few = ours(folder, "few", scheduler, given.few, given.sleep, given.slots)
        measure(exa(few), few, variables(few, scheduler, given.slots))
        found = delays(few)
        rows += [
            (
                f"end of a job to its version, {given.few} jobs, median",
                statistics.median(found),
                "1 s",
            ),
            ("the longest", found[-1], ""),
            (
                "the same, all of the jobs above, median",
                seconds(statistics.median(delays(home))),
                "",
            ),
        ]
    show(
        f"{given.size} jobs of {given.sleep:g} s on {scheduler}",
        ("what", "measured", "target"),
        rows,
    )


if __name__ == "__main__":
    main()
