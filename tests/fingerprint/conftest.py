import sys
from pathlib import Path

import pytest
from source_reader import Reader


@pytest.fixture
def read(tmp_path: Path):
    reader = Reader(tmp_path)
    before = list(sys.path)
    yield reader
    sys.path[:] = before
    reader.forget([*reader.loaded, "fp_assets"])
