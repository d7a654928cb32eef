import importlib
import sys
import textwrap

import pytest
from worlds import World, built, source


@pytest.fixture
def world(clock):
    """PM100 -> features -> model, and a branch beside them."""
    return World(
        clock,
        source("PM100"),
        built("features", "PM100"),
        built("model", "features"),
        built("beside", "PM100"),
    )


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of the user, and import it."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(text, name="users_pipeline"):
        path = tmp_path / f"{name}.py"
        head = "from examlops_dagster import asset, sensor, sink, task, Dataset, DatasetAlias\n"
        path.write_text(head + textwrap.dedent(text))
        importlib.invalidate_caches()
        written.append(name)
        return importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)
