"""Makes a folder the home of a project."""

from __future__ import annotations

from pathlib import Path

from examlops_dagster.home import ENVIRONMENT_FILE, INSTANCE_FILE, Home, use_home

_INSTANCE = """\
# Dagster's instance: this folder is DAGSTER_HOME (see .env). The default storage is SQLite, for
# one host; with several, or many builds at once, put Dagster on Postgres:
# https://docs.dagster.io/deployment/dagster-instance
telemetry:
  enabled: false
run_monitoring:
  enabled: true
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

    What stands in a file already stays: ``.env`` and ``.gitignore`` only gain lines.
    """
    written: list[str] = []
    for name, text in ((INSTANCE_FILE, _INSTANCE), ("workspace.yaml", _WORKSPACE)):
        path = folder / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            written.append(name)
    if _add_lines(
        folder / ENVIRONMENT_FILE,
        () if _states(folder / ENVIRONMENT_FILE, "DAGSTER_HOME=") else (_home_line(folder),),
    ):
        written.append(ENVIRONMENT_FILE)
    if _add_lines(folder / ".gitignore", _IGNORED):
        written.append(".gitignore")
    return written


def ensure_home(home: Home) -> tuple[Home, list[str]]:
    """Make the home of a command that writes, if there is none yet."""
    written: list[str] = []
    if not home.exists:
        home.folder.mkdir(parents=True, exist_ok=True)
        written = initialise(home.folder)
        home = Home(home.folder, exists=True, environment=home.environment)
    use_home(home)
    return home, written


def _home_line(folder: Path) -> str:
    value = str(folder.resolve())
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"DAGSTER_HOME='{quoted}'"


def _states(path: Path, start: str) -> bool:
    if not path.exists():
        return False
    return any(line.strip().startswith(start) for line in path.read_text("utf-8").splitlines())


def _add_lines(path: Path, lines: tuple[str, ...]) -> bool:
    text = path.read_text("utf-8") if path.exists() else ""
    missing = [line for line in lines if line not in text.splitlines()]
    if missing:
        if text and not text.endswith("\n"):
            text += "\n"
        path.write_text(text + "\n".join(missing) + "\n", encoding="utf-8")
    return bool(missing)
