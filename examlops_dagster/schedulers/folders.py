"""Which folders jobs get, and how those of former jobs are opened again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from examlops_dagster.errors import LaunchError, UsageError
from examlops_dagster.schedulers.base import Scheduler
from examlops_dagster.schedulers.folder import JobFolder, job_root, read_json
from examlops_dagster.schedulers.ssh_settings import HOST_VARIABLE, ssh_settings


class Folders(Protocol):
    """Gives the folders of jobs, wherever their files are.

    Attributes
    ----------
    host
        To which jobs are submitted over SSH; empty for this one.
    """

    host: str

    def new(self, token: str) -> JobFolder:
        """Give the folder of a job that is going to be submitted; it is not made yet."""
        ...

    def at(self, path: Path, index: int | None = None) -> JobFolder:
        """Open the folder of a former job, or of a task of an array, by its path here."""
        ...


class SharedFolders:
    """Folders on a filesystem that jobs see under the same path."""

    host = ""

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


def host_of(path: Path) -> str:
    """Give the host to which the job of a folder was submitted over SSH; empty for none."""
    found = read_json(path / "submit.json")
    return str(found.get("ssh_host") or "") if isinstance(found, dict) else ""


def check_host(scheduler: Scheduler, path: Path) -> None:
    """Refuse to ask one cluster about a job of another, where its id is somebody else's.

    Raises
    ------
    UsageError
        The job of the folder was not submitted to the host of this scheduler.
    """
    was, now = host_of(path), folders_of(scheduler, {}).host
    if was != now:
        submitted = f"over SSH to {was}" if was else "on this host"
        remedy = f"set {HOST_VARIABLE}={was}" if was else f"unset {HOST_VARIABLE}"
        raise UsageError(f"the job was submitted {submitted} → {remedy}")


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
    if settings is None or settings.host != found["ssh_host"] or Path(there).name != path.name:
        return False
    from examlops_dagster.schedulers.ssh import SshRunner  # noqa: PLC0415 - rare

    try:
        return SshRunner(settings, environment)(["rm", "-rf", "--", there]).code == 0
    except LaunchError:
        return False
