import importlib
import os

import pytest
from job_requests import Mock
from prefect_server import CLIENT_SETTINGS, PrefectServer

from examlops_dagster.orchestrators import submitting
from examlops_dagster.orchestrators.local import LocalOrchestrator

collect_ignore = [] if os.environ.get("EXAMLOPS_TEST_CHAOS_SEEDS") else ["test_chaos.py"]


@pytest.fixture(scope="module")
def worker():
    with LocalOrchestrator(grace_seconds=0.3) as orchestrator:
        yield orchestrator


@pytest.fixture(params=["worker", "in process"])
def local(request, worker):
    return worker if request.param == "worker" else LocalOrchestrator(in_process=True)


@pytest.fixture
def mock(tmp_path, monkeypatch):
    """Give a mock cluster of its own, on which nobody waits long to submit again."""
    monkeypatch.setattr(submitting, "SUBMIT_DELAY_SECONDS", 0.01)
    found = Mock(tmp_path)
    yield found
    found.orchestrator.close()


@pytest.fixture(scope="session")
def prefect_client(tmp_path_factory):
    """Import Prefect with a home of its own; it reads its settings once."""
    folder = tmp_path_factory.mktemp("prefect-client")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in list(os.environ):
            if name.startswith("PREFECT_"):
                monkeypatch.delenv(name)
        for name, value in CLIENT_SETTINGS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PREFECT_HOME", str(folder))
        yield importlib.import_module("prefect")


@pytest.fixture(scope="session")
def prefect_server(prefect_client, tmp_path_factory):
    server = PrefectServer(tmp_path_factory.mktemp("prefect-server"))
    try:
        yield server.wait()
    finally:
        server.kill()


@pytest.fixture
def mortal_server(prefect_server, tmp_path):
    """Give a server that a test may kill; making its tables anew would take the longest."""
    server = PrefectServer(tmp_path / "server", copy_of=prefect_server)
    try:
        yield server.wait()
    finally:
        server.kill()
