"""What the benchmarks share: graphs, modules that declare them, scratch homes, runs in turn."""

from __future__ import annotations

import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Graph = Mapping[str, Sequence[str]]
"""Names to upstreams, upstreams first."""

PYTHON = sys.executable
INSTANCE = "telemetry:\n  enabled: false\n"


def layers(size: int, wide: int = 10) -> Graph:
    """Layers of ``wide`` assets with two upstreams each."""
    found = {}
    for n in range(size):
        layer, place = divmod(n, wide)
        above = [(layer - 1) * wide + p % wide for p in (place, place + 1)]
        found[f"a{n}"] = [f"a{number}" for number in above] if layer else []
    return found


def groups(size: int, long: int = 10) -> Graph:
    """Chains of ``long`` assets that have nothing to do with each other."""
    return {f"a{n}": [f"a{n - 1}"] if n % long else [] for n in range(size)}


def wide(size: int) -> Graph:
    """Assets without any edge."""
    return {f"a{n}": [] for n in range(size)}


def chain(size: int) -> Graph:
    """One chain."""
    return groups(size, size)


def ours(graph: Graph, changed: str = "") -> str:
    """Write the graph as a module of ours; ``changed`` is one whose code differs."""
    lines = ["from examlops_dagster import asset\n"]
    for name, upstreams in graph.items():
        inputs = ", ".join(f'"{u}": "{u}"' for u in upstreams)
        lines.append(f"@asset(inputs={{{inputs}}})" if upstreams else "@asset")
        lines.append(_function(name, upstreams, name == changed))
    return "\n".join(lines)


def plain(graph: Graph, changed: str = "") -> str:
    """Write the graph in plain Dagster; its code versions are what its resolver needs."""
    lines = ["import dagster as dg\n"]
    for name, upstreams in graph.items():
        lines.append(f'@dg.asset(code_version="{1 + (name == changed)}")')
        lines.append(_function(name, upstreams, name == changed))
    lines.append("defs = dg.Definitions(")
    lines.append(f"    assets=[{', '.join(graph)}], executor=dg.in_process_executor\n)\n")
    return "\n".join(lines)


def barca(graph: Graph, changed: str = "") -> str:
    """Write the graph for barca."""
    lines = ["from barca import asset\n"]
    for name, upstreams in graph.items():
        inputs = ", ".join(f'"{u}": {u}' for u in upstreams)
        lines.append(f"@asset(inputs={{{inputs}}})" if upstreams else "@asset()")
        lines.append(_function(name, upstreams, name == changed))
    return "\n".join(lines)


def _function(name: str, upstreams: Sequence[str], changed: bool) -> str:
    first = 2 if changed else 1
    value = " + ".join([*(f"{u}['v']" for u in upstreams), str(first)])
    return f"def {name}({', '.join(upstreams)}):\n    return {{'v': {value}}}\n\n"


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder, and take it away at the end; nothing of the user's is read or written."""
    with tempfile.TemporaryDirectory(prefix="exa-bench-") as folder:
        yield Path(folder)


def home_in(folder: Path, name: str, modules: Mapping[str, str]) -> Path:
    """Make a home with modules in it."""
    home = folder / name
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    for module, text in modules.items():
        path = home / f"{module}.py"
        path.write_text(text)
        # a file of the last seconds is not cached by anybody who goes by its time
        os.utime(path, (time.time() - 60, time.time() - 60))
    return home


def environment(home: Path) -> dict[str, str]:
    """Give the environment of a user whose home this is, with empty caches of his own."""
    foreign = ("EXAMLOPS_", "DAGSTER_", "PLATFORM_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {
        **kept,
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


@contextmanager
def inside(home: Path) -> Iterator[None]:
    """Be in a home, as a command in it is, with this process's own environment and modules."""
    before, here, path = dict(os.environ), Path.cwd(), list(sys.path)
    os.environ.clear()
    os.environ.update(environment(home))
    os.chdir(home)
    sys.path.insert(0, str(home))
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path


@dataclass(frozen=True)
class Took:
    """Seconds: the median on the clock, and the least of the processor (others work here too)."""

    wall: float
    cpu: float

    def __truediv__(self, other: Took) -> str:
        return f"{self.wall / other.wall:.2f} ({self.cpu / other.cpu:.2f})"

    def __str__(self) -> str:
        return f"{seconds(self.wall)} ({seconds(self.cpu)})"


def run(command: Sequence[str], home: Path) -> str:
    """Run a command in a home; its output where it succeeds."""
    done = subprocess.run(
        list(command), cwd=home, env=environment(home), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def in_turn(works: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, Took]:
    """Do each in turn, ``repeat`` times over, so that all meet the same noise."""
    walls: dict[str, list[float]] = {name: [] for name in works}
    cpus: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeat):
        for name, work in works.items():
            cpu, start = _processor(), time.perf_counter()
            work()
            walls[name].append(time.perf_counter() - start)
            cpus[name].append(_processor() - cpu)
    return {name: Took(statistics.median(walls[name]), min(cpus[name])) for name in works}


def once(work: Callable[[], object]) -> Took:
    """Do one thing once."""
    return in_turn({"": work}, 1)[""]


def _processor() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a small table; of a time and of a ratio, that of the processor stands in brackets."""
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    print(f"\n{title}")
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())


def _cell(value: object) -> str:
    return seconds(value) if isinstance(value, float) else str(value)


def seconds(value: float) -> str:
    """Write a time."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def fill(module: str) -> None:
    """Record every asset of a module in the home we are in as built once, without building it.

    The events carry the tags of Dagster's own that its stale-status resolver goes by, as if each
    had been written by a step of a run.
    """
    from dagster import AssetMaterialization
    from dagster._core.definitions.data_version import (
        CODE_VERSION_TAG,
        DATA_VERSION_TAG,
        get_input_data_version_tag,
        get_input_event_pointer_tag,
    )

    from examlops_dagster.core.records import Attempt, Node, Read
    from examlops_dagster.dagster_bridge.event_batches import events_in_batches
    from examlops_dagster.ledger.rows import dump_reads
    from examlops_dagster.ledger.tags import BUILD_TAG, BUILT_FROM, VERSION_TAG
    from examlops_dagster.project import open_project

    project = open_project([module], reading=False)
    log, ledger = project.event_log, project.ledger
    pointers: dict[str, int] = {}
    events: list[AssetMaterialization] = []
    for name, declaration in project.graph.declarations.items():
        upstreams = [edge.name for edge in declaration.upstreams]
        read = {Node(u): Read(1, f"data of {u}") for u in upstreams}
        code = project.code_versions.get(name, "")
        attempt = Attempt(Node(name), secrets.token_hex(16), "", code, read, "local")
        ledger.begin(attempt)
        version = ledger.allot(attempt, f"data of {name}")
        tags = {
            DATA_VERSION_TAG: f"data of {name}",
            VERSION_TAG: str(version),
            BUILD_TAG: attempt.build_id,
            CODE_VERSION_TAG: code,
        }
        for upstream in upstreams:
            key = log.key(upstream)
            tags[get_input_data_version_tag(key)] = f"data of {upstream}"
            tags[get_input_event_pointer_tag(key)] = str(pointers[upstream])
        event = AssetMaterialization(
            log.key(name),
            metadata={BUILT_FROM: dump_reads(read), "version": version},
            tags=tags,
        )
        events.append(event)
        ledger.complete(attempt, version, f"data of {name}", {})
        pointers[name] = len(pointers) + 1
    with events_in_batches(log.instance):
        for event in events:
            log.instance.report_runless_asset_event(event)
    log.sync()
    project.close()


def fill_ledger(module: str) -> None:
    """As `fill`, in platform.db alone, where nobody asks Dagster."""
    from examlops_dagster.clock import utc_now
    from examlops_dagster.core.records import Node, Read, Record
    from examlops_dagster.ledger.builds import set_head
    from examlops_dagster.project import open_project

    project = open_project([module], reading=False)
    declarations, codes = project.graph.declarations, project.code_versions
    with project.database.write() as connection:
        for name, declaration in declarations.items():
            read = {Node(e.name): Read(1, f"data of {e.name}") for e in declaration.upstreams}
            code = codes.get(name, "")
            record = Record(
                1, f"data of {name}", code, read, utc_now(), secrets.token_hex(16), "run"
            )
            set_head(connection, Node(name), record)
    project.close()
