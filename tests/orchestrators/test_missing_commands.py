"""A scheduler that is named, and whose commands are not here."""

import job_functions as functions
import pytest
from job_requests import job_request

from examlops_dagster.errors import AssetBuildError
from examlops_dagster.schedulers.flux import FluxScheduler
from examlops_dagster.schedulers.slurm import SlurmScheduler


@pytest.mark.parametrize(("kind", "program"), [(SlurmScheduler, "sbatch"), (FluxScheduler, "flux")])
def test_nothing_was_submitted_so_no_job_stays_in_doubt(mock, tmp_path, monkeypatch, kind, program):
    monkeypatch.setenv("PATH", str(tmp_path))
    mock.environment["PATH"] = str(tmp_path)
    with pytest.raises(AssetBuildError) as caught:
        mock.another(kind()).run(job_request(functions.versions, fingerprint="f"))
    assert caught.value.reason == (
        f"{kind.name} refused the job of numbers: {program} is not on PATH here"
    )
    assert mock.jobs.only.state == "REFUSED"
