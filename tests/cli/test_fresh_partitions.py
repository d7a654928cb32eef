"""The partitions of assets that exa shows and builds, as a person selects them."""

import pytest

GRID = """\
from examlops_dagster import asset, daily, partitions

SPACE = {"site": partitions(["x", "y"]), "day": daily("2024-01-01", "2024-01-04")}


@asset(partitions=SPACE, timeout_seconds=None)
def jobs(site, day):
    return [site, day]


@asset(partitions=SPACE, inputs={"job": jobs}, timeout_seconds=None)
def report(site, day, job):
    return job
"""


@pytest.fixture(scope="module")
def grid(shared, tmp_path_factory, cache):
    exa = type(shared)(tmp_path_factory.mktemp("grid"), cache)
    exa.write("pipeline.py", GRID)
    exa.first = exa("-m", "pipeline", "assets", "materialize", "report", "--json").json
    return exa


def runs(exa):
    text = "from dagster import DagsterInstance as D; print(D.get().get_runs_count())"
    return int(exa.python(text).out)


def built(exa, *selection):
    words = ["assets", "materialize", "report", "--force", "--partition", *selection]
    return exa("-m", "pipeline", *words, "--json").json["rebuilt"]


def test_a_whole_partitioned_slice_is_one_run(grid):
    assert len(grid.first["rebuilt"]) == 12
    assert len(grid.first["runs"]) == 1
    assert runs(grid) == 1


def test_a_key_a_range_and_named_dimensions_are_chosen(grid):
    before = runs(grid)
    assert built(grid, "2024-01-02|y") == ["report[2024-01-02|y]"]
    assert built(grid, "site=x,day=2024-01-03") == ["report[2024-01-03|x]"]
    assert built(grid, "day=2024-01-01...2024-01-02,site=y") == [
        "report[2024-01-01|y]",
        "report[2024-01-02|y]",
    ]
    assert built(grid, "2024-01-01|y...2024-01-02|y") == [
        "report[2024-01-01|y]",
        "report[2024-01-02|y]",
    ]
    assert runs(grid) == before + 4


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ("2024-01-09|x", "there is no partition"),
        ("site=z", "there is no partition 'z'"),
        ("sit=x", "there is no dimension 'sit', only day, site"),
        ("2024-01-02|x...2024-01-01|x", "is empty"),
        ("2024-01-01|y...2024-01-02|x", "is empty"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(grid, selection, words):
    done = grid("-m", "pipeline", "assets", "plan", "report", "--partition", selection, code=2)
    assert words in done.err
    assert done.is_quiet


def test_status_shows_a_line_an_asset_and_all_keys_of_one(grid):
    assert "6 fresh" in grid("-m", "pipeline", "assets", "status").out
    one = grid("-m", "pipeline", "assets", "status", "report", "--partition", "site=x").out
    assert one.count("report[") == 3


def test_history_and_report_of_a_partition(grid):
    words = ["--partition", "2024-01-01|x"]
    grid("-m", "pipeline", "assets", "report", "jobs", "--data-version", "outside", *words)
    rows = grid("-m", "pipeline", "assets", "history", "jobs", *words, "--json").json
    assert [row["orchestrator"] for row in rows] == ["outside", "local"]
    rows = grid("-m", "pipeline", "assets", "plan", "report", "--json").json
    assert [(s["name"], s["partition"]) for s in rows["steps"]] == [("report", "2024-01-01|x")]
