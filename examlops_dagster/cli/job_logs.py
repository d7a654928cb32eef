"""The logs of a batch job, while it runs and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examlops_dagster.cli.common import tell
from examlops_dagster.cli.jobs import at_scheduler, status_of

if TYPE_CHECKING:
    from examlops_dagster.core.jobs import HpcJob
    from examlops_dagster.schedulers.folder import JobFolder

_FOLLOW_SECONDS = 0.5
_STATUS_SECONDS = 5.0


def folder_of(job: HpcJob) -> JobFolder:
    """Open the folder of a job; what a running one wrote on another host is brought first."""
    import os
    from pathlib import Path

    from examlops_dagster.schedulers.folder import JobFolder
    from examlops_dagster.schedulers.folders import far_end_of, folders_of

    path = Path(job.folder)
    folder = JobFolder(path, job.array_index)
    if far_end_of(path).host and folder.exit(job.token) is None:
        scheduler, _ = at_scheduler(job)
        folder = folders_of(scheduler, os.environ).at(path, job.array_index)
        folder.fetch()
    return folder


def follow_logs(job: HpcJob, folder: JobFolder) -> None:
    """Copy the logs until the job has ended."""
    import os
    import time

    offsets = {folder.stdout: 0, folder.stderr: 0}
    targets = {folder.stdout: 1, folder.stderr: 2}
    asked, ended = 0.0, False
    scheduler, ref = at_scheduler(job)
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
            status = status_of(scheduler, ref)
            ended = status.state.final
            if ended:
                folder.fetch()
            if not ended and status.reason:
                tell(f"[{status.state.word}: {status.reason}]")
        if not ended:
            time.sleep(_FOLLOW_SECONDS)
