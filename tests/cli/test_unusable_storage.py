"""Dagster's storage that cannot be opened: a message with the file that says where it is."""

import pytest

MODULE = """\
from examlops_dagster import asset


@asset(timeout_seconds=None)
def model():
    return 1
"""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("storage: [a\n", "expected ',' or ']'"),
        ("storge: 1\n", 'unexpected config entry "storge"'),
        (
            "storage:\n  sqlite:\n    base_dir:\n      env: NO_SUCH_VARIABLE\n",
            "NO_SUCH_VARIABLE",
        ),
    ],
)
def test_settings_that_dagster_refuses_are_told(exa, settings, told):
    exa.write("pipeline.py", MODULE)
    exa("init")
    exa.write("dagster.yaml", settings)
    done = exa("-m", "pipeline", "assets", "materialize", "model", code=1)
    assert (
        f"cannot open Dagster's storage ({exa.folder / 'dagster.yaml'} says where it is)"
        in done.err
    )
    assert told in done.err
    assert done.is_quiet
    assert done.out == ""


def test_a_storage_that_is_no_database_is_told(exa):
    exa.write("pipeline.py", MODULE)
    exa("-m", "pipeline", "assets", "materialize", "model")
    for path in exa.folder.glob("history/**/*.db"):
        path.write_text("this is no database at all, and longer than a header\n" * 9)
    for words in (("status",), ("materialize", "model", "--force")):
        done = exa("-m", "pipeline", "assets", *words, code=1)
        assert "cannot open Dagster's storage" in done.err
        assert "file is not a database" in done.err
        assert done.is_quiet
