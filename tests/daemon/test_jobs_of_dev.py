"""Jobs that runs of a real ``dagster dev`` wait for: Terminate ends them, a restart does not."""

import contextlib
import time

import pytest
from ports import free_port
from processes import Site
from slurms import need_slurm
from waiting import slowness

from examlops_dagster.ledger.jobs import OPEN_STATES

pytestmark = pytest.mark.slow

on_both = pytest.mark.parametrize("scheduler", ["mock", "slurm"])

DEFS = """\
import sys
from pathlib import Path

from examlops_dagster import asset, build_definitions, waiting_executor

HERE = Path(__file__).parent
SLOW = f"echo $EXAMLOPS_ASSET >> '{HERE}/calls'; while ! test -e '{HERE}/quick'; do sleep 0.2; done"


def slow(name):
    @asset(name, command=["/bin/sh", "-c", SLOW], orchestrator="scheduler", retries=2)
    def built(): ...
    return built


a, b, c = slow("a"), slow("b"), slow("c")
defs = build_definitions(sys.modules[__name__], executor=waiting_executor, automation=AUTOMATION)
"""

LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
TERMINATE = """
mutation ($runId: String!) {
  terminateRun(runId: $runId) { __typename ... on PythonError { message } }
}
"""
LOCATION = """
{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }
"""


@pytest.fixture
def site_of(tmp_path, monkeypatch, template):
    sites = []

    def make(automation, scheduler):
        if scheduler == "slurm":
            need_slurm()
        defs = DEFS.replace("AUTOMATION", repr(automation))
        sites.append(Site(tmp_path / "home", monkeypatch, defs, template))
        sites[-1].home.write(".env", f"EXAMLOPS_HPC_SCHEDULER={scheduler}\n")
        return sites[-1]

    yield make
    for site in sites:
        site.home.write("quick", "")  # no job outlives its test
        site.close()


def start_dev(site):
    port = free_port()
    site.url = f"http://127.0.0.1:{port}"
    return site.start("dev", "dagster", "dev", "-f", "defs.py", "-h", "127.0.0.1", "-p", port)


def location(site):
    with contextlib.suppress(OSError, AssertionError):
        nodes = site.graphql(LOCATION)["repositoriesOrError"]["nodes"]
        return nodes[0] if nodes else None
    return None


def launch(site, *names):
    """Press Materialize in the UI, and give the run's id."""
    found = site.until(lambda: location(site), "the code location")
    selector = {
        "repositoryName": found["name"],
        "repositoryLocationName": found["location"]["name"],
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [name]} for name in names],
    }
    data = site.graphql(LAUNCH, params={"selector": selector, "mode": "default"})
    return data["launchPipelineExecution"]["run"]["runId"]


def jobs(site):
    """Give the state of each job by id."""
    return dict(site.home.sql("SELECT job_id, state FROM hpc_jobs"))


def running(site, count):
    return list(jobs(site).values()) == ["RUNNING"] * count


def in_queue(site):
    return [state for state in jobs(site).values() if state in OPEN_STATES]


def ended(site, run_id):
    run = site.home.instance.get_run_by_id(run_id)
    return run.status.value if run.is_finished else None


def versions(site):
    rows = site.home.sql("SELECT asset, version FROM builds WHERE state = 'succeeded'")
    return dict(rows)


@on_both
def test_terminate_in_the_ui_ends_all_jobs_and_the_run_is_cancelled(site_of, scheduler):
    """Clients that forward no cancellation, monitoring that skips it (dagster#18570, #21476; B48)."""
    site = site_of("off", scheduler)
    start_dev(site)
    run_id = launch(site, "a", "b", "c")
    site.until(lambda: running(site, 3), "three jobs at once")
    terminated = time.monotonic()
    site.graphql(TERMINATE, runId=run_id)
    site.until(lambda: not in_queue(site), "the end of the jobs")
    assert time.monotonic() - terminated < 20 * slowness()
    assert set(jobs(site).values()) == {"CANCELLED"}
    status = site.until(lambda: ended(site, run_id), "the end of the run")
    assert status == "CANCELED"
    assert {b.state.value for n in "abc" for b in site.home.builds(n)} == {"cancelled"}
    time.sleep(3)
    assert len(jobs(site)) == 3  # nothing is tried again
    assert len(site.home.instance.get_runs()) == 1


@on_both
def test_jobs_go_on_over_a_restart_and_their_results_are_recorded(site_of, scheduler):
    """A reboot of the UI killed the jobs (dagster-slurm#94, executorlib#412; B46)."""
    site = site_of("conditions", scheduler)
    start_dev(site)
    site.until(lambda: running(site, 3), "the jobs that automation asks for")
    before = jobs(site)
    site.press_ctrl_c("dev")
    assert set(jobs(site).values()) == {"RUNNING"}
    assert sorted(site.calls()) == ["a", "b", "c"]
    start_dev(site)
    site.home.write("quick", "")
    site.until(lambda: versions(site) == {"a": 1, "b": 1, "c": 1}, "the results")
    assert jobs(site).keys() == before.keys()  # one job for each in total
    assert sorted(site.calls()) == ["a", "b", "c"]
    assert set(jobs(site).values()) == {"COMPLETED"}
