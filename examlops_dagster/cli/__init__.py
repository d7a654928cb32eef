"""The command ``exa``: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable

COMMAND = "exa"
DISTRIBUTION = "examlops-dagster"


def main() -> None:
    """Run ``exa``; a group that we do not have goes to another distribution's ``exa``."""
    from examlops_dagster.cli.app import GROUPS, app

    first = next((word for word in _before_options(sys.argv[1:])), None)
    if first is not None and first not in GROUPS:
        other = _other_command()
        if other is not None:
            other()
            return
    app(prog_name=COMMAND)


def _before_options(words: list[str]) -> list[str]:
    """Give the words that are neither options nor the value of one."""
    with_value = {"-m", "--module", "-f", "--file"}
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in with_value:
            skip = True
        elif not word.startswith("-"):
            found.append(word)
    return found


def _other_command() -> Callable[[], object] | None:
    from importlib.metadata import entry_points

    for point in entry_points(group="console_scripts", name=COMMAND):
        if point.dist is not None and point.dist.name.lower().replace("_", "-") != DISTRIBUTION:
            other: Callable[[], object] = point.load()
            return other
    return None
