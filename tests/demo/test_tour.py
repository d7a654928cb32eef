import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import library

library("sklearn")
library("pyarrow")

REPOSITORY = Path(__file__).parents[2]


def tour(home):
    """Run the tour as ``make demo`` does, and give what each of its commands printed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAGSTER", "EXAMLOPS", "PLATFORM_DB", "COV_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "examlops_dagster.demo"],
        cwd=home,
        env={
            **environment,
            "DAGSTER_HOME": str(home),
            "EXAMLOPS_DEMO_DATA": str(home / "data"),
            "XDG_CACHE_HOME": str(home / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    steps = re.split(r"^\$ (.*)$", done.stdout, flags=re.MULTILINE)[1:]
    return list(zip(steps[::2], steps[1::2], strict=True))


def rebuilt(steps):
    return [
        re.findall(r"rebuilt (.*)|unchanged \(not rebuilt\): (.*)", printed)
        for command, printed in steps
        if command == "exa assets materialize digits_report"
    ]


@pytest.mark.slow
def test_the_tour_rebuilds_only_what_is_stale_and_can_be_repeated(tmp_path):
    home = tmp_path / "a home"
    home.mkdir()
    (home / "dagster.yaml").write_bytes((REPOSITORY / "dagster.yaml").read_bytes())
    stale_slice = ("digits_features, digits_model, digits_report", "")
    no_change = [("digits_features", ""), ("", "digits_model, digits_report")]

    first, changed, same = rebuilt(tour(home))
    names = set(first[0][0].split(", "))
    assert names == {
        "digits", "holdout", "digits_features", "holdout_features", "digits_model", "digits_report",
    }  # fmt: skip
    assert changed == [stale_slice]
    assert same == no_change

    assert rebuilt(tour(home)) == [[stale_slice], [stale_slice], no_change]
