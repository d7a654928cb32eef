"""``exa hpc``: the batch jobs of assets.

Annotations are real here, not strings: typer reads them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from examlops_dagster.cli.common import JsonOption, emit, guarded, options, table, tell

if TYPE_CHECKING:
    from examlops_dagster.cli.common import Options
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.ledger.jobs import HpcJobs
    from examlops_dagster.schedulers.base import JobRef, JobStatus, Scheduler
    from examlops_dagster.schedulers.folder import JobFolder

hpc = typer.Typer(
    help="Batch jobs of assets: list them, read their logs, cancel them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JobArgument = Annotated[
    str, typer.Argument(metavar="ID|NAME", help="Id of a job, or an asset: its latest job.")
]

_FOLLOW_SECONDS = 0.5
_STATUS_SECONDS = 5.0
_CANCEL_SECONDS = 60.0


@hpc.command("jobs")
@guarded
def jobs(
    context: typer.Context,
    asset: Annotated[str | None, typer.Option(help="Only jobs of this asset.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Newest first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that were submitted, newest first."""
    chosen = options(context, as_json=as_json)
    with _ledger() as ledger:
        rows = ledger.listed(asset=asset, limit=limit) if ledger is not None else []
    if chosen.as_json:
        emit([_as_json(row) for row in rows])
    elif rows:
        head = ("Job", "Scheduler", "Model", "State", "GPUs", "Submitted", "Reason")
        typer.echo(table(head, map(_cells, rows)))
    else:
        typer.echo("No HPC jobs tracked yet.")


@hpc.command("logs")
@guarded
def logs(
    context: typer.Context,
    name: JobArgument,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job ends.")
    ] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="Last lines of each.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Print what a job wrote: its stdout here on stdout, its stderr on stderr."""
    import sys
    from pathlib import Path

    from examlops_dagster.errors import UsageError
    from examlops_dagster.schedulers.folder import tail

    chosen = options(context, as_json=as_json)
    job = _job(name)
    if not Path(job.folder).is_dir():
        raise UsageError(f"the folder of job {job.job_id} is gone: {job.folder}")
    folder = _folder(job)
    if follow and chosen.as_json:
        raise UsageError("--follow prints what comes as it is, which is no JSON → leave one out")
    if follow:
        _follow(job, folder)
        return
    if chosen.as_json:
        texts = {p.stem: tail(p, lines) for p in (folder.stdout, folder.stderr)}
        emit({"job": job.job_id, "asset": job.node.asset, "folder": job.folder, **texts})
        return
    for path, stream in ((folder.stdout, sys.stdout), (folder.stderr, sys.stderr)):
        text = tail(path, lines)
        if text:
            print(text, file=stream)


@hpc.command("cancel")
@guarded
def cancel(context: typer.Context, name: JobArgument, as_json: JsonOption = False) -> None:
    """Cancel a job, all tasks of an array, or one of them (1234_7); and see that it is gone."""
    chosen = options(context, as_json=as_json)
    with _ledger() as ledger:
        several = ledger.meant_by(name) if ledger is not None else []
    jobs = several or [_job(name)]
    with _governed(jobs):
        if len(jobs) > 1:
            _cancel_all(chosen, [job for job in jobs if job.job_id])
        else:
            _cancel_one(chosen, jobs[0])


@contextmanager
def _governed(jobs: "list[HpcJob]") -> Iterator[None]:
    """Ask policy before jobs are cancelled, and record it."""
    from examlops_dagster.governance.decision import Action
    from examlops_dagster.governance.governor import Governor
    from examlops_dagster.home import find_home
    from examlops_dagster.store.engine import Database

    home = find_home()
    asset = jobs[0].node.asset
    database = Database(home.database)
    try:
        governor = Governor(home, database)
        governor.require(Action.CANCEL, asset, orchestrator="scheduler")
        ids = [job.job_id for job in jobs]
        with governor.recorded(Action.CANCEL, asset, jobs=ids, scheduler=jobs[0].scheduler):
            yield
    finally:
        database.close()


def _cancel_all(chosen: "Options", jobs: "list[HpcJob]") -> None:
    from pathlib import Path

    from examlops_dagster.errors import LaunchError
    from examlops_dagster.orchestrators.submitting import cancel_all
    from examlops_dagster.schedulers.base import JobState
    from examlops_dagster.schedulers.choose import make_scheduler
    from examlops_dagster.schedulers.folders import check_host
    from examlops_dagster.schedulers.tasks import ref_of

    jobs = [job for job in jobs if not JobState[job.state].final]
    name = jobs[0].model.partition(":")[2] if jobs else ""
    found = {}
    if jobs:
        scheduler = make_scheduler(jobs[0].scheduler)
        check_host(scheduler, Path(jobs[0].folder))
        found = cancel_all(scheduler, [ref_of(job) for job in jobs], _CANCEL_SECONDS)
    left = [ref for ref, status in found.items() if not status.state.final]
    if left:
        raise LaunchError(
            f"{len(left)} of {len(jobs)} tasks of {name} were cancelled, but are still there",
            transient=True,
        )
    gone = [job for job in jobs if found[ref_of(job)].state is JobState.CANCELLED]
    _record_cancelled({job.key: found[ref_of(job)] for job in gone}, gone)
    chosen.say(f"Cancelled {len(gone)} tasks", tasks=len(gone))


def _cancel_one(chosen: "Options", job: "HpcJob") -> None:
    import time

    from examlops_dagster.errors import LaunchError, UsageError
    from examlops_dagster.schedulers.base import JobState

    if not job.job_id:
        raise UsageError(f"job {job.token[:8]} of {job.node} never got an id ({job.state})")
    scheduler, ref = _at_scheduler(job)
    before = _status(scheduler, ref)
    ended = before.state if before.state.final else JobState[job.state]
    if ended.final:
        text = f"Job {job.job_id} of {job.node} had ended: {ended.word}"
        chosen.say(text, job=job.job_id, state=ended.word)
        return
    deadline = time.monotonic() + _CANCEL_SECONDS
    scheduler.cancel([ref])
    while not (status := _status(scheduler, ref)).state.final:
        if time.monotonic() > deadline:
            raise LaunchError(
                f"job {job.job_id} was cancelled, but {scheduler.name} still shows it as "
                f"{status.native or status.state.word}",
                transient=True,
            )
        time.sleep(0.2)
    if status.state is JobState.CANCELLED:
        _record_cancelled({job.key: status}, [job])
    chosen.say(f"Cancelled job {job.job_id} of {job.node}", job=job.job_id, state=status.state.word)


@hpc.command("prune")
@guarded
def prune(
    context: typer.Context,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Age of a job that ended: 30d, 12h, ...")
    ] = "30d",
    as_json: JsonOption = False,
) -> None:
    """Remove the folders of jobs that ended; their rows stay."""
    import os
    import shutil
    from datetime import datetime, timedelta, timezone
    from pathlib import Path

    from examlops_dagster.errors import UsageError
    from examlops_dagster.schedulers.folder import JobFolder
    from examlops_dagster.schedulers.folders import remove_there
    from examlops_dagster.schedulers.resources import parse_time

    chosen = options(context, as_json=as_json)
    try:
        age = timedelta(seconds=parse_time(older_than))
    except ValueError as error:
        raise UsageError(f"--older-than {older_than!r}: {error}") from error
    removed = kept = 0
    with _ledger() as ledger:
        old = ledger.ended_before(datetime.now(timezone.utc) - age) if ledger is not None else []
    for job in old:
        folder = JobFolder(Path(job.folder))
        # only what this package made: a folder named for the token, with its intent in it
        if folder.path.name == job.token and folder.intent.is_file():  # once for an array
            if not remove_there(folder.path, os.environ):
                kept += 1
                continue
            shutil.rmtree(folder.path, ignore_errors=True)
            removed += not folder.path.exists()
    if kept:
        tell(
            f"{kept} of their folders are on a host that was not reached; they are kept → set "
            "EXAMLOPS_HPC_SSH_HOST as it was, and prune again"
        )
    chosen.say(f"Removed {removed} job folder{'' if removed == 1 else 's'}", removed=removed)


@contextmanager
def _ledger() -> Iterator["HpcJobs | None"]:
    """Open the jobs of the home; None where nothing was ever built."""
    from examlops_dagster.home import find_home
    from examlops_dagster.ledger.jobs import HpcJobs
    from examlops_dagster.store.engine import Database
    from examlops_dagster.store.migrations import migrate

    database = Database(find_home().database)
    if not database.exists:
        yield None
        return
    try:
        migrate(database)
        yield HpcJobs(database)
    finally:
        database.close()


def _job(name: str) -> "HpcJob":
    from examlops_dagster.errors import UsageError

    with _ledger() as ledger:
        found = ledger.named(name) if ledger is not None else None
    if found is None:
        raise UsageError(
            f"there is no job {name!r}, nor one of an asset of that name → exa hpc jobs"
        )
    return found


def _at_scheduler(job: "HpcJob") -> "tuple[Scheduler, JobRef]":
    from pathlib import Path

    from examlops_dagster.schedulers.choose import make_scheduler
    from examlops_dagster.schedulers.folders import check_host
    from examlops_dagster.schedulers.tasks import ref_of

    scheduler = make_scheduler(job.scheduler)
    check_host(scheduler, Path(job.folder))
    return scheduler, ref_of(job)


def _folder(job: "HpcJob") -> "JobFolder":
    """Open the folder of a job; what a running one wrote on another host is brought first."""
    import os
    from pathlib import Path

    from examlops_dagster.schedulers.folder import JobFolder
    from examlops_dagster.schedulers.folders import folders_of, host_of

    path = Path(job.folder)
    folder = JobFolder(path, job.array_index)
    if host_of(path) and folder.exit(job.token) is None:
        scheduler, _ = _at_scheduler(job)
        folder = folders_of(scheduler, os.environ).at(path, job.array_index)
        folder.fetch()
    return folder


def _record_cancelled(
    statuses: "Mapping[tuple[str, int | None], JobStatus]", jobs: "list[HpcJob]"
) -> None:
    """Write down that jobs were cancelled, where nobody who waits for them did meanwhile."""
    from dataclasses import replace

    from examlops_dagster.schedulers.base import JobState

    with _ledger() as ledger:
        if ledger is None:
            return
        current = {
            job.key: job for name in {j.token for j in jobs} for job in ledger.meant_by(name)
        }
        open_jobs = [current[j.key] for j in jobs if not JobState[current[j.key].state].final]
        ledger.record_all(
            replace(
                job,
                state=statuses[job.key].state.word,
                reason="cancelled with exa hpc cancel",
                ended_at=statuses[job.key].ended_at,
            )
            for job in open_jobs
        )


def _status(scheduler: "Scheduler", ref: "JobRef") -> "JobStatus":
    from examlops_dagster.errors import LaunchError
    from examlops_dagster.schedulers.base import JobState, JobStatus

    try:
        return scheduler.poll([ref])[ref]
    except LaunchError as error:
        return JobStatus(JobState.UNKNOWN, reason=str(error))


def _follow(job: "HpcJob", folder: Any) -> None:
    """Copy the logs until the job has ended."""
    import os
    import time

    offsets = {folder.stdout: 0, folder.stderr: 0}
    targets = {folder.stdout: 1, folder.stderr: 2}
    asked, ended = 0.0, False
    scheduler, ref = _at_scheduler(job)
    while True:
        folder.refresh()
        for path, offset in offsets.items():
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    piece = file.read()
            except OSError:
                continue
            offsets[path] = offset + len(piece)
            while piece:
                piece = piece[os.write(targets[path], piece) :]
        if ended:
            return
        ended = folder.exit(job.token) is not None
        if not ended and time.monotonic() - asked > _STATUS_SECONDS:
            asked = time.monotonic()
            status = _status(scheduler, ref)
            ended = status.state.final
            if ended:
                folder.fetch()
            if not ended and status.reason:
                tell(f"[{status.state.word}: {status.reason}]")
        if not ended:
            time.sleep(_FOLLOW_SECONDS)


def _cells(job: "HpcJob") -> tuple[str, ...]:
    return (
        job.job_id or job.token[:8],
        job.scheduler,
        f"{job.model}[{job.node.partition}]" if job.node.partition else job.model,
        job.state,
        "—" if job.gpus is None else str(job.gpus),
        job.submitted_at.astimezone().isoformat(timespec="minutes")[:16].replace("T", " "),
        job.reason or "—",
    )


def _as_json(job: "HpcJob") -> dict[str, Any]:
    from dataclasses import asdict

    found = {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in asdict(job).items()}
    del found["node"]
    return {**found, "asset": job.node.asset, "partition": job.node.partition or None}
