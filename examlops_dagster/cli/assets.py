"""``exa assets``.

Annotations are real here, not strings: typer reads them.
"""

from typing import Annotated, Any

import typer

from examlops_dagster.cli.common import (
    ExitCode,
    FileOption,
    JsonOption,
    ModuleOption,
    emit,
    guarded,
    options,
    table,
    tell,
)

assets = typer.Typer(
    help="Declare assets, see what is stale and why, and rebuild only that.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of assets; options are only parsed then, so no callback kept them."""
    module: list[str] | None = None
    file: str | None = None
    level: Any = context
    while level is not None:
        module = module or level.params.get("module")
        file = file or level.params.get("file")
        level = level.parent
    try:
        with options(context, module, file).project() as project:
            names = list(project.graph.declarations)
    except Exception:  # noqa: BLE001 - completion must stay silent
        return []
    return [name for name in names if name.startswith(incomplete)]


NameArgument = Annotated[
    str, typer.Argument(help="Name of an asset.", autocompletion=complete_names)
]
OptionalName = Annotated[
    str | None,
    typer.Argument(help="Name of an asset; all by default.", autocompletion=complete_names),
]
PartitionOption = Annotated[
    str | None, typer.Option("--partition", help="One key of a partitioned asset.")
]


@assets.command("declare")
@guarded
def declare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Any printable text.")],
    kind: Annotated[str, typer.Option(help="dataset, feature, model, report, ...")] = "dataset",
    deps: Annotated[
        list[str] | None, typer.Option(help="Upstreams: a,b (or repeat the option).")
    ] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    partitions: Annotated[
        str | None, typer.Option(help="daily:2024-01-01, hourly:, weekly:, monthly:, static:a,b")
    ] = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare an asset from the command line, or change such a declaration.

    It looks at such declarations alone, and loads no module.
    """
    chosen = options(context, module, file, as_json=as_json)
    upstreams = [d.strip() for text in deps or () for d in text.split(",") if d.strip()]
    with chosen.project(writing=True, bare=True) as project:
        project.declare(
            name, kind=kind, deps=upstreams, description=description, partitions=partitions
        )
    arrow = f" ← {', '.join(upstreams)}" if upstreams else ""
    chosen.say(f"Declared {kind} asset {name}{arrow}")


@assets.command("undeclare")
@guarded
def undeclare(
    context: typer.Context,
    name: NameArgument,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back a declaration made from the command line; what was built stays recorded."""
    from examlops_dagster.errors import UsageError

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, bare=True) as project:
        if not project.catalog.undeclare(name):
            raise UsageError(
                f"{name} was not declared from the command line, so it cannot be undeclared here"
            )
    chosen.say(f"Undeclared {name}")


@assets.command("graph")
@guarded
def graph(
    context: typer.Context,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is made from what."""
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        declarations = project.graph.declarations
        undeclared = project.graph.undeclared
    edges = {
        name: list(dict.fromkeys(edge.name for edge in d.upstreams))
        for name, d in declarations.items()
    }
    if chosen.as_json:
        emit(edges)
        return
    for name, upstreams in edges.items():
        declaration = declarations[name]
        if upstreams:
            typer.echo(f"{name} ← {', '.join(upstreams)}")
        elif name in undeclared:
            typer.echo(f"{name} (undeclared)")
        else:
            typer.echo(f"{name} ({'root' if declaration.is_root else 'source'})")
    if not edges:
        typer.echo(_NOTHING)


@assets.command("list")
@guarded
def list_(
    context: typer.Context,
    module: ModuleOption = None,
    file: FileOption = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also what is recorded and no longer declared.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the assets with kind, version, freshness and upstreams."""
    from examlops_dagster.cli.views import listed

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        rows = listed(project, historical=show_all)
    if chosen.as_json:
        emit(rows)
    elif rows:
        head = ("Name", "Kind", "Version", "Freshness", "Deps", "Sinks")
        typer.echo(table(head, [_cells(row, head) for row in rows]))
    else:
        typer.echo(_NOTHING)


@assets.command("status")
@guarded
def status(
    context: typer.Context,
    name: OptionalName = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 3 if a node is not fresh, running or historical."),
    ] = False,
    partition: PartitionOption = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is fresh and what is stale, and why; changes nothing."""
    from examlops_dagster.cli.views import status_rows, status_table

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        verdicts = status_rows(project, name, partition)
        if chosen.as_json:
            emit([v.as_json for v in verdicts])
        elif verdicts:
            rows = status_table(verdicts, by_key=name is not None)
            typer.echo(table(("Asset", "Version", "State", "Why"), rows))
        else:
            typer.echo(_NOTHING)
    if check and not all(v.status.state.in_order for v in verdicts):
        raise typer.Exit(ExitCode.NOT_IN_ORDER)


@assets.command("plan")
@guarded
def plan(
    context: typer.Context,
    name: OptionalName = None,
    partition: PartitionOption = None,
    force: Annotated[bool, typer.Option("--force", help="Also if it is fresh.")] = False,
    no_deps: Annotated[bool, typer.Option("--no-deps", help="Nothing but the asset.")] = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what would be rebuilt, skipped and blocked, and why; changes nothing."""
    from examlops_dagster.cli.views import plan_json, plan_rows

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        found = project.plan(
            [name] if name else (), partition=partition, force=force, deps=not no_deps
        )
    if chosen.as_json:
        emit(plan_json(found))
        return
    rows = plan_rows(found)
    if found.is_empty:
        typer.echo("Nothing to rebuild.")
    if rows:
        typer.echo(table(("Asset", "Action", "Why"), rows))


@assets.command("materialize")
@guarded
def materialize(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Assets.", autocompletion=complete_names)],
    force: Annotated[
        bool, typer.Option("--force", help="Build the assets even if they are fresh.")
    ] = False,
    no_deps: Annotated[
        bool, typer.Option("--no-deps", help="Build nothing but the assets named.")
    ] = False,
    orchestrator: Annotated[
        str | None, typer.Option(help="local, scheduler, prefect, or of an installed package.")
    ] = None,
    partition: PartitionOption = None,
    in_process: Annotated[
        bool,
        typer.Option("--in-process", help="Call the functions here, without their time limits."),
    ] = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild assets and their stale ancestors, dependencies first, and nothing else."""
    from examlops_dagster.cli.builds import print_report, stdout_kept
    from examlops_dagster.dagster_bridge.run import materialize_in

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project, stdout_kept() as show:
        report = materialize_in(
            project,
            names,
            partition=partition,
            force=force,
            no_deps=no_deps,
            orchestrator=orchestrator,
            in_process=in_process,
            progress=show.progress,
        )
    code = print_report(report, names, as_json=chosen.as_json)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


@assets.command("source-changed")
@guarded
def source_changed(
    context: typer.Context,
    name: NameArgument,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that a source has new content: what is made from it is stale from now on."""
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project:
        record, _ = project.advance(name)
    chosen.say(
        f"{name} advanced to v{record.version} — downstream assets are now stale.",
        name=name,
        version=record.version,
    )


@assets.command("report")
@guarded
def report(
    context: typer.Context,
    name: NameArgument,
    data_version: Annotated[str, typer.Option(help="Identifies the content, e.g. a hash.")],
    partition: PartitionOption = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record a content that was made elsewhere; the same data version again is no change."""
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project:
        record, new = project.report(name, data_version, partition)
    text = (
        f"{name} is at v{record.version} now"
        if new
        else f"{name} is at that data version already (v{record.version}) — nothing changed."
    )
    chosen.say(text, name=name, version=record.version, changed=new)


@assets.command("adopt")
@guarded
def adopt(
    context: typer.Context,
    name: NameArgument,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a result that others made for one of ours, built from today's upstreams and code."""
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project:
        adopted = project.adopt(name)
    chosen.say(
        f"Adopted {', '.join(map(str, adopted))}" if adopted else f"Nothing of {name} to adopt.",
        adopted=list(map(str, adopted)),
    )


@assets.command("history")
@guarded
def history(
    context: typer.Context,
    name: NameArgument,
    partition: PartitionOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many builds, newest first.")] = 20,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the builds of an asset, also those that failed, newest first."""
    from examlops_dagster.cli.views import history_json, history_rows

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        builds = project.history(name, partition, limit)
    if chosen.as_json:
        emit([history_json(build) for build in builds])
    elif builds:
        head = ("Ended", "Version", "State", "Orchestrator", "Built from", "Run", "Error")
        typer.echo(table(head, history_rows(builds)))
    else:
        tell(f"{name} was never built.")


_NOTHING = "No assets declared. Use: exa assets declare NAME --kind KIND (or -m MODULE)"


def _cells(row: dict[str, Any], head: tuple[str, ...]) -> list[str]:
    values = [row[column.lower()] for column in head]
    return [", ".join(v) if isinstance(v, list) else str(v or "—") for v in values]
