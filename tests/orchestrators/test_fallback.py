"""Whether a build that cannot be a job is built here."""

import job_functions as functions
import pytest
from job_requests import job_request

from examlops_dagster.errors import AssetBuildError
from examlops_dagster.orchestrators.fallback import refusal
from examlops_dagster.orchestrators.prefect import PrefectOrchestrator
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


@pytest.mark.parametrize("said", ["", " ", "local", " Local "])
def test_a_build_falls_back_unless_somebody_forbids_it(said):
    assert refusal({"EXAMLOPS_ASSET_FALLBACK": said}) == ""
    assert refusal({}) == ""


@pytest.mark.parametrize("said", ["refuse", "Refuse "])
def test_a_login_node_refuses(said):
    assert refusal({"EXAMLOPS_ASSET_FALLBACK": said}) == "EXAMLOPS_ASSET_FALLBACK=refuse"


@pytest.mark.parametrize("orchestrator", [SchedulerOrchestrator, PrefectOrchestrator])
def test_a_misspelt_word_builds_nothing_here(orchestrator, tmp_path):
    environment = {"PATH": str(tmp_path), "EXAMLOPS_ASSET_FALLBACK": "refuze"}
    with pytest.raises(AssetBuildError) as caught:
        orchestrator(environment=environment).run(job_request(functions.versions))
    assert "EXAMLOPS_ASSET_FALLBACK=refuze is unknown; known: local, refuse" in caught.value.reason
