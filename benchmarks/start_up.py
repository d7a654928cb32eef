"""Start-up: whole processes of `exa` over 1,000 assets, beside `python -c "import dagster"`.

Nobody else has written, so none of them imports dagster.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path

from _common import PYTHON, fill, home_in, in_turn, inside, layers, ours, run, scratch, show

IMPORT = "import dagster"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    chosen = parser.parse_args()
    last = f"a{chosen.size - 1}"
    exa = [str(Path(PYTHON).with_name("exa"))]
    assets = [*exa, "-m", "assets_of_mine", "assets"]
    commands = {
        "python -c 'import dagster'": [PYTHON, "-c", IMPORT],
        "python -c 'import typer'": [PYTHON, "-c", "import typer"],
        "exa --help": [*exa, "--help"],
        "exa assets declare": [*exa, "assets", "declare", "PM100"],
        "exa assets graph": [*assets, "graph"],
        "exa assets status": [*assets, "status"],
        "exa assets plan": [*assets, "plan"],
        "exa assets history NAME": [*assets, "history", last],
        "exa assets materialize NAME (fresh)": [*assets, "materialize", last],
    }
    with scratch() as folder:
        home = home_in(folder, "home", {"assets_of_mine": ours(layers(chosen.size))})
        with inside(home):
            fill("assets_of_mine")
        bare = home_in(folder, "bare", {})
        run(commands["exa assets declare"], bare)
        homes = {"exa assets declare": bare}
        works = {name: partial(run, c, homes.get(name, home)) for name, c in commands.items()}
        _no_dagster(commands, homes, home)
        took = in_turn(works, chosen.repeat)
        shutil.rmtree(home)
    whole = took["python -c 'import dagster'"]
    show(
        f"Whole processes, {chosen.size} assets",
        ("command", "time", "of import dagster"),
        [(name, each, each / whole) for name, each in took.items()],
    )


def _no_dagster(commands: dict[str, list[str]], homes: dict[str, Path], home: Path) -> None:
    """Make sure that what is measured is what is claimed."""
    for name, command in commands.items():
        if command[0] == PYTHON:
            continue
        imported = run([PYTHON, "-X", "importtime", *command], homes.get(name, home))
        if any(line.split("|")[-1].strip() == "dagster" for line in imported.splitlines()):
            sys.exit(f"{name} imports dagster")


if __name__ == "__main__":
    main()
