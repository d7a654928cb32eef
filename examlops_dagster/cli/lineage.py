"""``exa lineage``: the OpenLineage events of an asset, and their delivery.

Annotations are real here, not strings: typer reads them.
"""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from examlops_dagster.cli.arguments import complete_names
from examlops_dagster.cli.common import (
    ExitCode,
    FileOption,
    JsonOption,
    ModuleOption,
    Options,
    emit,
    guarded,
    options,
    table,
    tell,
)
from examlops_dagster.cli.times import local_time
from examlops_dagster.errors import UsageError

if TYPE_CHECKING:
    from examlops_dagster.governance.lineage_spool import Spooled
    from examlops_dagster.project import Project

DELIVER = "deliver"


@guarded
def lineage(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"Name of an asset; `{DELIVER}` delivers what waits.",
            autocompletion=complete_names,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Latest attempts shown.")] = 10,
    undelivered: Annotated[
        bool, typer.Option("--undelivered", help="Show the events that no backend has, and why.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help=f"With `{DELIVER}`: also the events that the backend refused."
        ),
    ] = False,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the OpenLineage events of an asset.

    The newest attempts are shown; --json prints the events as they are sent. They go to
    EXAMLOPS_OPENLINEAGE_URL, else where OpenLineage's own configuration says, by a sensor of
    Dagster, beside each command that builds, and after one that changes a source. With
    no backend they stay in platform.db.
    """
    chosen = options(context, module, file, as_json=as_json)
    if undelivered:
        _show_undelivered(chosen, limit)
    elif name == DELIVER:
        _deliver(chosen, again=again)
    elif name is None:
        raise UsageError(
            f"name an asset, or say `exa lineage --undelivered` or `exa lineage {DELIVER}`"
        )
    else:
        _show(chosen, name, limit)


def _show(chosen: Options, name: str, limit: int) -> None:
    from examlops_dagster.core.records import BuildState
    from examlops_dagster.governance.lineage_events import end_of, start_of
    from examlops_dagster.governance.lineage_names import Names
    from examlops_dagster.governance.lineage_rows import facts_of_asset
    from examlops_dagster.governance.lineage_spool import Phase, Spool

    with chosen.project() as project:
        with project.database.read() as connection:
            found = facts_of_asset(connection, name, limit)
        if not found:
            project.declared(name)
        states = Spool(project.database).states_of(facts.build_id for facts in found)
        names = Names.of(project.home.environment)
    rows: list[Sequence[str]] = []
    events: list[Any] = []
    for facts in reversed(found):
        made = [] if facts.is_reported else [(Phase.START, start_of(facts, names))]
        if facts.state is not BuildState.RUNNING:
            made.append((Phase.END, end_of(facts, names)))
        for phase, event in made:
            events.append(event)
            kept = states.get((facts.build_id, phase))
            rows.append(_row(event, facts.node.partition, kept))
    if chosen.as_json:
        from openlineage.client.serde import Serde

        emit([Serde.to_dict(event) for event in events])
    elif rows:
        typer.echo(table(("When", "Event", "Partition", "Inputs", "Outputs", "Delivery"), rows))
    else:
        typer.echo(f"{name} was never built.")


def _row(event: Any, partition: str, kept: "Spooled | None") -> Sequence[str]:
    return (
        local_time(event.eventTime),
        event.eventType.value,
        partition or "—",
        ", ".join(map(_named, event.inputs)) or "—",
        ", ".join(map(_named, event.outputs)) or "—",
        "waiting" if kept is None else _delivery(kept),
    )


def _named(dataset: Any) -> str:
    versions = dataset.facets.get("examlops_versions")
    if versions is None:
        return str(dataset.name)
    if versions.total > 1:
        return f"{dataset.name} ({versions.total} partitions)"
    return f"{dataset.name} v{versions.versions[0]['version']}"


def _delivery(kept: "Spooled") -> str:
    from examlops_dagster.governance.lineage_spool import Delivery

    word = "set aside" if kept.state is Delivery.SET_ASIDE else kept.state.value
    return f"{word}: {kept.reason}" if kept.reason else word


def _show_undelivered(chosen: Options, limit: int) -> None:
    from examlops_dagster.governance.lineage_backend import is_configured
    from examlops_dagster.governance.lineage_spool import Spool

    with chosen.project(bare=True) as project:
        spool = Spool(project.database)
        if project.home.exists and project.database.exists:
            while not spool.collect():
                pass
        found, counts, outage = spool.undelivered(limit), spool.counts(), spool.outage()
        backend = is_configured(project.home)
    if chosen.as_json:
        emit(
            {
                **counts,
                "backend": backend,
                "outage": outage.reason if outage else None,
                "events": [
                    {
                        "name": each.asset,
                        "partition": each.partition or None,
                        "event": "START" if each.phase.is_start else "END",
                        "state": each.state.value,
                        "refusals": each.refusals,
                        "reason": each.reason or None,
                    }
                    for each in found
                ],
            }
        )
        return
    typer.echo(f"{counts['waiting']} lineage events wait, {counts['set_aside']} are set aside.")
    if not backend:
        typer.echo("There is no backend: set EXAMLOPS_OPENLINEAGE_URL, or write openlineage.yml.")
    if outage is not None:
        at = local_time(datetime.fromtimestamp(outage.next_at, timezone.utc))
        typer.echo(
            f"The backend cannot be reached ({outage.reason}); the next try is at "
            f"{at}, or now: exa lineage {DELIVER}"
        )
    if found:
        rows = [
            (
                each.asset or "—",
                each.partition or "—",
                "START" if each.phase.is_start else "end",
                _delivery(each),
            )
            for each in found
        ]
        typer.echo(table(("Asset", "Partition", "Event", "Delivery"), rows))


def _deliver(chosen: Options, *, again: bool) -> None:
    from examlops_dagster.governance.lineage import deliver
    from examlops_dagster.governance.lineage_backend import is_configured
    from examlops_dagster.governance.lineage_spool import Spool

    with chosen.project(writing=True) as project:
        if not is_configured(project.home):
            raise UsageError(
                "there is no lineage backend → set EXAMLOPS_OPENLINEAGE_URL, or configure "
                "OpenLineage's client (OPENLINEAGE_URL, openlineage.yml)"
            )
        _bury_the_dead(project)
        if again:
            Spool(project.database).try_again()
        done = deliver(project.database, project.home, patient=False)
    if chosen.as_json:
        emit(
            {
                "delivered": done.delivered,
                "waiting": done.waiting,
                "set_aside": done.set_aside,
                "outage": done.outage or None,
            }
        )
    else:
        (tell if done.outage else typer.echo)(f"{done}.")
    if done.outage:
        raise typer.Exit(ExitCode.FAILED)


def _bury_the_dead(project: "Project") -> None:
    """Record the deaths of those who died while they built, so that their lineage ends too."""
    if project.home.exists and project.ledger.has_running():
        project.event_log.sync()
        project.ledger.bury()
