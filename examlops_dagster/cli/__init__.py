"""The command ``exa``: parses, calls, prints."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection

COMMAND = "exa"
DISTRIBUTION = "examlops-dagster"
JSON = "--json"

ALLOCATIONS_PER_COLLECTION = 100_000
"""What a command loads lives until its end; looking for garbage at every 700 objects, as Python
does, took a tenth of `exa assets status` (benchmarks/start_up.py)."""


def main() -> None:
    """Run ``exa``; a group that we do not have goes to another distribution's ``exa``."""
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
    from examlops_dagster.cli.app import GROUPS, app

    words = sys.argv[1:]
    first = next((word for word in _before_options(words)), None)
    if first is not None and first not in GROUPS and _COMPLETION.isdisjoint(words):
        other = _other_command()
        if other is None:
            sys.exit(_unknown(first, GROUPS, as_json=JSON in words))
        other()
        return
    if JSON in words:
        sys.exit(_for_a_program(app))
    app(prog_name=COMMAND)


_COMPLETION = frozenset({"--install-completion", "--show-completion"})
"""Options that may have the name of a shell after them."""


def _for_a_program(app: Callable[..., int | None]) -> int | None:
    """Run a command of which a program reads JSON; what the parser refuses is JSON then too."""
    try:
        return app(prog_name=COMMAND, standalone_mode=False)
    except Exception as error:
        # click's own class, and which click that is depends on the version of typer
        if not (hasattr(error, "format_message") and hasattr(error, "show")):
            raise
        from examlops_dagster.cli.common import ExitCode, emit

        emit({"error": error.format_message(), "exit_code": int(ExitCode.USAGE)})
        error.show()
        return int(ExitCode.USAGE)


def _unknown(word: str, groups: Collection[str], *, as_json: bool) -> int:
    """Say that nobody here has a group, and give the exit code."""
    import difflib

    from examlops_dagster.cli.common import ExitCode, emit, tell

    nearest = difflib.get_close_matches(word, groups, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    message = (
        f"No such command {word!r}.{hint} Here are {', '.join(sorted(groups))}; any other "
        f"group is that of another distribution with an {COMMAND!r} command, such as ExaMLOps, "
        "and none is installed."
    )
    if as_json:
        emit({"error": message, "exit_code": int(ExitCode.USAGE)})
    tell(f"Error: {message}")
    return int(ExitCode.USAGE)


def _before_options(words: list[str]) -> list[str]:
    """Give the words that are neither options nor the value of one."""
    with_value = {"-m", "--module", "-f", "--file", "--url"}
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
