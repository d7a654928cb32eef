"""Definitions of 2,000 assets: `build_definitions` beside the same assets in plain Dagster.

Timed in a process that has imported dagster: the import of the module (and, for ours, of the
package), the definitions and `get_repository_def`. Ours with an empty cache of fingerprints, and
with that of the process before.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from pathlib import Path

from _common import PYTHON, Took, home_in, layers, ours, plain, run, scratch, show

CHILD = """
import sys, time
import dagster
wall, cpu = time.perf_counter(), time.process_time()
if sys.argv[1] == "plain":
    import plain
    defs = plain.defs
else:
    from examlops_dagster import build_definitions
    defs = build_definitions("ours")
assert len(defs.get_repository_def().asset_graph.get_all_asset_keys()) == int(sys.argv[2])
print("took", time.perf_counter() - wall, time.process_time() - cpu)
"""


def load(home: Path, which: str, size: int) -> tuple[float, float]:
    last = run([PYTHON, "-W", "ignore", "-c", CHILD, which, str(size)], home).splitlines()[-1]
    _, wall, cpu = last.split()
    return float(wall), float(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    graph, size = layers(chosen.size), chosen.size
    names = ("plain", "cold", "warm")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with scratch() as folder:
        home = home_in(folder, "home", {"ours": ours(graph), "plain": plain(graph)})
        load(home, "plain", size), load(home, "ours", size)  # compiles the modules
        for _ in range(chosen.repeat):
            found["plain"].append(load(home, "plain", size))
            shutil.rmtree(home / "cache")
            found["cold"].append(load(home, "ours", size))
            found["warm"].append(load(home, "ours", size))
    took = {
        name: Took(statistics.median(w for w, _ in each), min(c for _, c in each))
        for name, each in found.items()
    }
    show(
        f"Definitions of {size} assets in layers",
        ("", "time", "ratio"),
        [
            ("plain Dagster", took["plain"], ""),
            ("ours, empty cache", took["cold"], took["cold"] / took["plain"]),
            ("ours", took["warm"], took["warm"] / took["plain"]),
        ],
    )


if __name__ == "__main__":
    main()
