"""One source of 1,000 assets changed, ten affected: what is stale, and its rebuild.

100 chains of ten; the code of the first asset of one chain was edited. Whole processes: `exa
assets status` and `exa assets materialize TARGET`; plain Dagster asked what is stale and told to
materialize what it lists, again until nothing is, and with the selection known in advance; and,
where it is found (--barca PATH, or `barca` on PATH), barca on the same graph.
"""

from __future__ import annotations

import argparse
import json
import shutil
from functools import partial
from pathlib import Path

from _common import (
    PYTHON,
    Took,
    barca,
    fill,
    groups,
    home_in,
    in_turn,
    inside,
    once,
    ours,
    plain,
    run,
    scratch,
    show,
)

MATERIALIZE_STALE = """
import json, sys
import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
import plain

assets = plain.defs.get_repository_def().asset_graph
listed = []
with dg.DagsterInstance.get() as instance:
    for _ in range(int(sys.argv[1])):
        resolver = CachingStaleStatusResolver(instance, assets, LoadingContextForTest(instance))
        keys = [
            key for key in assets.get_all_asset_keys()
            if resolver.get_status(key) is not StaleStatus.FRESH
        ]
        listed.append(len(keys))
        if not keys:
            break
        dg.materialize(plain.defs.assets, selection=dg.AssetSelection.assets(*keys), instance=instance)
print("listed", json.dumps(listed))
"""

FILL_PLAIN = """
import pathlib, pickle
import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG, DATA_VERSION_TAG, get_input_data_version_tag, get_input_event_pointer_tag,
)
import plain

pointers, values = {}, {}
with dg.DagsterInstance.get() as instance:
    storage = pathlib.Path(instance.storage_directory())
    storage.mkdir(parents=True, exist_ok=True)
    for made in plain.defs.assets:
        key, above = made.key, sorted(made.dependency_keys)
        values[key] = {"v": 1 + sum(values[other]["v"] for other in above)}
        tags = {DATA_VERSION_TAG: f"data of {key}", CODE_VERSION_TAG: "1"}
        for other in above:
            tags[get_input_data_version_tag(other)] = f"data of {other}"
            tags[get_input_event_pointer_tag(other)] = str(pointers[other])
        instance.report_runless_asset_event(dg.AssetMaterialization(key, tags=tags))
        pointers[key] = len(pointers) + 1
        (storage / key.path[0]).write_bytes(pickle.dumps(values[key]))
"""


def exa(folder: Path, size: int, source: str, target: str) -> dict[str, Took]:
    graph = groups(size)
    home = home_in(folder, "exa", {"mine": ours(graph)})
    command = [str(Path(PYTHON).with_name("exa")), "-m", "mine", "assets"]
    with inside(home):
        fill("mine")
        _keep_values(graph)
    run([*command, "status"], home)
    text = home / "mine.py"
    text.write_text(ours(graph, source))
    status = partial(run, [*command, "status", "--json"], home)
    stale = [row["name"] for row in json.loads(status()) if not row["fresh"]]
    took = in_turn({f"exa assets status: lists {len(stale)}": status}, 3)
    built = once(partial(run, [*command, "materialize", target], home))
    return took | {f"exa assets materialize {target}": built}


def _keep_values(graph: object) -> None:
    """Write what the builds that `fill` made up would have kept."""
    from dagster import DagsterInstance

    from examlops_dagster.formats import encode
    from examlops_dagster.values import FileValues

    values: dict[str, int] = {}
    store = FileValues(Path(DagsterInstance.get().storage_directory()) / "examlops")
    for name, upstreams in graph.items():
        values[name] = 1 + sum(values[upstream] for upstream in upstreams)
        store.keep([name], "", f"data of {name}", encode({"v": values[name]}, None))


def dagster(
    folder: Path, size: int, source: str, chosen: list[str], rounds: int
) -> dict[str, Took]:
    graph = groups(size)
    home = home_in(folder, "plain", {"plain": plain(graph)})
    run([PYTHON, "-W", "ignore", "-c", FILL_PLAIN], home)
    (home / "plain.py").write_text(plain(graph, source))
    copy = folder / "copy"
    shutil.copytree(home, copy)
    output: list[str] = []

    def stale() -> None:
        command = [PYTHON, "-W", "ignore", "-c", MATERIALIZE_STALE, str(rounds)]
        output.append(run(command, home))

    took = once(stale)
    listed = next(line for line in output[0].splitlines() if line.startswith("listed"))
    select = ["dagster", "asset", "materialize", "-m", "plain", "--select", ",".join(chosen)]
    known = once(partial(run, select, copy))
    return {
        f"Dagster: stale check and materialize, {listed}": took,
        "dagster asset materialize, selection known": known,
    }


def with_barca(folder: Path, size: int, source: str, target: str, path: str) -> dict[str, Took]:
    graph = groups(size)
    home = folder / "barca"
    home.mkdir()
    (home / "graph.py").write_text(barca(graph))
    run([path, "get"], home)
    (home / "graph.py").write_text(barca(graph, source))
    status = in_turn({"barca status": partial(run, [path, "status"], home)}, 3)
    return status | {f"barca get {target}": once(partial(run, [path, "get", target], home))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=12, help="at most, of plain Dagster")
    parser.add_argument("--barca", default=shutil.which("barca"))
    given = parser.parse_args()
    first = given.size // 20 * 10
    source, target = f"a{first}", f"a{first + 9}"
    affected = [f"a{first + n}" for n in range(10)]
    with scratch() as folder:
        mine = exa(folder, given.size, source, target)
        took = dict(mine)
        if given.barca:
            took |= with_barca(folder, given.size, source, target, given.barca)
        took |= dagster(folder, given.size, source, affected, given.rounds)
    whole = Took(sum(t.wall for t in mine.values()), sum(t.cpu for t in mine.values()))
    show(
        f"{given.size} assets in chains of ten, one source changed, 10 affected",
        ("whole process", "time", "against exa, both"),
        [("exa, both", whole, "1"), *((name, each, each / whole) for name, each in took.items())],
    )
    if not given.barca:
        print("  barca was not found: pip install barca (Python 3.12 or later), then --barca PATH")


if __name__ == "__main__":
    main()
