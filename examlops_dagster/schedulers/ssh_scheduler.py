"""A scheduler at the other end of SSH: brings the folder of a job there before it is submitted."""

from __future__ import annotations

import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import JobRef, JobStatus, Scheduler, Submission
from examlops_dagster.schedulers.folder import JobFolder, job_root, read_json
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_mirror import MIRROR_FILE, Mirror, MirroredFolder
from examlops_dagster.settings import HPC_REMOTE_WORKDIR


class SshFolders:
    """Folders of jobs that are submitted over SSH.

    Without ``EXAMLOPS_HPC_REMOTE_WORKDIR`` both hosts share them, under one path. With it they
    are written here, copied there, and what the job writes is brought back as it comes.
    """

    def __init__(self, runner: SshRunner, environment: Mapping[str, str]) -> None:
        self._settings = runner.settings
        self.far_end = runner.settings.far_end
        own = {k: v for k, v in environment.items() if k != HPC_REMOTE_WORKDIR}
        self._root = job_root(own)
        self._mirror = Mirror(runner, self._root / ".mirror.lock")

    def new(self, token: str) -> JobFolder:
        """See Folders."""
        path = self._root / token
        return self._open(path, self._there(path), None)

    def at(self, path: Path, index: int | None = None) -> JobFolder:
        """See Folders; where it is there, its intent tells."""
        found = read_json(path / "submit.json")
        if not isinstance(found, dict):  # not written yet
            return self._open(path, self._there(path), index)
        return self._open(path, Path(found.get("folder_there") or path), index)

    def _there(self, path: Path) -> Path:
        return Path(self._settings.workdir, path.name) if self._settings.is_staged else path

    def _open(self, path: Path, there: Path, index: int | None) -> JobFolder:
        if there == path:
            return JobFolder(path, index, far_end=self.far_end)
        return MirroredFolder(path, there, self._mirror, index, far_end=self.far_end)


class SshScheduler:
    """Hands everything on to a scheduler whose commands run on another host.

    Parameters
    ----------
    scheduler
        With ``runner`` as its runner.
    environment
        Of this process.
    """

    def __init__(
        self, scheduler: Scheduler, runner: SshRunner, environment: Mapping[str, str]
    ) -> None:
        self.name = scheduler.name
        self.connection = runner.settings.connection
        self.folders = SshFolders(runner, environment)
        self.tasks_have_ids = bool(getattr(scheduler, "tasks_have_ids", False))
        self.own_lines = getattr(scheduler, "own_lines", None)
        self._scheduler = scheduler
        self._runner = runner

    def submit(self, submission: Submission) -> list[JobRef]:
        """Bring the folder there, or see that it is there, and submit; see `Scheduler`.

        Of the submitter's environment only what ``EXAMLOPS_HPC_FORWARD_ENV`` names goes along.
        """
        here = self.folders.new(submission.token)
        if here.there == here.path:
            self._check_shared(submission)
        else:
            self._stage(here.path, here.there)
        forwarded = self._runner.settings.forwarded_of(submission.environment)
        environment = {**forwarded, **submission.own_variables}
        return self._scheduler.submit(replace(submission, environment=environment))

    def find(self, token: str, since: datetime) -> list[JobRef]:
        """See Scheduler."""
        return self._scheduler.find(token, since)

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
        """See Scheduler."""
        return self._scheduler.poll(jobs)

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """See Scheduler."""
        self._scheduler.cancel(jobs)

    def _check_shared(self, submission: Submission) -> None:
        reply = self._runner.run(f"[ -x {shlex.quote(str(submission.script))} ]")
        reply.stdout.close()
        if reply.code:
            raise LaunchError(
                f"{submission.folder} is not on {self._runner.settings.host} → set "
                "EXAMLOPS_ASSET_JOB_DIR to a folder that both hosts see under one path, or "
                f"{HPC_REMOTE_WORKDIR} to a folder there into which the job's folder is copied"
            )

    def _stage(self, here: Path, there: Path) -> None:
        """Copy a folder: under another name until it is whole; one that is there already stays."""
        size = sum(path.stat().st_size for path in here.rglob("*") if path.is_file())
        root, whole, part = (
            shlex.quote(str(p)) for p in (there.parent, there, there.parent / f".{there.name}.part")
        )
        script = (
            f"umask 077; mkdir -p -- {root} || exit 1\n"
            f"[ ! -e {whole} ] || exit 0\n"
            f"rm -rf -- {part} && mkdir -- {part} && tar -xf - -C {part} && mv -T -- {part} {whole}"
        )
        reply = self._runner.run(script, lambda file: _pack(here, file), size=size)
        reply.stdout.close()
        if reply.code:
            words = " / ".join(line for line in reply.stderr.splitlines() if line.strip())
            raise LaunchError(
                f"the job's folder cannot be copied to {there} on {self._runner.settings.host}: "
                f"{words or f'exit code {reply.code}'} → {HPC_REMOTE_WORKDIR} names its root there"
            )


def _pack(folder: Path, file: BinaryIO) -> None:
    def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if member.name.endswith(MIRROR_FILE) else member

    with tarfile.open(fileobj=file, mode="w|") as archive:
        archive.add(folder, arcname=".", filter=nobodys)
