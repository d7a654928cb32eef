"""What a request may ask for, and what it is refused."""

import pytest

PIPELINE = """\
from pathlib import Path

from examlops_dagster import asset, partitions

HERE = Path(__file__).parent


def log(name):
    with (HERE / "calls").open("a") as file:
        file.write(name + "\\n")


@asset(deps=["PM100"])
def features(**upstream):
    log("features")
    return 1


@asset(deps=[features, "PM100"])
def model(**upstream):
    log("model")
    return 2


@asset(deps=["trace"])
def other(**upstream):
    log("other")


@asset(deps=[other])
def summary(**upstream):
    log("summary")


@asset(partitions={"colour": partitions(["red", "green"])})
def painted(colour):
    log(f"painted {colour}")
"""


@pytest.fixture(scope="module")
def project(shared):
    shared.write("pipeline.py", PIPELINE)
    shared.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')
    shared("assets", "declare", "PM100")
    shared("assets", "declare", "trace")
    return shared


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("model", "--no-deps"),
            "upstream features was never built → exa assets materialize features",
        ),
        (
            ("model", "--partition", "gpu"),
            "model has no partitions, so --partition gpu means nothing → for a partition of the "
            "cluster use --resources partition=",
        ),
        (("painted", "--partition", "blue"), "no partition 'blue'"),
        (
            ("model", "--orchestrator", "schedular"),
            "unknown orchestrator 'schedular'; known: local, prefect, scheduler",
        ),
        (
            ("model", "--orchestrator", "slurm"),
            "('scheduler' submits to slurm: EXAMLOPS_HPC_SCHEDULER=slurm)",
        ),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused_with_the_remedy(project, words, told):
    done = project("assets", "materialize", *words, code=2)
    assert told in done.err
    assert done.out == ""
    assert done.is_quiet
    assert project.lines("calls") == []
    assert set(project.versions().values()) == {0}


def test_no_deps_on_an_undeclared_upstream_is_refused(exa):
    exa("assets", "declare", "model", "--deps", "nobody")
    exa.write("one.py", "from examlops_dagster import asset\n\n@asset\ndef model(**up): ...\n")
    done = exa("-m", "one", "assets", "materialize", "model", "--no-deps", code=2)
    assert "exa assets declare nobody" in done.err


def test_no_deps_builds_nothing_but_the_asset_and_adopts_its_source(project):
    planned = project("assets", "plan", "other", "--no-deps", "--json").json
    assert [(s["name"], s["action"]) for s in planned["steps"]] == [
        ("trace", "adopt"),
        ("other", "build"),
    ]
    unknown = {"EXAMLOPS_ASSET_ORCHESTRATOR": "schedular"}
    done = project("assets", "materialize", "other", "--no-deps", **unknown)
    assert done.out.splitlines()[0] == "Materialized other: rebuilt trace, other"
    assert project.lines("calls") == ["other"]
    an_unknown_orchestrator_of_the_environment_is_told(project, done)

    project("assets", "source-changed", "trace")
    done = project("assets", "materialize", "summary", "--no-deps")
    assert done.out == "Materialized summary: rebuilt summary\n"
    assert project.lines("calls") == ["other", "summary"]
    assert project.states()["other"] == "runnable_stale"  # the ancestor stays as it was


def an_unknown_orchestrator_of_the_environment_is_told(project, done):
    reason = "local (EXAMLOPS_ASSET_ORCHESTRATOR='schedular' is unknown; known: local, prefect"
    assert f"other fell back to {reason}" in done.err
    assert f"  fallback: other {reason}" in done.out
    [build] = project("assets", "history", "other", "--json").json
    assert build["orchestrator"] == "local"
    assert build["provenance"]["fallback"].startswith(reason)


def test_one_partition_can_be_asked_for(project):
    first = project("assets", "materialize", "painted", "--partition", "red")
    assert first.out == "Materialized painted: rebuilt painted[red]\n"
    again = project("assets", "materialize", "painted", "--partition", "red")
    assert again.out == "painted already fresh — nothing to rebuild.\n"
    planned = project("assets", "plan", "painted", "--partition", "red", "--force").out
    assert planned.splitlines()[1:] == ["painted[red]  build   forced"]
    shown = project("assets", "status").out
    assert "1 fresh, 1 never built  green: never materialized" in shown
    assert "painted[red]" in project("assets", "status", "painted").out
    one = project("assets", "status", "painted", "--partition", "green", "--json").json
    assert [(row["partition"], row["state"]) for row in one] == [("green", "runnable_stale")]
    assert "no partition 'blue'" in (
        project("assets", "status", "painted", "--partition", "blue", code=2).err
    )
