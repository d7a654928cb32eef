"""A run whose process was killed together with the code server that would have seen its end."""

import pytest
from dagster import DagsterRunStatus
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._grpc.client import DagsterGrpcClient
from processes import Site

pytestmark = pytest.mark.slow

DEFS = """\
import sys
import time
from pathlib import Path

import dagster

from examlops_dagster import asset, build_definitions

HERE = Path(__file__).parent


@dagster.asset
def theirs():
    (HERE / "calls").write_text("theirs")
    while not (HERE / "release").exists():
        time.sleep(0.1)


@asset(deps=[theirs], timeout_seconds=None)
def ours(**upstream):
    return 1


defs = build_definitions(
    [sys.modules[__name__]],
    into=dagster.Definitions([theirs], executor=dagster.in_process_executor),
    automation="off",
)
"""


@pytest.fixture
def site(tmp_path, monkeypatch, template):
    found = Site(tmp_path / "site", monkeypatch, DEFS, template)
    found.start_code_server()
    yield found
    found.close()


def launch(site):
    """Let the code server start the process of a run, as Dagster's default launcher does."""
    module = site.home.module(name="defs", text=DEFS)
    job = module.defs.get_repository_def().get_implicit_global_asset_job_def()
    origin = RemoteRepositoryOrigin(
        GrpcServerCodeLocationOrigin("127.0.0.1", site.code_port, location_name="site"),
        "__repository__",
    )
    run = site.home.instance.create_run_for_job(
        job_def=job,
        status=DagsterRunStatus.STARTING,
        remote_job_origin=RemoteJobOrigin(origin, job.name),
    )
    client = DagsterGrpcClient(port=site.code_port, host="127.0.0.1")
    DefaultRunLauncher.launch_run_from_grpc_client(site.home.instance, run, client)
    return module, run


def test_it_counts_as_running_no_longer(site, caplog):
    module, run = launch(site)
    site.until(lambda: site.calls() == ["theirs"], "the step of plain Dagster")
    assert site.home.states(module)["ours"] == "running"
    site.kill("code")
    assert site.home.instance.get_run_by_id(run.run_id).status is DagsterRunStatus.STARTED
    assert site.home.states(module)["ours"] != "running"
    assert f"run {run.run_id} is still open in Dagster" in caplog.text
    caplog.clear()
    site.home.states(module)
    assert caplog.text == ""  # it was told
    site.start_code_server()
    assert site.home.states(module)["ours"] != "running"
