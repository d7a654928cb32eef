"""Which scheduler is chosen, and why none."""

import importlib.metadata
import os
import sys

import pytest
from scheduler_kit import FAKES

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers import choose
from examlops_dagster.schedulers.choose import choose_scheduler, known_schedulers, make_scheduler
from examlops_dagster.schedulers.commands import Answer
from examlops_dagster.schedulers.flux import FluxScheduler
from examlops_dagster.schedulers.mock import MockScheduler
from examlops_dagster.schedulers.slurm import SlurmScheduler


@pytest.fixture
def programs(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
            (tmp_path / name).chmod(0o700)
        return {"PATH": str(tmp_path)}

    return make


def never(argv, *, environment=None, extra=None):
    raise AssertionError(argv)


def test_what_is_named_is_taken(programs):
    here = programs("sbatch", "flux")
    for name in ("mock", "slurm", "flux"):
        found = choose_scheduler({**here, "EXAMLOPS_HPC_SCHEDULER": name}, never)
        assert (found.name, found.found) == (name, True)
        assert found.reason == "EXAMLOPS_HPC_SCHEDULER names it"


def test_a_misspelt_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        choose_scheduler({"EXAMLOPS_HPC_SCHEDULER": "slrum"}, never)
    assert str(caught.value) == (
        "EXAMLOPS_HPC_SCHEDULER=slrum: no scheduler 'slrum'; known: flux, mock, slurm. "
        "Did you mean slurm?"
    )


def test_the_former_variable_counts_where_the_new_one_is_unset(programs):
    old = {**programs("sbatch"), "EXAMLOPS_SLURM_MODE": "mock"}
    assert choose_scheduler(old, never).name == "mock"
    assert choose_scheduler({**old, "EXAMLOPS_HPC_SCHEDULER": "slurm"}, never).name == "slurm"
    assert choose_scheduler({**old, "EXAMLOPS_HPC_SCHEDULER": ""}, never).name == "mock"
    with pytest.raises(UsageError, match="EXAMLOPS_SLURM_MODE=flux"):
        choose_scheduler({"EXAMLOPS_SLURM_MODE": "flux"}, never)


def test_sbatch_on_the_path_is_slurm(programs):
    assert choose_scheduler(programs("sbatch", "flux"), never).name == "slurm"


def test_a_flux_instance_that_answers_is_flux(programs):
    def runner(argv, *, environment=None, extra=None):
        assert argv == ["flux", "getattr", "size"]
        return Answer(tuple(argv), 0, "2\n", "")

    found = choose_scheduler(programs("flux"), runner)
    assert (found.name, found.reason) == ("flux", "a Flux instance of 2 brokers answers")


def test_without_any_there_is_none_and_the_reason_is_told(programs):
    def down(argv, *, environment=None, extra=None):
        return Answer(tuple(argv), 1, "", "flux: flux_open: No such file or directory\n")

    def hangs(argv, *, environment=None, extra=None):
        raise LaunchError("flux gave no answer within 30 s", transient=True)

    assert choose_scheduler(programs(), never).reason == (
        "neither sbatch nor flux is on PATH, and EXAMLOPS_HPC_SCHEDULER is unset"
    )
    here = programs("flux")
    for runner, why in ((down, "flux_open"), (hangs, "within 30 s")):
        found = choose_scheduler(here, runner)
        assert not found.found
        assert why in found.reason


def test_an_instance_is_found_through_the_real_runner(fake_flux, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "flux").symlink_to(FAKES / "flux")
    (folder / "python3").symlink_to(sys.executable)
    environment = {"PATH": str(folder), "FAKE_FLUX": os.environ["FAKE_FLUX"]}
    assert choose_scheduler(environment).name == "flux"


def test_schedulers_are_made_by_name():
    assert isinstance(make_scheduler("slurm"), SlurmScheduler)
    assert isinstance(make_scheduler("flux"), FluxScheduler)
    assert isinstance(make_scheduler("mock"), MockScheduler)
    with pytest.raises(UsageError, match="known: flux, mock, slurm"):
        make_scheduler("pbs")


def test_other_packages_add_schedulers_by_entry_points(monkeypatch):
    module = type(sys)("others")
    module.Pbs = type("Pbs", (SlurmScheduler,), {"name": "pbs"})
    module.nothing = lambda: None
    monkeypatch.setitem(sys.modules, "others", module)
    entries = [
        importlib.metadata.EntryPoint(name, f"others:{attribute}", choose.GROUP)
        for name, attribute in (("pbs", "Pbs"), ("bad", "nothing"))
    ]
    monkeypatch.setattr(choose, "entry_points", lambda *, group: entries)
    assert known_schedulers() == ("bad", "flux", "mock", "pbs", "slurm")
    assert choose_scheduler({"EXAMLOPS_HPC_SCHEDULER": "pbs"}).name == "pbs"
    assert make_scheduler("pbs").name == "pbs"
    with pytest.raises(UsageError, match="gave no scheduler"):
        make_scheduler("bad")
