"""Options, exit codes and printing, the same for every command."""

from __future__ import annotations

import errno
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from examlops_dagster.errors import DefinitionError, ExamlopsError, PolicyError, UsageError

if TYPE_CHECKING:
    from examlops_dagster.home import Home
    from examlops_dagster.project import Project

F = TypeVar("F", bound=Callable[..., Any])

ModuleOption = Annotated[
    list[str] | None,
    typer.Option("-m", "--module", help="Module with declarations; may be repeated."),
]
FileOption = Annotated[
    str | None, typer.Option("-f", "--file", help="File with declarations, imported by its stem.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="http://HOST:PORT",
        help="Ask a running `exa serve` (status, plan, graph and run).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DASH = "—"
"""Stands in a table for what is not there."""

DETACH = "--detach"
DetachOption = Annotated[
    bool,
    typer.Option(
        DETACH,
        help="Go on in a process of its own, and return once the first job is submitted. Its "
        "output goes to a file in the home.",
    ),
]

_OF_THE_HOST = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG}
)
"""Errors that a host's owner mends: rights, a full disk, a quota."""


class ExitCode(IntEnum):
    """What the exit code of a command says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_IN_ORDER = 3
    INTERRUPTED = 130


@dataclass(frozen=True)
class Options:
    """What holds for any command.

    Attributes
    ----------
    modules, file
        Where declarations are loaded from; the configured modules where both are empty.
    as_json
        Whether stdout gets JSON.
    url
        Of the server that is asked; None for the home here.
    """

    modules: tuple[str, ...] = ()
    file: str | None = None
    as_json: bool = False
    url: str | None = None

    @contextmanager
    def project(
        self, *, writing: bool = False, bare: bool = False, tells_lineage: bool = False
    ) -> Iterator[Project]:
        """Open the project.

        Parameters
        ----------
        writing
            Make the home when it first writes, if there is none, and say so.
        bare
            Load no module: the request is about declarations from the command line alone.
        tells_lineage
            Have lineage delivered after it, by a process that nobody waits for.
        """
        if self.url is not None:
            raise UsageError(
                "--url is for assets status, assets plan, assets graph and run; this command "
                "works on the home here alone"
            )
        from examlops_dagster.project import Project, open_project

        home = home_here()
        if bare:
            project = Project(home, reading=not writing)
        else:
            with redirect_stdout(sys.stderr):  # what modules print at import is no result
                project = open_project(self.modules, file=self.file, home=home, reading=not writing)
        project.on_home_made = lambda home, written: tell(
            f"No home yet: wrote {', '.join(written)} in {home.folder}"
        )
        try:
            yield project
            if tells_lineage:
                from examlops_dagster.governance.lineage_courier import deliver_later

                deliver_later(project.database, project.home)
        finally:
            project.close()

    def say(self, text: str, **facts: Any) -> None:
        """Print the result of a command that did something."""
        if self.as_json:
            emit({"ok": True, "message": text, **facts})
        else:
            typer.echo(text)


def home_here() -> Home:
    """Find the home, and say on stderr where that is not the folder that one would expect."""
    from examlops_dagster.home import find_home

    home = find_home()
    if home.note:
        tell(home.note)
    return home


def options(
    context: typer.Context,
    module: Sequence[str] | None = None,
    file: str | None = None,
    *,
    as_json: bool = False,
    url: str | None = None,
) -> Options:
    """Join what stands before the command and what stands after it; the latter wins."""
    before = context.find_object(Options) or Options()
    return Options(
        tuple(module or ()) or (() if file else before.modules),
        file or (None if module else before.file),
        as_json or before.as_json,
        url or before.url,
    )


def guarded(command: F) -> F:
    """Turn the errors of a user into a message and an exit code, never a traceback."""

    @functools.wraps(command)
    def run(*arguments: Any, **named: Any) -> Any:
        context = next(
            (a for a in (*arguments, *named.values()) if hasattr(a, "find_object")), None
        )
        as_json = bool(named.get("as_json"))
        if context is not None:
            as_json = as_json or (context.find_object(Options) or Options()).as_json
        from examlops_dagster.misspelt import tell_misspelt_variables

        tell_misspelt_variables()
        try:
            return command(*arguments, **named)
        except (UsageError, DefinitionError) as error:
            _complain(error, ExitCode.USAGE, as_json=as_json)
        except PolicyError as error:
            _complain(error, ExitCode.FAILED, as_json=as_json, head="")
        except ExamlopsError as error:
            _complain(error, ExitCode.FAILED, as_json=as_json)
        except OSError as error:
            if error.errno not in _OF_THE_HOST:
                raise
            where = f": {error.filename}" if error.filename else ""
            _complain(ExamlopsError(f"{error.strerror}{where}"), ExitCode.FAILED, as_json=as_json)
        except KeyboardInterrupt:
            tell("Interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return run  # type: ignore[return-value]  # wraps keeps the signature that typer reads


def emit(value: Any) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def tell(text: str) -> None:
    """Print for a person who waits, on stderr."""
    typer.echo(text, err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns.

    Not with rich: 1,000 rows take it 0.3 s, more than the whole command has.
    """
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _complain(error: Exception, code: ExitCode, *, as_json: bool, head: str = "Error: ") -> None:
    if as_json:
        emit({"error": str(error), "exit_code": int(code)})
    print(f"{head}{error}", file=sys.stderr)  # noqa: T201 - typer.echo would wrap
    raise typer.Exit(code) from None
