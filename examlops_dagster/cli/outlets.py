"""``exa assets aliases`` and ``exa assets emit``.

Annotations are real here, not strings: typer reads them.
"""

from typing import Annotated, Any

import typer

from examlops_dagster.cli.arguments import complete_names
from examlops_dagster.cli.assets import assets
from examlops_dagster.cli.common import (
    DASH,
    FileOption,
    JsonOption,
    ModuleOption,
    emit,
    guarded,
    options,
    table,
)
from examlops_dagster.cli.times import local_time

_ALIAS_HEAD = ("Alias", "Events", "Producers", "Last dataset", "When")
_EVENT_HEAD = ("Event", "Dataset", "When", "By", "Run", "Extra")


@assets.command("aliases")
@guarded
def aliases(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="An alias; all by default.", autocompletion=complete_names),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Events, newest first.")] = 20,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what aliases were resolved to, when and by whom."""
    from examlops_dagster.project.views import event_as_json

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project() as project:
        if name is None:
            rows = [
                {
                    "alias": found.name,
                    "version": found.version,
                    "producers": list(found.producers),
                    "last": None if found.last is None else event_as_json(found.last),
                }
                for found in project.aliases()
            ]
        else:
            rows = [event_as_json(event) for event in project.resolved(name, limit)]
    if chosen.as_json:
        emit(rows)
    elif not rows:
        what = (
            "No aliases are declared." if name is None else f"{name} was resolved to nothing yet."
        )
        typer.echo(what)
    elif name is None:
        typer.echo(table(_ALIAS_HEAD, map(_alias_cells, rows)))
    else:
        typer.echo(table(_EVENT_HEAD, map(_event_cells, rows)))


@assets.command("emit")
@guarded
def emit_(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="An alias, or the dataset itself.", autocompletion=complete_names),
    ],
    uri: Annotated[str | None, typer.Argument(help="The dataset that was written.")] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A fact about this event; a JSON object for many."),
    ] = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Emit an event of a dataset for a producer outside.

    What follows the alias or the dataset is stale then.
    """
    from examlops_dagster.project.views import event_as_json

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, tells_lineage=True) as project:
        event = project.emit(name, uri if uri is not None else name, _facts(extra or ()))
    through = f" to {name}" if name != event.uri else ""
    chosen.say(f"Emitted {event.uri}{through}", **event_as_json(event))


def _facts(texts: list[str] | tuple[()]) -> dict[str, Any]:
    import json

    from examlops_dagster.errors import UsageError

    facts: dict[str, Any] = {}
    for text in texts:
        if text.lstrip().startswith("{"):
            try:
                found = json.loads(text)
            except ValueError as error:
                raise UsageError(f"--extra {text!r} is no JSON object: {error}") from error
            facts.update(found)
            continue
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--extra {text!r} is neither KEY=VALUE nor a JSON object")
        try:
            facts[key] = json.loads(value)
        except ValueError:
            facts[key] = value
    return facts


def _alias_cells(row: dict[str, Any]) -> list[str]:
    last = row["last"]
    return [
        row["alias"],
        str(row["version"] or DASH),
        ", ".join(row["producers"]) or DASH,
        last["dataset"] if last else DASH,
        local_time(last["at"]) if last else DASH,
    ]


def _event_cells(row: dict[str, Any]) -> list[str]:
    import json

    source = row["source"] or "outside"
    if row["source_partition"]:
        source += f"[{row['source_partition']}]"
    dataset = f"{row['dataset']}[{row['partition']}]" if row["partition"] else row["dataset"]
    return [
        str(row["version"]),
        dataset,
        local_time(row["at"]),
        source,
        (row["run_id"] or DASH)[:8],
        json.dumps(row["extra"], ensure_ascii=False) if row["extra"] else DASH,
    ]
