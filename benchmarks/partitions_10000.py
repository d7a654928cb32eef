"""One trivial partitioned asset: built cold, with nothing to do, and with one key more.

Whole processes of `exa assets materialize`; barca on the same function where it is found (--barca
PATH, or `barca` on PATH); and plain Dagster as one run over the range, of a few keys, from which
the whole is extrapolated. `exa` with one key never built tells what starting a run costs.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _common import PYTHON, Took, home_in, in_turn, once, run, scratch, show

OURS = """
from examlops_dagster import asset, partitions

@asset(partitions={"key": partitions([f"k{n}" for n in range(SIZE)])})
def parts(key):
    return {"v": 1}
"""

BARCA = OURS.replace("examlops_dagster", "barca")

PLAIN = """
import sys
import dagster as dg

keys = dg.StaticPartitionsDefinition([f"k{n}" for n in range(SIZE)])

class Nowhere(dg.IOManager):
    def handle_output(self, context, value):
        pass

    def load_input(self, context):
        raise NotImplementedError

@dg.asset(partitions_def=keys, backfill_policy=dg.BackfillPolicy.single_run())
def parts(context):
    return {key: {"v": 1} for key in context.partition_keys}

if __name__ == "__main__":
    tags = {
        "dagster/asset_partition_range_start": "k0",
        "dagster/asset_partition_range_end": keys.get_last_partition_key(),
    }
    with dg.DagsterInstance.get() as instance:
        dg.materialize([parts], instance=instance, tags=tags, resources={"io_manager": Nowhere()})
"""

REPEAT = 3


def measured(
    write: Callable[[int], object], build: Callable[[], object], size: int
) -> dict[str, Took]:
    """Build it cold, again, and again with one key more."""
    write(size)
    cold = once(build)
    nothing = in_turn({"": build}, REPEAT)[""]
    more: list[Took] = []
    for number in range(REPEAT):
        write(size + number + 1)
        more.append(once(build))
    one = Took(sorted(took.wall for took in more)[REPEAT // 2], min(took.cpu for took in more))
    return {"cold": cold, "nothing to do": nothing, "one key more": one}


def module(home: Path, text: str, size: int) -> None:
    (home / "mine.py").write_text(text.replace("SIZE", str(size)))


def exa(folder: Path, size: int) -> dict[str, Took]:
    home = home_in(folder, f"exa-{size}", {})
    command = [str(Path(PYTHON).with_name("exa")), "-m", "mine", "assets", "materialize", "parts"]
    return measured(partial(module, home, OURS), partial(run, command, home), size)


def with_barca(folder: Path, size: int, path: str) -> dict[str, Took]:
    home = folder / f"barca-{size}"
    home.mkdir()
    return measured(partial(module, home, BARCA), partial(run, [path, "get", "parts"], home), size)


def dagster(folder: Path, size: int) -> Took:
    home = home_in(folder, f"plain-{size}", {"mine": PLAIN.replace("SIZE", str(size))})
    return once(partial(run, [PYTHON, "-W", "ignore", "mine.py"], home))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--few", type=int, default=100, help="keys that plain Dagster builds")
    parser.add_argument("--barca", default=shutil.which("barca"))
    given = parser.parse_args()
    with scratch() as folder:
        start = exa(folder, 1)
        mine = exa(folder, given.size)
        theirs = with_barca(folder, given.size, given.barca) if given.barca else {}
        one, few = dagster(folder, 1), dagster(folder, given.few)
    scale = (given.size - 1) / (given.few - 1)
    whole = Took(one.wall + (few.wall - one.wall) * scale, one.cpu + (few.cpu - one.cpu) * scale)
    beyond = [
        (f"exa, {what}", took, "1", _beyond(took, start[what], given.size, what))
        for what, took in mine.items()
    ]
    rows = [
        *beyond,
        *((f"barca, {what}", took, took / mine[what], "") for what, took in theirs.items()),
        (f"dagster, cold, extrapolated from {given.few} keys", whole, whole / mine["cold"], ""),
    ]
    head = ("whole process", "time", "against exa", "beyond the same with one key")
    show(f"one trivial asset of {given.size} partitions", head, rows)
    if not given.barca:
        print("  barca was not found: pip install barca (Python 3.12 or later), then --barca PATH")


def _beyond(took: Took, start: Took, size: int, what: str) -> str:
    more = Took(max(took.wall - start.wall, 0), max(took.cpu - start.cpu, 0))
    each = Took(more.wall / size, more.cpu / size)
    cold = f", {each.wall * 1000:.2f} ({each.cpu * 1000:.2f}) ms a key"
    return f"{more}{cold if what == 'cold' else ''}"


if __name__ == "__main__":
    main()
