"""Resources that are asked for one build, on the mock scheduler."""

import json
from pathlib import Path

import pytest

PIPELINE = """\
from pathlib import Path

from examlops_dagster import asset


@asset(deps=["PM100"], resources={"gpus": 1})
def features(**upstream):
    return upstream["PM100"]


@asset(deps=["features"], resources={"gpus": 4, "time": "2:00:00", "slurm": {"nice": 1}})
def model(**upstream):
    if (Path(__file__).parent / "bad").exists():
        raise ValueError("no good")
    return 1
"""
AS_JOBS = {"EXAMLOPS_HPC_SCHEDULER": "mock", "EXAMLOPS_ASSET_ORCHESTRATOR": "scheduler"}


@pytest.fixture
def cluster(exa, tmp_path):
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    exa("assets", "declare", "PM100")
    return exa


def asked(cluster):
    """Give what each job asked for, the first one first."""
    rows = cluster("hpc", "jobs", "--json").json[::-1]
    return [json.loads((Path(row["folder"]) / "submit.json").read_text())["resources"]
            for row in rows]  # fmt: skip


def test_the_assets_that_are_named_ask_for_it_and_their_ancestors_do_not(cluster):
    words = ("--resources", "gpus=8,slurm.nodelist=n1,n2", "--resources", "time=30m")
    cluster("assets", "materialize", "model", *words, **AS_JOBS)
    assert asked(cluster) == [
        {"gpus": 1},
        {"gpus": 8, "time": "30m", "slurm": {"nice": 1, "nodelist": "n1,n2"}},
    ]
    assert cluster("hpc", "jobs", "--json").json[0]["gpus"] == 8
    assert set(cluster.states().values()) == {"fresh"}
    assert "already fresh" in cluster("assets", "materialize", "model", **AS_JOBS).out


def test_a_retry_asks_for_more(cluster):
    cluster.write("bad", "")
    cluster("assets", "materialize", "model", code=1, **AS_JOBS)
    (cluster.folder / "bad").unlink()
    assert cluster.states()["model"] == "failed"  # what one request asks for lifts no hold
    cluster("assets", "retry", "model", "--resources", "mem=64G", **AS_JOBS)
    assert asked(cluster)[-1] == {
        "gpus": 4, "mem": "64G", "time": "2:00:00", "slurm": {"nice": 1}
    }  # fmt: skip
    assert set(cluster.states().values()) == {"fresh"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu=4", "unknown resource 'gpu'; did you mean gpus?"),
        ("gpus=4,tme=1h", "unknown resource 'tme'; did you mean time?"),
        ("gpus", "'gpus' is not KEY=VALUE, as in --resources gpus=4"),
        ("time=90", "resource time='90': a bare number has no unit"),
        ("gpus_per_node=2", "model with these resources: resources gpus and gpus_per_node"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_built(cluster, text, told):
    done = cluster("assets", "materialize", "model", "--resources", text, code=2, **AS_JOBS)
    assert told in done.err
    assert done.is_quiet
    assert set(cluster.versions().values()) == {0}


def test_where_no_job_asks_for_anything_it_is_refused(cluster):
    done = cluster("assets", "materialize", "model", "--resources", "gpus=4", code=2)
    assert "model would be built in this process, which asks for none" in done.err
    assert "→ add --orchestrator scheduler" in done.err
    assert set(cluster.versions().values()) == {0}


def test_a_script_may_ask_for_it_too(cluster):
    cluster.python(
        """
        from datetime import timedelta

        from examlops_dagster import materialize

        more = {"time": timedelta(minutes=90), "setup": ["true"]}
        assert materialize("model", resources=more).ok
        """,
        **AS_JOBS,
    )
    assert asked(cluster)[-1] == {
        "gpus": 4, "time": "5400s", "setup": ["true"], "slurm": {"nice": 1}
    }  # fmt: skip
