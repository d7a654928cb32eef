"""What is told of builds that run elsewhere: jobs, fallbacks and flow runs."""

from datetime import datetime, timezone

import pytest
from lineages import Told, built, home_for_a_class, last, problems_of, with_schemas

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.governance.lineage_events import end_of
from examlops_dagster.governance.lineage_names import Names
from examlops_dagster.governance.lineage_rows import Facts

JOBS = """\
from examlops_dagster import asset

@asset("features", orchestrator="scheduler", resources={"time": "1m"})
def features():
    return 1

def closure():
    def hidden():
        return 2
    return hidden

model = asset("model", orchestrator="scheduler", resources={"time": "1m"})(closure())
"""


class TestJobs:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, tmp_path_factory):
        with home_for_a_class(tmp_path_factory) as home, pytest.MonkeyPatch.context() as patch:
            patch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
            patch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
            _, report = built(home, JOBS, "features", "model")
            assert report.ok
            return Told(home, "features", "model")

    def test_the_job_of_the_scheduler_is_told(self, told):
        facet = last(told, "features")["run"]["facets"]["examlops_hpcJob"]
        assert (facet["scheduler"], facet["state"]) == ("mock", "COMPLETED")
        assert facet["jobId"]
        assert (
            last(told, "features")["run"]["facets"]["examlops_build"]["orchestrator"] == "scheduler"
        )

    def test_a_fallback_is_told(self, told):
        facets = last(told, "model")["run"]["facets"]
        assert "local" in facets["examlops_build"]["fallback"]
        assert "examlops_hpcJob" not in facets

    def test_the_schemas_have_nothing_against_it(self, told):
        assert problems_of(last(told, "features")) == []

    test_the_schemas_have_nothing_against_it.pytestmark = with_schemas


def test_a_flow_run_of_prefect_is_told():
    facts = Facts(
        "b",
        Node("model"),
        BuildState.SUCCEEDED,
        "",
        {},
        "prefect",
        "",
        {"orchestrator": "prefect", "prefect_flow_run_id": "f"},
        1,
        "d",
        "",
        datetime(2026, 1, 5, tzinfo=timezone.utc),
        datetime(2026, 1, 6, tzinfo=timezone.utc),
    )
    facet = end_of(facts, Names()).run.facets["examlops_build"]
    assert (facet.orchestrator, facet.prefect_flow_run_id) == ("prefect", "f")
