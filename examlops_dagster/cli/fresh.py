"""``exa run`` and ``exa get``, and what mends a failed build or sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from examlops_dagster.cli.arguments import (
    InProcessOption,
    NameArgument,
    OrchestratorOption,
    PartitionOption,
    ResourcesOption,
    complete_names,
)
from examlops_dagster.cli.assets import assets
from examlops_dagster.cli.common import (
    DetachOption,
    ExitCode,
    FileOption,
    JsonOption,
    ModuleOption,
    UrlOption,
    emit,
    guarded,
    options,
    tell,
)

if TYPE_CHECKING:
    from examlops_dagster.core.declarations import Declaration


@guarded
def run(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="An asset if it is due, a task or sensor always; all that is due by default.",
            autocompletion=complete_names,
        ),
    ] = None,
    orchestrator: OrchestratorOption = None,
    in_process: InProcessOption = False,
    detached: DetachOption = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Build everything that is due now, once.

    What waits for its schedule, for a Manual asset or for a request stays as it is.
    """
    chosen = options(context, module, file, as_json=as_json, url=url)
    if chosen.url is not None:
        from examlops_dagster.cli.remote import run_there

        run_there(chosen, names or [], orchestrator, local_options=in_process or detached)
        return
    if detached:
        from examlops_dagster.cli.detach import detach

        detach(chosen)
        return
    from examlops_dagster.cli.builds import print_due, stdout_kept
    from examlops_dagster.dagster_bridge.run import run_due_in

    with chosen.project(writing=True) as project, stdout_kept() as show:
        report = run_due_in(
            project,
            names or (),
            orchestrator=orchestrator,
            in_process=in_process,
            progress=show.progress,
        )
    code = print_due(report, as_json=chosen.as_json)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


@guarded
def get(
    context: typer.Context,
    name: NameArgument,
    partition: PartitionOption = None,
    path: Annotated[bool, typer.Option("--path", help="Print the path of the value.")] = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build an asset if it is stale, and print its value.

    JSON values are printed; others (a model, a table) by the path of their file.
    """
    from examlops_dagster.cli.builds import print_failures, stdout_kept
    from examlops_dagster.core.records import Node
    from examlops_dagster.dagster_bridge.run import materialize_in
    from examlops_dagster.errors import UsageError
    from examlops_dagster.formats import decode

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project:
        see_that_one_value_is_meant(project.declared(name), partition)
        with stdout_kept() as show:
            report = materialize_in(
                project, [name], partition=partition, named=False, progress=show.progress
            )
        code = print_failures(report)
        if code is not ExitCode.DONE:
            raise typer.Exit(code)
        nodes: list[Node] = list(report.targets)
        if len(nodes) != 1:
            raise UsageError(f"{name} has {len(nodes)} partitions → name one: --partition KEY")
        value, file_path = project.value(nodes[0])
        record = project.ledger.records(nodes)[nodes[0]]
        readable = value.format == "json" and not path
        if chosen.as_json:
            emit(
                {
                    "name": name,
                    "partition": nodes[0].partition or None,
                    "version": record.version,
                    "path": str(file_path),
                    "value": decode(value) if value.format == "json" else None,
                }
            )
        elif readable:
            emit(decode(value))
        else:
            typer.echo(str(file_path))


def see_that_one_value_is_meant(declaration: Declaration, partition: str | None) -> None:
    """Refuse what has no value, or many, before anything is built: no mail is sent by ``get``.

    Raises
    ------
    UsageError
        With the command that does what may have been meant.
    """
    from examlops_dagster.core.declarations import NodeType
    from examlops_dagster.errors import UsageError

    name = declaration.name
    if declaration.node_type is NodeType.TASK:
        raise UsageError(f"{name} is a task, which has no value → exa run {name} runs it")
    if declaration.node_type in (NodeType.DATASET, NodeType.ALIAS):
        raise UsageError(
            f"{name} is known only by its events, and has no value → exa assets aliases {name}"
        )
    if declaration.partitions is not None and partition is None:
        raise UsageError(f"{name} has partitions → name one: --partition KEY")


@assets.command("retry")
@guarded
def retry(
    context: typer.Context,
    name: NameArgument,
    partition: PartitionOption = None,
    orchestrator: OrchestratorOption = None,
    resources: ResourcesOption = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lift the hold on an asset, and build it.

    Attempts that failed or were cancelled hold it until its code, inputs or limits change.
    """
    from examlops_dagster.cli.builds import build_named

    build_named(
        options(context, module, file, as_json=as_json),
        [name],
        resources,
        partition=partition,
        orchestrator=orchestrator,
    )


@assets.command("sink")
@guarded
def sink(
    context: typer.Context,
    name: NameArgument,
    partition: PartitionOption = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the value of an asset to its sinks again.

    Nothing is built.
    """
    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True) as project:
        writes = project.rewrite_sinks(name, partition)
    if chosen.as_json:
        emit([{"name": str(w.node), "url": w.url, "error": w.error or None} for w in writes])
    for write in writes:
        if write.error:
            tell(f"Failed sink {write.url} of {write.node}: {write.error}")
        elif not chosen.as_json:
            typer.echo(f"Wrote {write.node} to {write.url}")
    if any(write.error for write in writes):
        raise typer.Exit(ExitCode.FAILED)
