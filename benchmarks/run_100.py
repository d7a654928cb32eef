"""Building 100 trivial assets: `exa assets materialize` beside `dagster asset materialize`.

Whole processes, wide and as a chain; then one asset, so that the cost of a step can be told from
that of starting. Plain Dagster gets its in-process executor: with its default one, a process a
step, it takes some seconds a step.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from _common import (
    PYTHON,
    Graph,
    Took,
    chain,
    home_in,
    in_turn,
    ours,
    plain,
    run,
    scratch,
    show,
    wide,
)

EXA, IN_PROCESS, DAGSTER = "exa", "exa --in-process", "dagster"


def build(folder: Path, name: str, graph: Graph, repeat: int) -> dict[str, Took]:
    """Build a graph that was never built, in a home of its own each time."""
    exa = [str(Path(PYTHON).with_name("exa")), "-m", "mine", "assets", "materialize"]
    commands = {
        EXA: [*exa, *graph],
        IN_PROCESS: [*exa, "--in-process", *graph],
        DAGSTER: [
            str(Path(PYTHON).with_name("dagster")),
            *("asset", "materialize", "-m", "plain", "--select", "*"),
        ],
    }
    modules = {"mine": ours(graph), "plain": plain(graph)}
    number = iter(range(10_000))

    def fresh(command: list[str]) -> None:
        run(command, home_in(folder, f"{name}-{next(number)}", modules))

    return in_turn({which: partial(fresh, c) for which, c in commands.items()}, repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    with scratch() as folder:
        start = build(folder, "one", wide(1), max(given.repeat, 2))
        shapes = {
            "wide": build(folder, "wide", wide(given.size), given.repeat),
            "chain": build(folder, "chain", chain(given.size), given.repeat),
        }
    rows = [("one asset", which, took, took / start[DAGSTER], "") for which, took in start.items()]
    for shape, found in shapes.items():
        for which, took in found.items():
            step = _step(took, start[which], given.size)
            ratio = step / _step(found[DAGSTER], start[DAGSTER], given.size)
            rows.append(
                (f"{given.size} {shape}", which, took, took / found[DAGSTER], f"{step}, {ratio}")
            )
    show(
        f"{given.size} trivial assets, whole processes",
        ("graph", "command", "time", "of dagster", "a step beyond start-up, of dagster"),
        rows,
    )


def _step(took: Took, start: Took, size: int) -> Took:
    steps = max(size - 1, 1)
    return Took(max(took.wall - start.wall, 1e-6) / steps, max(took.cpu - start.cpu, 1e-6) / steps)


if __name__ == "__main__":
    main()
