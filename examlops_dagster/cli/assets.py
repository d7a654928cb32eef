"""``exa assets``.

Annotations are real here, not strings: typer reads them.
"""

from typing import Annotated, Any

import typer

from examlops_dagster.cli.arguments import (
    InProcessOption,
    NameArgument,
    OptionalName,
    OrchestratorOption,
    PartitionOption,
    ResourcesOption,
    complete_names,
)
from examlops_dagster.cli.common import (
    DASH,
    DetachOption,
    ExitCode,
    FileOption,
    JsonOption,
    ModuleOption,
    UrlOption,
    emit,
    guarded,
    options,
    table,
    tell,
)

assets = typer.Typer(
    help="Declare assets, see what is stale and why, rebuild only that.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
    """Declare an asset from the command line.

    Once more changes the declaration. It looks at such declarations alone, and loads no module.
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
    """Take back a declaration made from the command line.

    What was built stays recorded.
    """
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, bare=True) as project:
        project.undeclare(name)
    chosen.say(f"Undeclared {name}")


@assets.command("graph")
@guarded
def graph(
    context: typer.Context,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Show what is made from what."""
    from examlops_dagster.cli.tables import graph_line

    chosen = options(context, module, file, as_json=as_json, url=url)
    if chosen.url is not None:
        from examlops_dagster.cli.remote import Server

        edges, roles = Server(chosen.url).graph()
    else:
        from examlops_dagster.project.views import edges_of, roles_of

        with chosen.project() as project:
            edges, roles = edges_of(project.graph), roles_of(project.graph)
    if chosen.as_json:
        emit(edges)
        return
    for name, upstreams in edges.items():
        typer.echo(graph_line(name, upstreams, roles[name]))
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
    """List assets with kind, version, freshness and upstreams."""
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
        typer.Option(
            "--check", help="Exit with 3 unless every node is fresh, running or historical."
        ),
    ] = False,
    partition: PartitionOption = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Say what is fresh and what is stale, and why."""
    from examlops_dagster.cli.tables import STATUS_HEAD, status_table

    chosen = options(context, module, file, as_json=as_json, url=url)
    if chosen.url is not None:
        from examlops_dagster.cli.remote import Server

        rows = Server(chosen.url).status(name, partition)
    else:
        from examlops_dagster.project.views import status_rows

        with chosen.project() as project:
            rows = [verdict.row for verdict in status_rows(project, name, partition)]
    if chosen.as_json:
        emit([{k: v for k, v in row.items() if k not in _FOR_TABLES} for row in rows])
    elif rows:
        typer.echo(table(STATUS_HEAD, status_table(rows, by_key=name is not None)))
    else:
        typer.echo(_NOTHING)
    if check:
        from examlops_dagster.core.verdicts import State

        if not all(State(row["state"]).in_order for row in rows):
            raise typer.Exit(ExitCode.NOT_IN_ORDER)


@assets.command("plan")
@guarded
def plan(
    context: typer.Context,
    name: OptionalName = None,
    partition: PartitionOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Plan the asset even if it is fresh.")
    ] = False,
    no_deps: Annotated[bool, typer.Option("--no-deps", help="Plan nothing but the asset.")] = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Say what would be rebuilt, skipped and blocked, and why."""
    from examlops_dagster.cli.tables import PLAN_HEAD, plan_rows

    chosen = options(context, module, file, as_json=as_json, url=url)
    if chosen.url is not None:
        from examlops_dagster.cli.remote import Server

        found = Server(chosen.url).plan(name, partition, force=force, deps=not no_deps)
    else:
        from examlops_dagster.project.foreseen import foreseen
        from examlops_dagster.project.views import plan_json

        with chosen.project() as project:
            names = [name] if name else ()
            planned = project.plan(names, partition=partition, force=force, deps=not no_deps)
            found = plan_json(planned, foreseen(project, planned))
    if chosen.as_json:
        emit(found)
        return
    if not found["steps"]:
        typer.echo("Nothing to rebuild.")
    rows = plan_rows(found)
    if rows:
        typer.echo(table(PLAN_HEAD, rows))
    if found["targets"] and not all(s["policy"]["passes"] for s in found["steps"] if s["policy"]):
        typer.echo("Policy lets nothing of this be built as it stands.")


@assets.command("materialize")
@guarded
def materialize(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(help="Names of assets.", autocompletion=complete_names)
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Build the assets even if they are fresh.")
    ] = False,
    no_deps: Annotated[
        bool, typer.Option("--no-deps", help="Build nothing but the assets named.")
    ] = False,
    orchestrator: OrchestratorOption = None,
    partition: PartitionOption = None,
    in_process: InProcessOption = False,
    resources: ResourcesOption = None,
    detached: DetachOption = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild assets and their stale ancestors, nothing else."""
    chosen = options(context, module, file, as_json=as_json)
    if detached:
        from examlops_dagster.cli.detach import detach

        detach(chosen)
        return
    from examlops_dagster.cli.builds import build_named

    build_named(
        chosen,
        names,
        resources,
        partition=partition,
        force=force,
        no_deps=no_deps,
        orchestrator=orchestrator,
        in_process=in_process,
    )


@assets.command("source-changed")
@guarded
def source_changed(
    context: typer.Context,
    name: NameArgument,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that a source has new content.

    What is made from it is stale from now on.
    """
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, tells_lineage=True) as project:
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
    """Record a content that was made elsewhere.

    The same data version again is no change.
    """
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, tells_lineage=True) as project:
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
    """Take a result that others made for one of ours.

    It counts as built from today's upstreams and code.
    """
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, tells_lineage=True) as project:
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
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Builds, newest first.")] = 20,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the builds of an asset, also those that failed."""
    from examlops_dagster.cli.views import history_rows
    from examlops_dagster.project.views import history_json

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        builds = project.history(name, partition, limit)
    if chosen.as_json:
        emit([history_json(build) for build in builds])
    elif builds:
        head = ("Ended", "Version", "State", "Orchestrator", "Built from", "Run", "Error")
        typer.echo(table(head, history_rows(builds)))
    else:
        tell(f"{name if partition is None else f'{name}[{partition}]'} was never built.")


_FOR_TABLES = frozenset({"shown", "partitioned"})
_NOTHING = "No assets declared. Use: exa assets declare NAME --kind KIND (or -m MODULE)"


def _cells(row: dict[str, Any], head: tuple[str, ...]) -> list[str]:
    values = [row[column.lower()] for column in head]
    return [", ".join(v) if isinstance(v, list) else str(v or DASH) for v in values]
