import os

import pytest
from fluxes import FakeFlux, has_real_flux, run_flux
from scheduler_kit import FAKES, FakeSlurm, Work
from slurms import need_slurm

from examlops_dagster.schedulers.flux import FluxScheduler
from examlops_dagster.schedulers.mock import MockScheduler
from examlops_dagster.schedulers.slurm import SlurmScheduler


@pytest.fixture
def work(tmp_path):
    root = tmp_path / "jobs"
    root.mkdir()
    return Work(root)


@pytest.fixture
def real_slurm():
    need_slurm()
    found = RememberingSlurm()
    yield found
    if found.jobs:
        found.cancel(found.jobs)


class Remembering:
    """Knows what it submitted: other tests use the same cluster at the same time."""

    def __init__(self):
        super().__init__()
        self.jobs = []

    def submit(self, submission):
        found = super().submit(submission)
        self.jobs.extend(found)
        return found


class RememberingSlurm(Remembering, SlurmScheduler):
    pass


class RememberingFlux(Remembering, FluxScheduler):
    pass


@pytest.fixture
def flux(request):
    """A Flux: the real one where there is one, else the fake."""
    if not has_real_flux():
        request.getfixturevalue("fake_instance")
    found = RememberingFlux()
    yield found
    found.cancel(found.jobs)


@pytest.fixture
def fake_flux(fake_instance):
    return FluxScheduler()


@pytest.fixture(params=["fake", *(["real"] if has_real_flux() else [])])
def flux_command(request):
    """Run `flux`: the fake, and a real one too where there is one."""
    if request.param == "fake":
        request.getfixturevalue("fake_instance")
    return run_flux


@pytest.fixture
def fake_instance(tmp_path, monkeypatch):
    found = FakeFlux(tmp_path / "flux", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def mock(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    return MockScheduler()


@pytest.fixture(params=["mock", "real_slurm", "flux"])
def scheduler(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def slurm_plays(tmp_path, monkeypatch):
    path = tmp_path / "scenario.json"
    monkeypatch.setenv("FAKE_SLURM", str(path))
    monkeypatch.setenv("PATH", f"{FAKES / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    return FakeSlurm(path)
