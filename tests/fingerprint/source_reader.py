"""Sources that are written, imported and fingerprinted."""

import importlib
import itertools
import os
import sys
import textwrap
from pathlib import Path

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.declared import declarations_of
from examlops_dagster.fingerprint import Fingerprints

ASSET = "from examlops_dagster.core.decorators import asset, sink\n"


class Reader:
    """Writes modules into a new folder each time, imports them and gives their code versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = itertools.count()
        self.loaded: set[str] = set()

    def declare(self, **files: str) -> list[Declaration]:
        folder = self.folder / str(next(self.count))
        names = []
        for name, source in files.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
            names.append(name.partition("/")[0])
        self.forget(names)
        sys.path[:] = [str(folder), *(p for p in sys.path if not p.startswith(str(self.folder)))]
        importlib.invalidate_caches()
        self.loaded.update(names)
        return declarations_of(importlib.import_module("fp_assets"))

    def forget(self, names: list[str]) -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] in names:
                del sys.modules[name]

    def versions(self, **files: str) -> dict[str, str]:
        declarations = self.declare(
            **files | {"fp_assets": ASSET + textwrap.dedent(files["fp_assets"])}
        )
        fingerprints = Fingerprints()
        return {d.name: fingerprints.code_version(d) for d in declarations}

    def version(self, source: str, **files: str) -> str:
        (found,) = self.versions(fp_assets=source, **files).values()
        return found


BODY = """
    @asset("x")
    def x():
        return 1 + 2
"""
USING = """
    from fp_utils import clean
    @asset("x")
    def x(): return clean(1)
"""
UTILS = """
    FACTOR = 2
    def inner(v): return v * FACTOR
    def clean(v): return inner(v)
    def unused(v): return v
"""


def settled(path: str) -> None:
    os.utime(path, (1_600_000_000, 1_600_000_000))
