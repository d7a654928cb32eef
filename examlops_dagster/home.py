"""The one home of a project: where Dagster's instance and platform.db are, and the settings."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from examlops_dagster.core.freshness import is_zone
from examlops_dagster.errors import UsageError
from examlops_dagster.misspelt import tell_misspelt_variables
from examlops_dagster.settings import ACTOR, DB_URL, TIMEZONE

INSTANCE_FILE = "dagster.yaml"
ENVIRONMENT_FILE = ".env"
DATABASE_FILE = "platform.db"
POSTGRES = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class Home:
    """Where a project lives.

    Attributes
    ----------
    folder
        Dagster's home (``DAGSTER_HOME``).
    exists
        Whether it was made: there is a ``dagster.yaml``, or ``DAGSTER_HOME`` names it.
    environment
        The environment in force: the process's own over the file ``.env`` of the home.
    note
        What the one who asks should know about this choice; empty where it is the usual one.
    """

    folder: Path
    exists: bool
    environment: Mapping[str, str]
    note: str = ""

    @property
    def database(self) -> str:
        """Path or URL of platform.db (``EXAMLOPS_DB_URL``, ``PLATFORM_DB``, else in the home).

        A relative path is one below the home, wherever the command is given.

        Raises
        ------
        UsageError
            If either names something else.
        """
        url = self.environment.get(DB_URL)
        if url:
            if not url.startswith(POSTGRES):
                shown = f"{url.partition('://')[0]}://..." if "://" in url else repr(url)
                raise UsageError(
                    f"EXAMLOPS_DB_URL is {shown}, which is not a postgresql:// URL → a path of a "
                    "SQLite file is named by PLATFORM_DB"
                )
            return url
        path = self.environment.get("PLATFORM_DB") or DATABASE_FILE
        if "://" in path:
            raise UsageError(
                f"PLATFORM_DB is {path.partition('://')[0]}://..., which is not a path → a "
                "postgresql:// URL belongs into EXAMLOPS_DB_URL"
            )
        return str(self.folder / Path(path).expanduser())

    @cached_property
    def zone(self) -> str:
        """IANA name of the zone of schedules that name none."""
        return resolve_zone(self.environment)

    @property
    def actor(self) -> str:
        """Who asks: ``EXAMLOPS_ACTOR``, else the user's name."""
        named = self.environment.get(ACTOR)
        if named:
            return named
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return "unknown"


def find_home(working_directory: Path | None = None) -> Home:
    """Find the home: ``DAGSTER_HOME``, else the nearest folder upward with a ``dagster.yaml``.

    Where there is neither, the working directory is the home that ``exa init`` would make. The
    file ``.env`` there is read as Dagster's own commands read it, and may name another home; what
    it states is put into the environment, since the builds and Dagster must see it too. A variable
    there or here that looks like a setting, and is none, is told in the log.

    Raises
    ------
    UsageError
        If ``DAGSTER_HOME`` is not an absolute path of a folder, or names in ``.env`` a folder that
        is gone, as after a move.
    """
    here = (working_directory or Path.cwd()).resolve()
    found = here if (here / INSTANCE_FILE).is_file() else home_above(here)
    stated = None
    if not os.environ.get("DAGSTER_HOME"):
        stated = (found or here) / ENVIRONMENT_FILE
        _read_environment_file(stated)
    tell_misspelt_variables(stated)
    named = os.environ.get("DAGSTER_HOME")
    if named:
        folder = Path(named).expanduser()
        if not folder.is_absolute():
            raise UsageError(f"DAGSTER_HOME={named!r} is not an absolute path")
        note = "" if stated is None or found is None else _moved(stated, found, folder)
        return Home(folder, folder.is_dir(), os.environ, note)
    return Home(found or here, found is not None, os.environ)


def home_above(folder: Path) -> Path | None:
    """Give the nearest folder above one that is a home; None where there is none."""
    above = folder.resolve().parents
    return next((each for each in above if (each / INSTANCE_FILE).is_file()), None)


def use_home(home: Home) -> None:
    """Let Dagster, and every process that we start, find the same home."""
    os.environ["DAGSTER_HOME"] = str(home.folder)


def cache_folder() -> Path:
    """Give the folder for what can be computed anew (``$XDG_CACHE_HOME/examlops``)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "examlops" / "fingerprints"


def resolve_zone(environment: Mapping[str, str]) -> str:
    """Give the IANA name of ``EXAMLOPS_TIMEZONE``, else of the local zone, else UTC.

    Raises
    ------
    UsageError
        If ``EXAMLOPS_TIMEZONE`` is not an IANA name.
    """
    named = environment.get(TIMEZONE)
    if named:
        if not is_zone(named):
            raise UsageError(
                f"EXAMLOPS_TIMEZONE={named!r} is not an IANA name such as Europe/Berlin"
            )
        return named
    local = environment.get("TZ", "").lstrip(":")
    if local and is_zone(local):
        return local
    for path in ("/etc/localtime", "/etc/timezone"):
        try:
            text = os.path.realpath(path) if path.endswith("localtime") else Path(path).read_text()
        except OSError:
            continue
        name = text.rpartition("zoneinfo/")[2].strip()
        if name and is_zone(name):
            return name
    return "UTC"


def _moved(stated: Path, found: Path, folder: Path) -> str:
    """Say that ``.env`` names another home than the folder that it is in: a copy, or a move."""
    if folder.resolve() == found:
        return ""
    remedy = f"`exa init` in {found} makes that the home"
    if not folder.is_dir():
        raise UsageError(f"{stated} names DAGSTER_HOME={folder}, which is not there → {remedy}")
    return f"Using the home {folder}, which {stated} names; {remedy}"


def _read_environment_file(path: Path) -> None:
    if path.is_file():
        from dotenv import load_dotenv  # noqa: PLC0415 - only where there is a file to read

        load_dotenv(path, override=False)
