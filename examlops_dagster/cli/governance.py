"""``exa audit`` and ``exa approvals``.

Annotations are real here, not strings: typer reads them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from examlops_dagster.cli.common import (
    DASH,
    ExitCode,
    JsonOption,
    emit,
    guarded,
    home_here,
    options,
    table,
    tell,
)
from examlops_dagster.cli.times import local_time

if TYPE_CHECKING:
    from datetime import datetime

    from examlops_dagster.core.approvals import Approval
    from examlops_dagster.governance.audit import AuditRow
    from examlops_dagster.governance.governor import Governor

audit = typer.Typer(
    help="Show and prove what was asked, by whom, and what came of it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
approvals = typer.Typer(
    help="Show, grant and refuse what waits until somebody else agrees.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ApprovalArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of an approval, or how it begins.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="For who asked, and for the log.")]


@audit.command("list")
@guarded
def list_(
    context: typer.Context,
    asset: Annotated[str | None, typer.Option(help="Only rows about this asset.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action: asset_materialize, declare, ...")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="2026-01-05, 2026-01-05T12:00+01:00, or an age: 2h, 7d.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Rows, newest first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the latest rows of the audit log, newest first."""
    chosen = options(context, as_json=as_json)
    moment = None if since is None else _moment(since)
    with _governor() as governor:
        rows = (
            []
            if governor is None
            else governor.audit.listed(asset=asset, action=action, since=moment, limit=limit)
        )
    if chosen.as_json:
        emit([row.as_json for row in rows])
    elif rows:
        head = ("Number", "Time", "Actor", "Action", "Assets", "Details")
        typer.echo(table(head, map(_cells, rows)))
    else:
        typer.echo("Nothing is in the audit log.")


@audit.command("verify")
@guarded
def verify(context: typer.Context, as_json: JsonOption = False) -> None:
    """Follow the chain of hashes to the first row that does not hold.

    Keep the number and the head that it prints elsewhere: who can write to the database could
    write a whole new chain.
    """
    chosen = options(context, as_json=as_json)
    with _governor() as governor:
        if governor is None:
            chosen.say("Nothing is in the audit log.", count=0, head="")
            return
        found = governor.audit.verify()
    if found.ok:
        rows = "1 row holds" if found.count == 1 else f"{found.count} rows hold"
        chosen.say(f"{rows}; head {found.head}", count=found.count, head=found.head)
        return
    if chosen.as_json:
        emit({"ok": False, "broken": found.broken, "reason": found.reason, "count": found.count})
    tell(f"The audit log is broken at row {found.broken}: {found.reason}")
    raise typer.Exit(ExitCode.FAILED)


@audit.command("export")
@guarded
def export(
    context: typer.Context,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="A file; stdout by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write every row as a line of JSON, oldest first.

    A row's hash is the sha256 of the others of its keys as JSON: sorted, without spaces, ASCII.
    """
    from pathlib import Path

    from examlops_dagster.governance.audit import canonical

    chosen = options(context, as_json=as_json)
    count = 0
    partial = None if output is None else Path(f"{output}.partial")
    with _governor() as governor, _stream(partial) as write:
        for row in governor.audit.rows() if governor is not None else ():
            write(f"{canonical(row.as_json)}\n")
            count += 1
    if partial is not None and output is not None:
        partial.replace(output)
        rows = "1 row" if count == 1 else f"{count} rows"
        chosen.say(f"Wrote {rows} to {output}", count=count, file=output)


@approvals.command("list")
@guarded
def approvals_list(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are used up or expired.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what waits for approval, and grants that still hold."""
    chosen = options(context, as_json=as_json)
    with _governor() as governor:
        found = [] if governor is None else governor.approvals.listed(everything=everything)
    if chosen.as_json:
        emit([_as_json(approval) for approval in found])
    elif found:
        head = ("Id", "State", "Asked by", "Action", "Assets", "Asked", "Until", "Why")
        typer.echo(table(head, map(_approval_cells, found)))
    else:
        typer.echo("Nothing waits for approval.")


@approvals.command("grant")
@guarded
def grant(
    context: typer.Context,
    name: ApprovalArgument,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let who asked build that slice, once.

    It holds for the time that policy.yaml allows.
    """
    chosen = options(context, as_json=as_json)
    approval = _settled(name, reason, grant=True)
    until = local_time(approval.expires_at) if approval.expires_at else ""
    chosen.say(
        f"Granted {approval.id} to {approval.actor} until {until}: {_assets(approval)}",
        **_as_json(approval),
    )


@approvals.command("refuse")
@guarded
def refuse(
    context: typer.Context,
    name: ApprovalArgument,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Refuse what somebody asked for.

    Who asked is told, and may ask again later.
    """
    chosen = options(context, as_json=as_json)
    approval = _settled(name, reason, grant=False)
    chosen.say(
        f"Refused {approval.id} to {approval.actor}: {_assets(approval)}", **_as_json(approval)
    )


def _settled(name: str, reason: str, *, grant: bool) -> "Approval":
    from examlops_dagster.errors import UsageError

    with _governor() as governor:
        if governor is None:
            raise UsageError(f"there is no approval {name!r}: nothing was ever asked for here")
        return governor.settle_approval(name, grant=grant, comment=reason)


@contextmanager
def _governor() -> "Iterator[Governor | None]":
    """Open the log of the home, with what is still to be recorded; None where nothing was done."""
    from examlops_dagster.governance.governor import Governor
    from examlops_dagster.store.engine import Database
    from examlops_dagster.store.migrations import migrate

    home = home_here()
    database = Database(home.database)
    if not database.exists:
        yield None
        return
    try:
        migrate(database)
        governor = Governor(home, database)
        governor.settle()
        yield governor
    finally:
        database.close()


@contextmanager
def _stream(path: Any) -> Iterator[Any]:
    if path is None:
        yield lambda text: typer.echo(text, nl=False)
        return
    with path.open("w", encoding="utf-8") as file:
        yield file.write


def _moment(text: str) -> "datetime":
    from datetime import datetime, timedelta, timezone

    from examlops_dagster.errors import UsageError
    from examlops_dagster.schedulers.resources import parse_time

    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        try:
            return datetime.now(timezone.utc) - timedelta(seconds=parse_time(text))
        except ValueError:
            raise UsageError(
                f"--since {text!r} is neither a date (2026-01-05) nor an age (2h, 7d)"
            ) from None
    return found.astimezone()  # without a zone it is local time


def _cells(row: "AuditRow") -> tuple[str, ...]:
    import json

    kept = {k: v for k, v in row.details.items() if v not in ("", [], {}, None, False)}
    for wordy in ("request", "builds", "nodes", "policy", "targets"):
        kept.pop(wordy, None)
    words = ", ".join(
        f"{k}={v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}"
        for k, v in kept.items()
    )
    return (
        str(row.number),
        local_time(row.at),
        row.actor or DASH,
        row.action,
        ", ".join(row.assets) or DASH,
        words or DASH,
    )


def _approval_cells(approval: "Approval") -> tuple[str, ...]:
    until = approval.expires_at
    return (
        approval.id,
        approval.state.value,
        approval.actor,
        approval.action,
        _assets(approval),
        local_time(approval.asked_at),
        DASH if until is None else local_time(until),
        f"{approval.reason}: {approval.comment}" if approval.comment else approval.reason,
    )


def _assets(approval: "Approval") -> str:
    return ", ".join(map(str, approval.nodes))


def _as_json(approval: "Approval") -> dict[str, Any]:
    def text(moment: "datetime | None") -> str | None:
        return None if moment is None else moment.isoformat()

    return {
        "id": approval.id,
        "state": approval.state.value,
        "action": approval.action,
        "actor": approval.actor,
        "source": approval.source,
        "assets": [
            {"name": node.asset, "partition": node.partition or None} for node in approval.nodes
        ],
        "rule": approval.rule or None,
        "reason": approval.reason,
        "asked_at": text(approval.asked_at),
        "decided_by": approval.decided_by or None,
        "decided_at": text(approval.decided_at),
        "comment": approval.comment or None,
        "expires_at": text(approval.expires_at),
    }
