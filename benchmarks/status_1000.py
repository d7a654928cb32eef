"""Status of 1,000 assets in layers: `Project.statuses` beside Dagster's own stale-status resolver.

Ten wide, two upstreams each, on one instance and in one process. The code of one asset in the
fourth layer from below has changed, so that ten are affected. Then ours alone, up to 10,000.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from pathlib import Path

from _common import (
    Took,
    fill,
    fill_ledger,
    home_in,
    in_turn,
    inside,
    layers,
    once,
    ours,
    scratch,
    show,
)


def beside_dagster(folder: Path, size: int, repeat: int) -> None:
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    from examlops_dagster import build_definitions
    from examlops_dagster.project import open_project

    graph = layers(size)
    changed = f"a{(size // 10 - 4) * 10}"
    home = home_in(folder, "both", {"before": ours(graph), "after": ours(graph, changed)})
    with inside(home):
        filled = once(lambda: fill("before"))
        assets = build_definitions("after").get_repository_def().asset_graph
        project = open_project(["after"])
        instance = project.event_log.instance
        stale: dict[str, int] = {}

        def dagster() -> None:
            resolver = CachingStaleStatusResolver(instance, assets, LoadingContextForTest(instance))
            states = [resolver.get_status(key) for key in assets.get_all_asset_keys()]
            stale["dagster"] = sum(state is StaleStatus.STALE for state in states)

        def exa() -> None:
            opened = open_project(["after"])
            stale["exa"] = sum(bool(s.reasons) for s in opened.statuses().values())
            opened.close()

        exa()
        took = in_turn({"exa": exa}, repeat) | in_turn({"dagster": dagster}, 1)
        # after, too: the noise of this machine must not fall on one of them alone
        again = in_turn({"exa": exa}, repeat)["exa"]
        ours_ = max(took["exa"], again, key=lambda found: found.wall)
        project.close()
    show(
        f"{size} assets in layers, one changed, 10 affected (filled in {filled.wall:.0f} s)",
        ("", "time", "named as stale", "processor, an asset"),
        [
            ("Project.statuses, opened anew", ours_, stale["exa"], _each(ours_, size)),
            (
                "CachingStaleStatusResolver",
                took["dagster"],
                stale["dagster"],
                _each(took["dagster"], size),
            ),
            ("Dagster / exa", took["dagster"] / ours_, "", ""),
        ],
    )


def _each(took: Took, size: int) -> str:
    return f"{took.cpu / size * 1e6:.0f} µs"


def alone(folder: Path, sizes: list[int], repeat: int) -> None:
    """Time the whole of it (graph, code versions, records, verdicts), modules loaded before.

    Garbage is looked for as seldom as `exa` does.
    """
    from examlops_dagster.cli import ALLOCATIONS_PER_COLLECTION
    from examlops_dagster.project import open_project

    gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
    rows = []
    for size in sizes:
        home = home_in(folder, f"alone{size}", {f"layers{size}": ours(layers(size))})
        with inside(home):
            fill_ledger(f"layers{size}")
            module = importlib.import_module(f"layers{size}")

            def judge(module: object = module) -> None:
                project = open_project([module])
                found = project.statuses()
                project.close()
                if any(status.reasons for status in found.values()):
                    sys.exit("something is stale")

            judge()
            took = in_turn({"": judge}, repeat)[""]
        rows.append((size, took, _each(took, size), took.cpu / size))
    show(
        "Linear in the number of assets",
        ("assets", "time", "processor, an asset", "against the first"),
        [(n, took, each, f"{r / rows[0][3]:.2f}") for n, took, each, r in rows],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000, help="assets beside Dagster")
    parser.add_argument("--sizes", default="1000,3000,10000", help="assets for ours alone")
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    os.environ.pop("DAGSTER_HOME", None)
    with scratch() as folder:
        beside_dagster(folder, chosen.size, chosen.repeat)
        alone(folder, [int(size) for size in chosen.sizes.split(",")], chosen.repeat)


if __name__ == "__main__":
    main()
