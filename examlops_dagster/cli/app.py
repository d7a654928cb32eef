"""The groups of ``exa``, and what holds for all of them.

Annotations are real here, not strings: typer reads them.
"""

from typing import Annotated

import typer

import examlops_dagster.cli.outlets  # noqa: F401 - adds its commands to ``exa assets``
from examlops_dagster.cli.assets import assets
from examlops_dagster.cli.common import (
    FileOption,
    JsonOption,
    ModuleOption,
    Options,
    UrlOption,
    guarded,
)
from examlops_dagster.cli.data import data
from examlops_dagster.cli.fresh import get, run
from examlops_dagster.cli.governance import approvals, audit
from examlops_dagster.cli.hpc import hpc
from examlops_dagster.cli.lineage import lineage
from examlops_dagster.cli.serve import serve

app = typer.Typer(
    name="exa",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(assets, name="assets")
app.add_typer(data, name="data")
app.add_typer(hpc, name="hpc")
app.add_typer(audit, name="audit")
app.add_typer(approvals, name="approvals")


def _version(wanted: bool) -> None:
    if wanted:
        from examlops_dagster.version import __version__

        typer.echo(f"examlops-dagster {__version__}")
        raise typer.Exit


@app.callback()
def exa(
    context: typer.Context,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Assets that know when they are stale, built where they belong.

    The options may also stand after the command. Without -m or -f the modules are those of
    EXAMLOPS_MODULES, else of [tool.examlops] in pyproject.toml.

    Exit codes: 0 done; 1 a build failed, or policy refused; 2 wrong usage or definitions;
    3 `assets status --check` found something stale; 130 Ctrl-C.
    """
    del version
    context.obj = Options(tuple(module or ()), file, as_json, url)


@app.command("init")
@guarded
def init(context: typer.Context, as_json: JsonOption = False) -> None:
    """Make this folder a home.

    It writes dagster.yaml, workspace.yaml, .env and .gitignore; what they hold already stays.
    """
    import os
    from pathlib import Path

    from examlops_dagster.cli.common import options, tell
    from examlops_dagster.home import INSTANCE_FILE, home_above
    from examlops_dagster.initialise import initialise

    chosen = options(context, as_json=as_json)
    here = Path.cwd()
    written = initialise(here)
    above = home_above(here)
    if above is not None and INSTANCE_FILE in written:
        tell(
            f"There is a home above, {above}: commands given in {here} and below use this one from "
            f"now on → remove {INSTANCE_FILE} here to go on with the one above"
        )
    text = f"Wrote {', '.join(written)} in {here}" if written else f"{here} is a home already"
    named = os.environ.get("DAGSTER_HOME")
    if named and Path(named).resolve() != here:
        tell(f"DAGSTER_HOME={named} is set, and goes before this folder → unset DAGSTER_HOME")
    chosen.say(text, home=str(here), written=written)


app.command("run")(run)
app.command("get")(get)
app.command("lineage")(lineage)
app.command("serve")(serve)

GROUPS = frozenset(
    {"approvals", "assets", "audit", "data", "get", "hpc", "init", "lineage", "run", "serve"}
)
"""What ``exa`` has itself; anything else is looked for in another distribution."""
