"""The contract of the seam, over every orchestrator that we have, and over those of others."""

import os
import subprocess
import sys

import pytest
from fluxes import FakeFlux, has_real_flux
from job_requests import IMPATIENT, MemoryJobs
from slurms import need_slurm

from examlops_dagster.core.seams import AssetOrchestrator
from examlops_dagster.errors import AssetBuildError, LaunchError
from examlops_dagster.orchestrators import contract
from examlops_dagster.orchestrators.contract import OrchestratorContract
from examlops_dagster.orchestrators.examlops import AssetDef, ExamlopsAdapter, adapted
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.prefect import PrefectOrchestrator
from examlops_dagster.orchestrators.registry import GROUP, known_orchestrators, make
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


def jobs(folder, **variables):
    environment = {
        **os.environ,
        "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
        "EXAMLOPS_HPC_WORKDIR": str(folder / "spool"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_RUNTIME_DIR": "",
        **variables,
    }
    return SchedulerOrchestrator(MemoryJobs(), environment=environment, patience=IMPATIENT)


class TestLocal(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self):
        with LocalOrchestrator(grace_seconds=0.3) as orchestrator:
            yield orchestrator


class TestLocalInThisProcess(OrchestratorContract):
    keeps_limits = False

    @pytest.fixture
    def orchestrator(self):
        return LocalOrchestrator(in_process=True)


class TestMock(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self, tmp_path_factory):
        return jobs(tmp_path_factory.mktemp("mock"), EXAMLOPS_HPC_SCHEDULER="mock")


class TestFlux(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self, tmp_path_factory, monkeypatch):
        folder = tmp_path_factory.mktemp("flux")
        fake = None if has_real_flux() else FakeFlux(folder / "instance", monkeypatch)
        yield jobs(folder, EXAMLOPS_HPC_SCHEDULER="flux")
        if fake is not None:
            fake.close()


class TestSlurm(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self, tmp_path_factory):
        need_slurm()
        return jobs(tmp_path_factory.mktemp("slurm"), EXAMLOPS_HPC_SCHEDULER="slurm")


class TestPrefect(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self, prefect_server):
        orchestrator = PrefectOrchestrator({"PREFECT_API_URL": prefect_server.url})
        yield orchestrator
        orchestrator.close()


class OfExamlops:
    """An orchestrator as ExaMLOps has it."""

    name = "theirs"

    def __init__(self):
        self.seen = []

    def run(self, definition, upstream):
        self.seen.append((definition, upstream))
        definition.fn(**upstream)
        return {"orchestrator": "theirs", "number": 7}


class TestOfExamlops(OrchestratorContract):
    keeps_limits = False
    keeps_values = False

    @pytest.fixture
    def orchestrator(self):
        return adapted(OfExamlops())


def test_one_of_examlops_gets_what_it_knows():
    theirs = OfExamlops()
    orchestrator = adapted(theirs)
    assert isinstance(orchestrator, ExamlopsAdapter)
    assert isinstance(orchestrator, AssetOrchestrator)
    request = OrchestratorContract().request(contract.gives_back)
    result = orchestrator.run(request)
    assert result.provenance == {"orchestrator": "theirs", "number": "7"}
    [(definition, upstream)] = theirs.seen
    assert definition == AssetDef(
        "contract/numbers", "dataset", ["PM100"], contract.gives_back, None, {}
    )
    assert definition.fn is contract.gives_back  # a job finds it by its name
    assert upstream == {"PM100": 3}


def test_one_of_examlops_refuses_what_it_cannot_pass():
    request = OrchestratorContract().request(contract.gives_back, {"PM100": 3, "rows": [1]})
    with pytest.raises(AssetBuildError, match="passes versions of deps alone, not rows"):
        adapted(OfExamlops()).run(request)


@pytest.mark.parametrize("thing", [object(), type("Named", (), {"name": "x"})()])
def test_what_is_no_orchestrator_is_refused(thing):
    with pytest.raises(LaunchError, match="is no orchestrator"):
        adapted(thing)


def test_an_installed_package_registers_its_orchestrator(tmp_path, monkeypatch):
    (tmp_path / "others.py").write_text(
        "class Theirs:\n"
        "    name = 'theirs'\n"
        "    def run(self, definition, upstream):\n"
        "        definition.fn(**upstream)\n"
        "        return {}\n"
    )
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ntheirs = others:Theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "theirs" in known_orchestrators()
    result = make("theirs").run(OrchestratorContract().request(contract.gives_nothing))
    assert result.provenance == {"orchestrator": "theirs"}


def test_the_contract_can_be_imported_without_pytest():
    program = (
        "import sys; import examlops_dagster.orchestrators.contract; "
        "print({'pytest', 'prefect', 'dagster'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "set()\n"


class Careless:
    """Calls what it should not, and forgets what it should give back."""

    name = "careless"

    def run(self, request):
        from examlops_dagster.core.seams import BuildResult

        if request.declaration.function is not None:
            for _ in range(2):
                try:
                    request.declaration.function(**request.arguments)
                except ValueError:
                    continue
        return BuildResult(provenance={"orchestrator": "local"})


@pytest.mark.parametrize(
    "name", [name for name in vars(OrchestratorContract) if name.startswith("test_")]
)
def test_the_contract_finds_an_orchestrator_that_breaks_it(name, tmp_path, monkeypatch):
    if name == "test_it_is_an_orchestrator":
        Careless.name = "Careless "
    monkeypatch.setattr(contract.time, "sleep", lambda _: None)
    arguments = [tmp_path] if "call" in name or "failure" in name else []
    with pytest.raises(AssertionError):
        getattr(OrchestratorContract(), name)(Careless(), *arguments)
