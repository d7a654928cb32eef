"""``exa data``.

Annotations are real here, not strings: typer reads them.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from examlops_dagster.cli.arguments import complete_names
from examlops_dagster.cli.common import (
    DASH,
    FileOption,
    JsonOption,
    ModuleOption,
    emit,
    guarded,
    options,
    table,
    tell,
)
from examlops_dagster.cli.times import local_time

if TYPE_CHECKING:
    from examlops_dagster.catalog.content import Meter
    from examlops_dagster.catalog.differences import Difference
    from examlops_dagster.catalog.revisions import Revision
    from examlops_dagster.project.datasets import Recorded

data = typer.Typer(
    help="Record what datasets hold; keep, list and compare it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _revisions(context: typer.Context) -> "list[Revision]":
    with options(context).project(bare=True) as project:
        return project.revisions.of()


def complete_datasets(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of datasets that have revisions."""
    try:
        names = list(dict.fromkeys(r.dataset for r in _revisions(context)))
    except Exception:  # noqa: BLE001 - completion must stay silent
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_revisions(context: typer.Context, incomplete: str) -> list[str]:
    """Complete revisions, by themselves and behind the names of their datasets."""
    try:
        found = _revisions(context)
    except Exception:  # noqa: BLE001 - completion must stay silent
        return []
    words = [w for r in found for w in (r.dataset, str(r), r.shown)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


RevisionArgument = Annotated[
    str,
    typer.Argument(
        help="DATASET (its last), DATASET@REVISION, or the beginning of a revision.",
        autocompletion=complete_revisions,
    ),
]


@data.command("snapshot")
@guarded
def snapshot(
    context: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(help="Name of the dataset's asset.", autocompletion=complete_names),
    ],
    path: Annotated[str, typer.Option("--path", "-p", help="Folder or file with its content.")],
    backend: Annotated[
        str,
        typer.Option("--backend", "-b", help="local keeps the hashes, minio (any S3) the files."),
    ] = "local",
    bucket: Annotated[
        str | None, typer.Option(help="Of minio; EXAMLOPS_S3_BUCKET by default.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="In the bucket; EXAMLOPS_S3_PREFIX by default.")
    ] = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record what a dataset holds now.

    A new content advances its asset. A run that was interrupted continues where it was. A dataset
    that nobody has declared is declared by its first revision.
    """
    from examlops_dagster.catalog.backends import backend_named
    from examlops_dagster.project import datasets

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(writing=True, tells_lineage=True) as project, _meter() as meter:
        kept = backend_named(
            backend, bucket=bucket, prefix=prefix, environment=project.home.environment
        )
        recorded = datasets.snapshot(project, dataset, path, kept, meter)
    for note in recorded.notes:
        tell(f"Note: {note}")
    if recorded.held_up:
        tell(f"Warning: {recorded.held_up}")
    chosen.say(_told(recorded), new=recorded.new, **_facts(recorded.revision))


@data.command("list")
@guarded
def list_(
    context: typer.Context,
    dataset: Annotated[
        str | None,
        typer.Argument(help="Name of a dataset; all by default.", autocompletion=complete_datasets),
    ] = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the recorded revisions, oldest first."""
    from examlops_dagster.errors import UnknownAssetError

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(bare=True) as project:
        project.catch_up()
        found = project.revisions.of(dataset)
        if dataset is not None and not found:
            declared = [d.name for d in project.catalog.all()]
            if dataset not in declared:
                raise UnknownAssetError(dataset, [*project.revisions.datasets(), *declared])
    if chosen.as_json:
        emit([_facts(revision) for revision in found])
    elif found:
        head = ("Dataset", "Revision", "Version", "Files", "Size", "Rows", "Backend", "Recorded")
        typer.echo(table(head, [_row(revision) for revision in found]))
    else:
        typer.echo("No revisions recorded. Use: exa data snapshot DATASET --path PATH")


@data.command("diff")
@guarded
def diff(
    context: typer.Context,
    old: RevisionArgument,
    new: Annotated[
        str | None,
        typer.Argument(
            help="The same; without it the last two contents of the first are compared.",
            autocompletion=complete_revisions,
        ),
    ] = None,
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two revisions: files, sizes, columns and rows."""
    from examlops_dagster.catalog.differences import difference

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(bare=True) as project:
        revisions = project.revisions
        first, second = (
            revisions.last_two(old) if new is None else (revisions.find(old), revisions.find(new))
        )
        found = difference(revisions.content(first), revisions.content(second))
    if chosen.as_json:
        # in ASCII: the name of a file may hold bytes that no text has
        typer.echo(json.dumps(_difference_json(first, second, found), indent=2))
        return
    typer.echo(f"{first} → {second}")
    for line in _lines(found):
        typer.echo(f"  {line}")


@data.command("checkout")
@guarded
def checkout(
    context: typer.Context,
    revision: RevisionArgument,
    to: Annotated[str, typer.Option("--to", help="Folder: missing or empty.")],
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the files of a kept revision into a folder.

    It sees that they have their hashes.
    """
    from examlops_dagster.project import datasets

    chosen = options(context, module, file, as_json=as_json)
    with chosen.project(bare=True) as project, _meter() as meter:
        found, content = datasets.checkout(project, revision, Path(to), meter)
    count = len(content.files)
    chosen.say(
        f"Wrote {found} to {to} ({_counted(count, 'file')}, {_size(content.byte_count)})",
        **_facts(found),
        folder=to,
    )


@contextmanager
def _meter() -> "Iterator[Meter | None]":
    """Show a progress bar on stderr, if a person looks at it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        class Bar:
            def begin(self, what: str, total: int) -> None:
                for task in list(progress.task_ids):
                    progress.remove_task(task)
                self._task = progress.add_task(what, total=total)

            def add(self, amount: int) -> None:
                progress.advance(self._task, amount)

        yield Bar()


def _told(recorded: "Recorded") -> str:
    revision = recorded.revision
    version = f" (v{revision.version})" if revision.version else ""
    if not recorded.new:
        return (
            f"{revision.dataset} is at revision {revision.shown} already{version} "
            "— nothing changed."
        )
    count, size = revision.facts.file_count, revision.facts.byte_count
    content = f" ({_counted(count, 'file')}, {_size(size)})" if count and size is not None else ""
    text = f"Snapshot recorded: {revision.dataset} @ {revision.shown}{content}"
    return f"{text}; {revision.dataset} is at v{revision.version} now" if version else text


def _facts(revision: "Revision") -> dict[str, Any]:
    facts = revision.facts
    return {
        "dataset": revision.dataset,
        "revision_id": revision.revision,
        "version": revision.version,
        "kind": "dataset",
        "backend": revision.backend,
        "uri": revision.uri,
        "file_count": facts.file_count,
        "byte_count": facts.byte_count,
        "row_count": facts.row_count,
        "schema_hash": facts.schema_hash,
        "actor": revision.actor,
        "recorded_at": revision.recorded_at.isoformat(),
    }


def _row(revision: "Revision") -> list[str]:
    facts = revision.facts
    size = DASH if facts.byte_count is None else _size(facts.byte_count)
    numbers = (revision.version, facts.file_count, facts.row_count)
    version, files, rows = (DASH if n is None else str(n) for n in numbers)
    at = local_time(revision.recorded_at)
    return [revision.dataset, revision.shown, version, files, size, rows, revision.backend, at]


def _difference_json(old: "Revision", new: "Revision", found: "Difference") -> dict[str, Any]:
    return {
        "from": {"dataset": old.dataset, "revision_id": old.revision},
        "to": {"dataset": new.dataset, "revision_id": new.revision},
        "added": dict(found.added),
        "removed": dict(found.removed),
        "changed": {n: {"from": a, "to": b} for n, (a, b) in found.changed.items()},
        "columns_added": dict(found.columns_added),
        "columns_removed": dict(found.columns_removed),
        "columns_changed": {n: {"from": a, "to": b} for n, (a, b) in found.columns_changed.items()},
        "row_count": {"from": found.rows[0], "to": found.rows[1]},
    }


def _lines(found: "Difference") -> Iterator[str]:
    """Tell a difference; removed, added and changed as - + ~."""
    if found.is_empty:
        yield "no file differs"
    for name, size in found.removed.items():
        yield f"- {_shown(name)} ({_size(size)})"
    for name, size in found.added.items():
        yield f"+ {_shown(name)} ({_size(size)})"
    for name, (old, new) in found.changed.items():
        yield f"~ {_shown(name)} ({_size(old)} → {_size(new)})"
    for name, kind in found.columns_removed.items():
        yield f"- column {_shown(name)}: {kind}"
    for name, kind in found.columns_added.items():
        yield f"+ column {_shown(name)}: {kind}"
    for name, (before, after) in found.columns_changed.items():
        yield f"~ column {_shown(name)}: {before} → {after}"
    if found.rows[0] != found.rows[1]:
        yield "~ rows: {} → {}".format(*(DASH if n is None else f"{n:,}" for n in found.rows))


def _shown(name: str) -> str:
    """Write a name in one line; what a terminal must not get is escaped."""
    return name if name.isprintable() else json.dumps(name)


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def _size(number: int) -> str:
    """Write bytes in the unit that leaves three digits or fewer."""
    amount, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1000 and len(units) > 1:  # noqa: PLR2004 - 999.9 KiB, then 1.0 MiB
        amount, units = amount / 1024, units[1:]
    return f"{number} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"
