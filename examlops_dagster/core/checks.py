"""What can be wrong with one declaration by itself."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.freshness import Always, FreshnessKind, Schedule
from examlops_dagster.core.seams import unknown_orchestrator
from examlops_dagster.core.sinks import sink_problems
from examlops_dagster.errors import Problem

SERIALIZERS = ("json", "pickle", "parquet")

RESOURCES = frozenset(
    {
        "time", "queue_time", "mem", "gpus", "gpus_per_node", "nodes", "ntasks", "cpus_per_task",
        "partition", "account", "qos", "constraint", "reservation", "exclusive", "setup", "slurm",
        "flux",
    }
)  # fmt: skip
"""The portable vocabulary; what only one scheduler has goes into ``slurm`` or ``flux``."""

SPECIAL_PARAMETERS = frozenset({"ds", "outlet_events", "inlet_events"})
"""Parameters that the platform supplies."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_KIND = re.compile(r"[a-z][a-z0-9_-]*")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_TEAM = re.compile(r"team:[a-zA-Z0-9_-]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG_PART = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")


def declaration_problems(
    declaration: Declaration, orchestrators: Collection[str]
) -> Iterator[Problem]:
    """Say all that is wrong with a declaration apart from its edges."""
    for message, remedy in _found(declaration, orchestrators):
        yield Problem(declaration.where or "command line", message, remedy)


def _found(d: Declaration, orchestrators: Collection[str]) -> Iterator[tuple[str, str]]:
    label = f"{d.node_type.value} {d.name!r}"
    for text in d.problems:
        yield f"{label}: {text}", ""
    yield from _name_problems(d, label)
    if d.function is not None:
        yield from _parameter_problems(d, label)
        yield from _freshness_problems(d, label)
        yield from _limit_problems(d, label)
        yield from _way_of_running_problems(d, label, orchestrators)
        yield from _display_problems(d, label)
        for text in sink_problems(d):
            yield f"{label}: {text}", ""
    if d.partitions is not None:
        for text in d.partitions.problems():
            yield f"{label}: {text}", ""


def _name_problems(d: Declaration, label: str) -> Iterator[tuple[str, str]]:
    if d.function is not None and not _NAME.fullmatch(d.name):
        yield (
            f"{label}: the name may hold letters, digits, '_', '.', '-' and '/' between parts",
            "give it a name= of these",
        )
    if not d.name.strip() or not d.name.isprintable():
        yield f"{label}: the name is empty or holds a control character", "rename it"
    if not isinstance(d.kind, str) or not _KIND.fullmatch(d.kind):
        yield f"{label}: kind {d.kind!r} is not a lower-case word", "dataset, feature, model, ..."


def _parameter_problems(d: Declaration, label: str) -> Iterator[tuple[str, str]]:
    parameters = d.parameters
    dimensions = [name for name, _ in d.partitions.dimensions] if d.partitions else []
    inputs = [edge.parameter for edge in d.upstreams if edge.parameter is not None]
    if parameters.positional and not d.command:
        yield (
            f"{label}: the function takes {', '.join(parameters.positional)} by position only, and "
            "is called by keyword",
            "take the '/' out of its parameters",
        )
    taken = {*parameters.names, *parameters.positional}
    for name in (*inputs, *dimensions):
        if name not in taken and not parameters.takes_any and not d.command:
            what = "partition dimension" if name in dimensions else "input"
            yield f"{label}: the function takes no parameter {name!r} for {what} {name!r}", ""
    for name in sorted(set(inputs) & set(dimensions)):
        yield f"{label}: {name!r} is an input and a partition dimension", "rename one"
    supplied = {*inputs, *dimensions, *SPECIAL_PARAMETERS}
    supplied |= {edge.name for edge in d.upstreams if edge.parameter is None}
    missing = sorted(parameters.required - supplied)
    if missing and not d.command:
        yield (
            f"{label}: nothing supplies parameter {', '.join(missing)}",
            "name an upstream so, use inputs={...}, or give a default",
        )


def _freshness_problems(d: Declaration, label: str) -> Iterator[tuple[str, str]]:
    freshness: object = d.freshness
    if isinstance(freshness, Schedule):
        problem = freshness.problem()
        if problem is not None:
            yield f"{label}: {problem}", ""
    elif not isinstance(freshness, FreshnessKind):
        yield f"{label}: freshness {freshness!r} is not Always, Manual or Schedule(...)", ""
    if d.node_type is NodeType.SENSOR and d.freshness is Always:
        yield (
            f"{label}: a sensor cannot be Always fresh, since nothing says when to look",
            "use Manual or Schedule(...)",
        )


def _limit_problems(d: Declaration, label: str) -> Iterator[tuple[str, str]]:
    timeout = d.timeout_seconds
    if timeout is not None and not (_is_number(timeout) and timeout > 0):
        yield f"{label}: timeout_seconds={timeout!r} is not a number above 0", "None sets no limit"
    if isinstance(d.retries, bool) or not isinstance(d.retries, int) or d.retries < 0:
        yield f"{label}: retries={d.retries!r} is not a number of further attempts", ""
    if not _is_number(d.retry_backoff) or d.retry_backoff < 0:
        yield f"{label}: retry_backoff={d.retry_backoff!r} is not a number of seconds", ""


def _way_of_running_problems(
    d: Declaration, label: str, orchestrators: Collection[str]
) -> Iterator[tuple[str, str]]:
    if d.serializer is not None and d.serializer not in SERIALIZERS:
        yield f"{label}: serializer {d.serializer!r} is none of {', '.join(SERIALIZERS)}", ""
    if d.orchestrator is not None and d.orchestrator not in orchestrators:
        yield (
            f"{label}: {unknown_orchestrator(d.orchestrator, orchestrators)}",
            _nearest(d.orchestrator, orchestrators),
        )
    for key in sorted(set(d.resources) - RESOURCES):
        yield (
            f"{label}: unknown resource {key!r}; known: {', '.join(sorted(RESOURCES))}",
            _nearest(key, RESOURCES),
        )


def _display_problems(d: Declaration, label: str) -> Iterator[tuple[str, str]]:
    for owner in d.owners:
        if not (_TEAM.fullmatch(str(owner)) or _EMAIL.fullmatch(str(owner))):
            yield f"{label}: owner {owner!r} is neither an e-mail address nor team:NAME", ""
    for key, value in d.tags.items():
        parts = str(key).split("/")
        if len(parts) > 2 or not all(_TAG_PART.fullmatch(part) for part in parts):  # noqa: PLR2004 - namespace/name
            yield f"{label}: tag {key!r} is not a Dagster tag (letters, digits, '_', '.', '-')", ""
        if not isinstance(value, str) or not _TAG_VALUE.fullmatch(value):
            yield f"{label}: tag {key}={value!r} is not up to 63 letters, digits, '_', '.', '-'", ""
    if d.group is not None and not _WORD.fullmatch(d.group):
        yield f"{label}: group {d.group!r} may hold letters, digits and '_'", ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _nearest(name: str, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else ""
