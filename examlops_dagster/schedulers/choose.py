"""Which scheduler is used, and why none."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.base import Scheduler
from examlops_dagster.schedulers.commands import OF_QUERIES, Runner, run_command
from examlops_dagster.schedulers.ssh_settings import SshSettings, ssh_settings
from examlops_dagster.settings import HPC_SCHEDULER, HPC_SSH_HOST, SLURM_MODE

if TYPE_CHECKING:
    from examlops_dagster.schedulers.ssh import SshRunner

GROUP = "examlops_dagster.schedulers"
"""Entry points of this group give further schedulers: a class, or a function without arguments."""

_OWN = {
    "mock": ("examlops_dagster.schedulers.mock", "MockScheduler"),
    "slurm": ("examlops_dagster.schedulers.slurm", "SlurmScheduler"),
    "flux": ("examlops_dagster.schedulers.flux", "FluxScheduler"),
}
_LEGACY = ("mock", "slurm")
_WITH_A_RUNNER = ("slurm", "flux")
"""Whose commands can be run on another host."""

_ASKS = {"slurm": "squeue", "flux": "flux"}
"""The command by which they are asked about jobs."""


@dataclass(frozen=True)
class Choice:
    """The scheduler that is used, if any.

    Attributes
    ----------
    name
        Empty where there is none.
    reason
        Why this one, or why none.
    """

    name: str
    reason: str

    @property
    def found(self) -> bool:
        """Whether there is a scheduler."""
        return bool(self.name)


def choose_scheduler(
    environment: Mapping[str, str] | None = None, runner: Runner | None = None
) -> Choice:
    """Say which scheduler is used: the named one, else what this host has.

    Where jobs are submitted over SSH, it is what that host has.

    ``EXAMLOPS_HPC_SCHEDULER`` names it, else ``EXAMLOPS_SLURM_MODE`` (mock or slurm, as ExaMLOps
    had it). Without either: sbatch on PATH is slurm, a Flux instance that answers is flux.

    Parameters
    ----------
    environment
        By default that of this process.
    runner
        Asks Flux whether an instance is there; by default on the host of the environment.

    Raises
    ------
    UsageError
        The named one is not known; mock never is a guess. Or the transport cannot be used.
    LaunchError
        The other host cannot be reached.
    """
    environment = os.environ if environment is None else environment
    for variable, known in (
        (HPC_SCHEDULER, known_schedulers()),
        (SLURM_MODE, _LEGACY),
    ):
        said = environment.get(variable, "").strip()
        if said:
            name = said if said in known else said.lower()
            if name not in known:
                raise UsageError(f"{variable}={said}: {_unknown(said, known)}")
            return Choice(name, f"{variable} names it")
    remote = ssh_settings(environment)
    if remote is not None:
        return _choose_there(remote, runner or _runner(remote, environment))
    runner = runner or run_command
    path = environment.get("PATH")
    if shutil.which("sbatch", path=path):
        return Choice("slurm", "sbatch is on PATH")
    if not shutil.which("flux", path=path):
        return Choice("", "neither sbatch nor flux is on PATH, and EXAMLOPS_HPC_SCHEDULER is unset")
    try:
        return _flux_that_answers(runner, environment)
    except LaunchError as error:
        return Choice("", f"no Flux instance answers: {error}")


def make_scheduler(name: str, environment: Mapping[str, str] | None = None) -> Scheduler:
    """Make a scheduler by its name; one at the other end of SSH has answered then.

    Parameters
    ----------
    environment
        By default that of this process.

    Raises
    ------
    UsageError
        It is not known, or what an entry point names is no scheduler; or the transport cannot be
        used, or not with this scheduler.
    LaunchError
        The other host cannot be reached.
    """
    environment = os.environ if environment is None else environment
    remote = ssh_settings(environment)
    if remote is not None and name in known_schedulers():
        if name not in _WITH_A_RUNNER:
            raise UsageError(
                f"the scheduler {name} runs on this host only → unset {HPC_SSH_HOST} and "
                "EXAMLOPS_HPC_TRANSPORT, or use slurm or flux"
            )
        from examlops_dagster.schedulers.ssh_scheduler import SshScheduler  # noqa: PLC0415 - rare

        runner = _runner(remote, environment)
        runner.connect()
        module, attribute = _OWN[name]
        return SshScheduler(getattr(import_module(module), attribute)(runner), runner, environment)
    if name in _OWN:
        module, attribute = _OWN[name]
        made = getattr(import_module(module), attribute)()
    else:
        entry = next((entry for entry in entry_points(group=GROUP) if entry.name == name), None)
        if entry is None:
            raise UsageError(_unknown(name, known_schedulers()))
        made = entry.load()()
    if not isinstance(made, Scheduler):
        raise UsageError(f"the entry point {name!r} of {GROUP} gave no scheduler: {made!r}")
    return made


def at_hand(name: str, environment: Mapping[str, str], most_seconds: float) -> Scheduler | None:
    """Make a scheduler of ours that can be asked on this host; None where it is not here.

    Parameters
    ----------
    environment
        Of this process.
    most_seconds
        That one of its commands may take, at most.
    """
    if name not in _OWN:
        return None
    module, attribute = _OWN[name]
    if name in _WITH_A_RUNNER:
        if shutil.which(_ASKS[name], path=environment.get("PATH")) is None:
            return None
        with_a_limit: Runner = partial(run_command, most_seconds=most_seconds)
        made = getattr(import_module(module), attribute)(with_a_limit)
    else:
        made = getattr(import_module(module), attribute)(environment)
    return made if isinstance(made, Scheduler) else None


def _choose_there(remote: SshSettings, runner: Runner) -> Choice:
    here = f"on PATH of {remote.host}"
    if runner(["sh", "-c", "command -v sbatch"], extra=OF_QUERIES).code == 0:
        return Choice("slurm", f"sbatch is {here}")
    if runner(["sh", "-c", "command -v flux"], extra=OF_QUERIES).code:
        reason = f"neither sbatch nor flux is {here}, in a login shell there"
        return Choice("", f"{reason}, and EXAMLOPS_HPC_SCHEDULER is unset")
    return _flux_that_answers(runner, None)


def _flux_that_answers(runner: Runner, environment: Mapping[str, str] | None) -> Choice:
    answer = runner(["flux", "getattr", "size"], environment=environment, extra=OF_QUERIES)
    if answer.code:
        return Choice("", f"no Flux instance answers: {answer.words}")
    return Choice("flux", f"a Flux instance of {answer.stdout.strip()} brokers answers")


def _runner(remote: SshSettings, environment: Mapping[str, str]) -> SshRunner:
    from examlops_dagster.schedulers.ssh import SshRunner  # noqa: PLC0415 - rare

    return SshRunner(remote, environment)


def known_schedulers() -> tuple[str, ...]:
    """Give the names of all schedulers, those of other packages too."""
    return tuple(sorted({*_OWN, *(entry.name for entry in entry_points(group=GROUP))}))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f"no scheduler {name!r}; known: {', '.join(known)}.{hint}"
