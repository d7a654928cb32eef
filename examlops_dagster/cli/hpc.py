"""``exa hpc``: the batch jobs of assets.

Annotations are real here, not strings: typer reads them.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from examlops_dagster.cli.cancelling import cancel_job, cancel_tasks, governed_cancel
from examlops_dagster.cli.common import (
    JsonOption,
    emit,
    guarded,
    options,
    table,
    tell,
)
from examlops_dagster.cli.job_logs import folder_of, follow_logs
from examlops_dagster.cli.jobs import (
    as_its_folder_says,
    give_up,
    job_named,
    jobs_ledger,
    old_jobs,
)
from examlops_dagster.cli.polled import as_the_scheduler_says
from examlops_dagster.cli.times import local_time

if TYPE_CHECKING:
    from examlops_dagster.core.jobs import HpcJob

hpc = typer.Typer(
    help="Batch jobs of assets: list them, read their logs, cancel them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JobArgument = Annotated[
    str, typer.Argument(metavar="ID|NAME", help="Id of a job, or an asset: its latest job.")
]


@hpc.command("jobs")
@guarded
def jobs(
    context: typer.Context,
    asset: Annotated[str | None, typer.Option(help="Only jobs of this asset.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Newest first.")] = 20,
    no_poll: Annotated[
        bool, typer.Option("--no-poll", help="Show what is recorded, and ask no scheduler.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that were submitted, newest first.

    A scheduler of this host is asked about those that have not ended, if nobody has within the
    last seconds.
    """
    chosen = options(context, as_json=as_json)
    with jobs_ledger() as ledger:
        rows = ledger.listed(asset=asset, limit=limit) if ledger is not None else []
    rows = [as_its_folder_says(row) for row in rows]
    if not no_poll:
        rows = as_the_scheduler_says(rows)
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
    """Print what a job wrote.

    Its stdout comes on stdout, its stderr on stderr.
    """
    import sys
    from pathlib import Path

    from examlops_dagster.errors import UsageError
    from examlops_dagster.schedulers.folder import tail

    chosen = options(context, as_json=as_json)
    job = job_named(name)
    if not Path(job.folder).is_dir():
        raise UsageError(f"the folder of job {job.job_id} is gone: {job.folder}")
    folder = folder_of(job)
    if job.array_index is not None and name not in (job.job_id, str(job.node)):
        tell(f"{name} has several jobs; this is {job.job_id} of {job.node} → exa hpc jobs")
    if follow and chosen.as_json:
        raise UsageError("--follow prints what comes as it is, which is no JSON → leave one out")
    if follow:
        follow_logs(job, folder)
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
    """Cancel a job, and see that it is gone.

    Of an array all tasks, or one of them (1234_7).
    """
    chosen = options(context, as_json=as_json)
    with jobs_ledger() as ledger:
        several = ledger.meant_by(name) if ledger is not None else []
    jobs = several or [job_named(name)]
    with governed_cancel(jobs):
        if len(jobs) > 1:
            cancel_tasks(chosen, jobs)
        else:
            cancel_job(chosen, jobs[0])


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
    for job in old_jobs(datetime.now(timezone.utc) - age):
        folder = JobFolder(Path(job.folder))
        # only what this package made: a folder named for the token, with its intent in it
        if folder.path.name == job.token and folder.intent.is_file():  # once for an array
            if not remove_there(folder.path, os.environ):
                kept += 1
                continue
            give_up(job)
            shutil.rmtree(folder.path, ignore_errors=True)
            removed += not folder.path.exists()
    if kept:
        tell(
            f"{kept} of their folders are on a host that was not reached; they are kept → set "
            "EXAMLOPS_HPC_SSH_HOST (and _SSH_PORT) as they were, and prune again"
        )
    chosen.say(f"Removed {removed} job folder{'' if removed == 1 else 's'}", removed=removed)


def _cells(job: "HpcJob") -> tuple[str, ...]:
    return (
        job.job_id or job.token[:8],
        job.scheduler,
        f"{job.model}[{job.node.partition}]" if job.node.partition else job.model,
        job.state,
        "—" if job.gpus is None else str(job.gpus),
        local_time(job.submitted_at)[:16],  # as ExaMLOps has it
        job.reason or "—",
    )


def _as_json(job: "HpcJob") -> dict[str, Any]:
    from dataclasses import asdict

    found = {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in asdict(job).items()}
    del found["node"]
    return {**found, "asset": job.node.asset, "partition": job.node.partition or None}
