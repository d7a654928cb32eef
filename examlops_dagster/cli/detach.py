"""``--detach``: a request that goes on without its terminal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from examlops_dagster.cli.common import DETACH, ExitCode, Options, emit, tell

if TYPE_CHECKING:
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.project import Project

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class _Detached:
    """The request in its process.

    Attributes
    ----------
    log, result
        Files with its stderr, and with its stdout.
    """

    process: subprocess.Popen[bytes]
    log: Path
    result: Path


def detach(chosen: Options) -> None:
    """Start this command again without the terminal, and wait for its first job, or its end.

    Raises
    ------
    typer.Exit
        With the exit code of the request, when it has ended already.
    """
    with chosen.project(writing=True, bare=True) as project:
        project.make_home()
        detached = _start(project.home.folder)
        try:
            job = _first_job(project, detached)
        except KeyboardInterrupt:
            detached.process.send_signal(signal.SIGINT)
            detached.process.wait()
            job = None
    if job is None:
        _show_end(detached)
        return
    pid, node = detached.process.pid, str(job.node)
    if chosen.as_json:
        first = {"name": node, "job_id": job.job_id, "scheduler": job.scheduler}
        emit({"detached": True, "pid": pid, "log": str(detached.log), "job": first})
        return
    typer.echo(f"Detached: process {pid} goes on")
    typer.echo(f"  {node}: job {job.job_id} on {job.scheduler}")
    typer.echo(f"  follow it: exa hpc logs {job.job_id} --follow")
    typer.echo(f"  log: {detached.log}")


def _start(home: Path) -> _Detached:
    """Start the command in a session of its own, which no terminal hangs up."""
    folder = home / "logs" / "detached"
    folder.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    stem = folder / f"{moment}-{os.getpid()}"
    log, result = stem.with_suffix(".log"), stem.with_suffix(".out")
    program = [sys.argv[0]]
    if Path(sys.argv[0]).name == "__main__.py":
        program = ["-m", "examlops_dagster.cli"]
    words = [word for word in sys.argv[1:] if word != DETACH]
    with log.open("wb") as errors, result.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *program, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    return _Detached(process, log, result)


def _first_job(project: Project, detached: _Detached) -> HpcJob | None:
    """Wait until the request has a job in the queue; None if it ends without."""
    from examlops_dagster.ledger.jobs import HpcJobs

    jobs, here = HpcJobs(project.database), (socket.gethostname(), detached.process.pid)
    while detached.process.poll() is None:
        claims = project.ledger.claims().values()
        runs = {claim.run_id for claim in claims if (claim.host, claim.pid) == here}
        found = [job for job in jobs.listed() if job.run_id in runs and job.job_id] if runs else []
        if found:
            return found[-1]
        time.sleep(_LOOK_SECONDS)
    return None


def _show_end(detached: _Detached) -> None:
    typer.echo(detached.result.read_text(encoding="utf-8", errors="replace"), nl=False)
    tell(detached.log.read_text(encoding="utf-8", errors="replace").removesuffix("\n"))
    code = detached.process.returncode
    if code != ExitCode.DONE:
        raise typer.Exit(code if code > 0 else ExitCode.FAILED)
