"""Which folders jobs get, and how those of former jobs are opened again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.base import Scheduler
from examlops_dagster.schedulers.far_end import HERE, FarEnd
from examlops_dagster.schedulers.folder import JobFolder, job_root, read_json
from examlops_dagster.schedulers.ssh_settings import ssh_settings
from examlops_dagster.settings import HPC_TRANSPORT


class Folders(Protocol):
    """Gives the folders of jobs, wherever their files are.

    Attributes
    ----------
    far_end
        To which jobs are submitted.
    """

    far_end: FarEnd

    def new(self, token: str) -> JobFolder:
        """Give the folder of a job that is going to be submitted; it is not made yet."""
        ...

    def at(self, path: Path, index: int | None = None) -> JobFolder:
        """Open the folder of a former job, or of a task of an array, by its path here."""
        ...


class SharedFolders:
    """Folders on a filesystem that jobs see under the same path."""

    far_end = HERE

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def new(self, token: str) -> JobFolder:
        """See Folders."""
        return JobFolder(job_root(self._environment) / token)

    def at(self, path: Path, index: int | None = None) -> JobFolder:
        """See Folders."""
        return JobFolder(path, index)


def folders_of(scheduler: Scheduler, environment: Mapping[str, str]) -> Folders:
    """Give the folders of a scheduler's jobs; one at the other end of SSH brings its own."""
    own = getattr(scheduler, "folders", None)
    return SharedFolders(environment) if own is None else cast("Folders", own)


def far_end_of(path: Path) -> FarEnd:
    """Give where the job of a folder was submitted."""
    return FarEnd.read(read_json(path / "submit.json"))


def check_far_end(path: Path, environment: Mapping[str, str]) -> None:
    """Refuse to ask one cluster about a job of another, where its id is somebody else's.

    Parameters
    ----------
    path
        Folder of the job.
    environment
        Whose settings name the cluster that would be asked; nobody is connected to.

    Raises
    ------
    UsageError
        They name another one, or cannot be used.
    """
    settings = ssh_settings(environment)
    was, now = far_end_of(path), HERE if settings is None else settings.far_end
    if was.is_same(now):
        return
    submitted = f"over SSH to {was}" if was.host else "on this host"
    rest = f" and unset {HPC_TRANSPORT}" if environment.get(HPC_TRANSPORT) else ""
    raise UsageError(f"the job was submitted {submitted} → {was.remedy(now)}{rest}")


def remove_there(path: Path, environment: Mapping[str, str]) -> bool:
    """Remove the copy of a job's folder on another host, where there is one.

    Returns
    -------
    bool
        Whether there is none any more.
    """
    found = read_json(path / "submit.json")
    there = found.get("folder_there") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not there or there == str(path):
        return True
    settings = ssh_settings(environment)
    if settings is None or Path(there).name != path.name:
        return False
    if not FarEnd.read(found).is_same(settings.far_end):
        return False
    from examlops_dagster.schedulers.ssh import SshRunner  # noqa: PLC0415 - rare

    try:
        return SshRunner(settings, environment)(["rm", "-rf", "--", there]).code == 0
    except LaunchError:
        return False
