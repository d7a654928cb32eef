"""How a request that builds is shown while it runs, and at its end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer

from examlops_dagster.cli.common import ExitCode, Options, emit, tell
from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.report import Report
from examlops_dagster.dagster_bridge.report import as_json as report_as_json
from examlops_dagster.dagster_bridge.run import materialize_in
from examlops_dagster.governance.refusals import with_remedy
from examlops_dagster.schedulers.resources import resources_of_pairs


class Terminal:
    """Writes for the person who waits, to stderr as it was before logs were captured."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def progress(self, text: str) -> None:
        """Say in one line what is going on."""
        with suppress(OSError), self._lock:
            self._stream.write(f"  {text}\n")
            self._stream.flush()


@contextmanager
def stdout_kept() -> Iterator[Terminal]:
    """Keep stdout for the result.

    What functions print goes to stderr meanwhile, and Dagster captures both for the run's log by
    swapping the file descriptors, which is why progress is written to one of its own.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept, own = os.dup(1), os.dup(2)
    os.dup2(2, 1)
    stream = os.fdopen(own, "w", encoding="utf-8", errors="replace")
    try:
        yield Terminal(stream)
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        stream.close()


def build_named(
    chosen: Options, names: Sequence[str], resources: Sequence[str] | None, **how: Any
) -> None:
    """Build what a person named, print what came of it, and end with its exit code.

    Parameters
    ----------
    resources
        ``KEY=VALUE`` texts.
    how
        As `materialize_in` takes it.
    """
    over = resources_of_pairs(resources or ())
    with chosen.project(writing=True) as project, stdout_kept() as show:
        report = materialize_in(project, names, resources=over, progress=show.progress, **how)
    code = print_report(report, names, as_json=chosen.as_json)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


def print_report(report: Report, names: Sequence[str], *, as_json: bool) -> ExitCode:
    """Print what a request did, and give its exit code."""
    if as_json:
        emit(report_as_json(report))
    elif report.ok:
        _print_success(report, names)
    return print_failures(report)


def print_due(report: Report, *, as_json: bool) -> ExitCode:
    """Print what building everything that was due did, and give its exit code."""
    if as_json:
        emit(report_as_json(report))
    elif report.rebuilt:
        typer.echo(f"Built what was due: {_names(report.rebuilt)}")
        if report.unchanged:
            typer.echo(f"  unchanged (not rebuilt): {_names(report.unchanged)}")
    elif report.ok:
        typer.echo("Nothing is due.")
    return print_failures(report)


def print_failures(report: Report) -> ExitCode:
    """Print on stderr what went wrong, and give the exit code."""
    for node, why in report.fallbacks.items():
        tell(f"{node} fell back to {why}")
    for refusal in report.blocked:
        tell(with_remedy(refusal))
    for failed in report.failed:
        tell(f"Failed {failed.node}: {failed.reason}")
        if failed.log:
            tell(f"  log: {failed.log}")
    for write in report.failed_sinks:
        tell(f"Failed sink {write.url} of {write.node}: {write.error}")
        tell(f"  the value is kept; write it again: exa assets sink {write.node.asset}")
    if not report.ok and report.rebuilt:
        tell(f"  rebuilt before: {_names(report.rebuilt)}")
    if report.cancelled:
        tell("Interrupted; what was built stays recorded.")
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if report.ok else ExitCode.FAILED


def _print_success(report: Report, names: Sequence[str]) -> None:
    target = ", ".join(names)
    if not report.rebuilt and not report.unchanged:
        typer.echo(f"{target} already fresh — nothing to rebuild.")
        return
    if report.rebuilt:
        typer.echo(f"Materialized {target}: rebuilt {_names(report.rebuilt)}")
    else:
        typer.echo(f"{target} is fresh again — nothing had to be rebuilt.")
    if report.skipped:
        typer.echo(f"  skipped (fresh): {_names(report.skipped)}")
    if report.unchanged:
        typer.echo(f"  unchanged (not rebuilt): {_names(report.unchanged)}")
    for node, why in report.deferred.items():
        typer.echo(f"  not triggered: {node} ({why})")
    for node, why in report.fallbacks.items():
        typer.echo(f"  fallback: {node} {why}")


def _names(nodes: Iterable[Node]) -> str:
    """Name nodes; the partitions of one asset by their number."""
    by_asset: dict[str, list[Node]] = {}
    for node in nodes:
        by_asset.setdefault(node.asset, []).append(node)
    return ", ".join(
        str(found[0]) if len(found) == 1 else f"{asset} ({len(found)} partitions)"
        for asset, found in by_asset.items()
    )
