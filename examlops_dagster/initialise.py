"""Makes a folder the home of a project."""

from __future__ import annotations

import os
import re
import shutil
from io import StringIO
from pathlib import Path

from examlops_dagster.errors import StoreError
from examlops_dagster.home import ENVIRONMENT_FILE, INSTANCE_FILE, Home, use_home

HOME_VARIABLE = "DAGSTER_HOME"
_HOME_STATED = re.compile(rf"\s*(export\s+)?{HOME_VARIABLE}\s*=")

_INSTANCE = """\
# Dagster's instance: this folder is DAGSTER_HOME (see .env). The default storage is SQLite, for
# one host; with several, or many builds at once, put Dagster on Postgres:
# https://docs.dagster.io/deployment/dagster-instance

# Nothing about the use of this project is sent anywhere.
telemetry:
  enabled: false
nux:
  enabled: false

# A run whose process was killed must not keep a place in a pool for ever, nor stay "canceling".
run_monitoring:
  enabled: true
  poll_interval_seconds: 30
  free_slots_after_run_end_seconds: 60

# Runs that the daemon and the UI have in progress at once on this machine (Dagster's default: 10).
concurrency:
  runs:
    max_concurrent_runs: 4
"""

_WORKSPACE = """\
# Loads the modules that EXAMLOPS_MODULES or [tool.examlops] in pyproject.toml name.
load_from:
  - python_module:
      module_name: examlops_dagster.dagster_bridge.workspace
      location_name: examlops
"""

_IGNORED = (".env", "history/", "schedules/", "storage/", "logs/", "platform.db*", ".telemetry/")


def initialise(folder: Path) -> list[str]:
    """Write what a home needs and has not; give the names of the files that were written.

    What stands in a file already stays: ``.env`` and ``.gitignore`` only gain lines. A
    ``DAGSTER_HOME`` of another folder, as a copy or a move leaves it in ``.env``, is replaced.

    Raises
    ------
    StoreError
        If nothing can be written there.
    """
    written: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((INSTANCE_FILE, _INSTANCE), ("workspace.yaml", _WORKSPACE)):
            path = folder / name
            if not path.exists():
                _replace(path, text)
                written.append(name)
        if _state_home(folder / ENVIRONMENT_FILE, folder.resolve()):
            written.append(ENVIRONMENT_FILE)
        if _add_lines(folder / ".gitignore", _IGNORED):
            written.append(".gitignore")
    except OSError as error:
        raise StoreError(
            f"cannot make a home in {folder}: {error.strerror} → run it in a folder that you may "
            "write to, or name one by DAGSTER_HOME"
        ) from error
    return written


def ensure_home(home: Home) -> tuple[Home, list[str]]:
    """Make the home of a command that writes, if there is none yet."""
    written: list[str] = []
    if not home.exists:
        written = initialise(home.folder)
        home = Home(home.folder, exists=True, environment=home.environment)
    use_home(home)
    return home, written


def _state_home(path: Path, folder: Path) -> bool:
    """Let ``.env`` name the home; tell whether it had to be written."""
    from dotenv import dotenv_values  # noqa: PLC0415 - only where a home is made

    line = _home_line(folder)
    text = path.read_text("utf-8") if path.exists() else ""
    named = dotenv_values(stream=StringIO(text)).get(HOME_VARIABLE)
    if named and Path(named).expanduser().resolve() == folder:
        return False
    kept = [old for old in text.splitlines() if not _HOME_STATED.match(old)]
    _replace(path, "\n".join([*kept, line]) + "\n")
    return True


def _home_line(folder: Path) -> str:
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    return f"{HOME_VARIABLE}='{quoted}'"


def _add_lines(path: Path, lines: tuple[str, ...]) -> bool:
    text = path.read_text("utf-8") if path.exists() else ""
    missing = [line for line in lines if line not in text.splitlines()]
    if missing:
        if text and not text.endswith("\n"):
            text += "\n"
        _replace(path, text + "\n".join(missing) + "\n")
    return bool(missing)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: others may have put their own lines into it."""
    path = path.resolve()  # a link stays one
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
