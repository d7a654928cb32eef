"""Runs the external commands of all schedulers: argv in, text out, always under a time limit."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from examlops_dagster.errors import LaunchError
from examlops_dagster.settings import SLURM_CMD_TIMEOUT

DEFAULT_TIMEOUT_SECONDS = 30.0
_SETTLE_SECONDS = 2.0

_log = logging.getLogger(__name__)

_SLURM_KEPT = frozenset(
    {
        "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS",
        "SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS",
    }
)  # fmt: skip
_SLURM_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SALLOC_",
                   "SRUN_")  # fmt: skip
_FLUX_DROPPED = frozenset({"PYTHONHOME", "FLUX_KVS_NAMESPACE"})
"""PYTHONHOME ends every Python command of Flux (facts/flux.md 2.3)."""

_HOST_IS_FULL = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Why a program cannot be started that could be later; it never ran then."""

OF_QUERIES = {"LC_ALL": "C", "TZ": "UTC", "SLURM_BITSTR_LEN": "0", "FLUX_F58_FORCE_ASCII": "1"}
"""What a command that only asks gets: words in English, times in UTC, ids in ASCII, whole lists."""


@dataclass(frozen=True)
class Answer:
    """What a command said; bytes that are no UTF-8 are replaced (submitit#1712).

    Attributes
    ----------
    code
        Its exit code; below 0 for a signal.
    """

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """What it complained of, on one line."""
        text = self.stderr.strip() or self.stdout.strip()
        return " / ".join(line.strip() for line in text.splitlines() if line.strip())

    @property
    def trouble(self) -> str:
        """The command, how it ended and its complaint, for messages."""
        ended = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"
        return f"{self.argv[0]} ended with {ended}: {self.words or '(it said nothing)'}"


class Runner(Protocol):
    """Runs one command, here or on another host."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run the command and give its answer, whatever its exit code.

        Parameters
        ----------
        argv
            The program and its arguments; no shell reads them.
        environment
            Of the command, cleaned by the runner; None for that of this process.
        extra
            Variables on top.

        Raises
        ------
        LaunchError
            ``transient=True``: the time limit was reached, or this host could not start it now;
            False: it can never be started here.
        """
        ...


def run_command(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    most_seconds: float = math.inf,
) -> Answer:
    """Run a command on this host; see `Runner`.

    It runs in a session of its own, so that Ctrl-C in the terminal does not cut a submit, and
    its whole process group is ended at the limit of ``EXAMLOPS_SLURM_CMD_TIMEOUT`` seconds: site
    wrappers of sbatch are scripts with children. ``most_seconds`` may make the limit shorter.
    """
    limit = min(command_timeout(os.environ), most_seconds)
    variables = clean_environment(os.environ if environment is None else environment)
    variables.update(extra or {})
    try:
        process = subprocess.Popen(
            list(argv), env=variables, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise LaunchError(f"{argv[0]} is not on PATH here") from error
    except OSError as error:
        hint = (
            " (the environment or the arguments are too long)" if error.errno == errno.E2BIG else ""
        )
        raise LaunchError(
            f"{argv[0]} cannot be run: {error}{hint}", transient=error.errno in _HOST_IS_FULL
        ) from error
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _end(process)
        hint = "" if limit == most_seconds else " (EXAMLOPS_SLURM_CMD_TIMEOUT sets this limit)"
        raise LaunchError(
            f"{argv[0]} gave no answer within {limit:g} s{hint}", transient=True
        ) from None
    except BaseException:
        _end(process)
        raise
    return Answer(
        tuple(argv), process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group and take what is left in the pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.communicate(timeout=_SETTLE_SECONDS)
    except subprocess.TimeoutExpired:  # a child in a session of its own holds a pipe
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def command_timeout(environment: Mapping[str, str]) -> float:
    """Give the time limit of one command, in seconds; a bad value is told and not used."""
    text = environment.get(SLURM_CMD_TIMEOUT, "")
    if not text:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isfinite(found) and found > 0:
        return found
    _log.warning(
        "EXAMLOPS_SLURM_CMD_TIMEOUT=%s is not a number of seconds; %g s hold",
        text,
        DEFAULT_TIMEOUT_SECONDS,
    )
    return DEFAULT_TIMEOUT_SECONDS


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what an outer job or a user's habits would change in the commands.

    SLURM_MEM_* of an outer job end in "mutually exclusive" (snakemake#2230), SBATCH_TIMELIMIT
    changes the job, SQUEUE_FORMAT the columns (Parsl PR 2293). What names the cluster, and the
    user's account, partition and QOS, stay.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _SLURM_KEPT or not (name.startswith(_SLURM_PREFIXES) or name in _FLUX_DROPPED)
    }


def cleaning_script() -> str:
    """Give lines of bash that do on another host what `clean_environment` does here."""
    names = " ".join(f"${{!{prefix}@}}" for prefix in _SLURM_PREFIXES)
    dropped = " ".join(sorted(_FLUX_DROPPED))
    return (
        f"for name in {names}; do\n"
        f'  case $name in {"|".join(sorted(_SLURM_KEPT))}) ;; *) unset "$name" ;; esac\n'
        f"done\nunset {dropped}"
    )


def require_answer(answer: Answer) -> str:
    """Give stdout of a command that worked.

    Raises
    ------
    LaunchError
        ``transient=True``: it did not; that is no answer about a job (aiida-core#4326).
    """
    if answer.code == 0:
        return answer.stdout
    raise LaunchError(answer.trouble, transient=True)
