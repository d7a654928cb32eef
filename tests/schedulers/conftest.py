import os
import shutil
import subprocess

import pytest
from scheduler_kit import FAKES, FakeSlurm, Work

from examlops_dagster.schedulers.flux import FluxScheduler
from examlops_dagster.schedulers.mock import MockScheduler
from examlops_dagster.schedulers.slurm import SlurmScheduler

HAS_SLURM = os.environ.get("EXAMLOPS_TEST_SLURM") == "1" and bool(os.environ.get("SLURM_CONF"))
HAS_FLUX = shutil.which("flux") is not None and not os.environ.get("FAKE_FLUX") and (
    subprocess.run(["flux", "getattr", "size"], capture_output=True, check=False, timeout=30)
    .returncode
    == 0
)  # fmt: skip
IN_CI = os.environ.get("CI") == "true"


@pytest.fixture
def work(tmp_path):
    root = tmp_path / "jobs"
    root.mkdir()
    return Work(root)


@pytest.fixture
def real_slurm():
    if not HAS_SLURM:
        reason = "EXAMLOPS_TEST_SLURM=1 and SLURM_CONF are not set: no Slurm to test with"
        (pytest.fail if IN_CI else pytest.skip)(reason)
    found = Remembering()
    yield found
    if found.jobs:
        found.cancel(found.jobs)


class Remembering(SlurmScheduler):
    """Knows what it submitted: other tests use the same Slurm at the same time."""

    def __init__(self):
        super().__init__()
        self.jobs = []

    def submit(self, submission):
        found = super().submit(submission)
        self.jobs.extend(found)
        return found


@pytest.fixture
def flux(tmp_path, monkeypatch):
    """A Flux: the real one where there is one, else the fake."""
    if not HAS_FLUX:
        folder = tmp_path / "flux"
        folder.mkdir()
        monkeypatch.setenv("FAKE_FLUX", str(folder))
        monkeypatch.setenv("PATH", f"{FAKES}{os.pathsep}{os.environ['PATH']}")
    yield FluxScheduler()
    if not HAS_FLUX:
        subprocess.run(["flux", "cancel", "--all"], check=False, timeout=60, capture_output=True)


@pytest.fixture
def fake_flux(flux):
    if HAS_FLUX:
        pytest.skip("plays a situation with the fake, and a real Flux is here")
    return flux


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
