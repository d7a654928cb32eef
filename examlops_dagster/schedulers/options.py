"""A request in the words of one scheduler: options of sbatch and of flux."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examlops_dagster.errors import UsageError
from examlops_dagster.schedulers.resources import Resources

_SLURM_OWN = {
    "job-name", "comment", "output", "error", "input", "chdir", "array", "parsable", "requeue",
    "no-requeue", "export", "export-file", "open-mode", "wait", "wrap", "test-only", "help",
    "version", "quiet", "verbose", "ignore-pbs",
}  # fmt: skip
_FLUX_OWN = {
    "job-name", "output", "error", "input", "cwd", "cc", "bcc", "env", "env-remove", "env-file",
    "dry-run", "wait", "watch", "quiet", "verbose", "progress", "jps", "log", "log-stderr",
    "wrap", "dump", "help", "unbuffered", "label-io",
}  # fmt: skip
_SLURM_PORTABLE = {
    "time": "time", "mem": "mem", "gpus": "gpus", "gpus-per-node": "gpus_per_node",
    "nodes": "nodes", "ntasks": "ntasks", "cpus-per-task": "cpus_per_task",
    "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
    "reservation": "reservation", "exclusive": "exclusive",
}  # fmt: skip
_FLUX_PORTABLE = {
    "time-limit": "time", "nodes": "nodes", "ntasks": "ntasks", "nslots": "ntasks",
    "cores-per-task": "cpus_per_task", "cores-per-slot": "cpus_per_task",
    "gpus-per-task": "gpus", "gpus-per-slot": "gpus", "gpus-per-node": "gpus_per_node",
    "queue": "partition", "bank": "account", "requires": "constraint", "exclusive": "exclusive",
}  # fmt: skip


def sbatch_options(resources: Resources, limit_seconds: float | None = None) -> list[str]:
    """Say a request to sbatch.

    Parameters
    ----------
    resources
        The request.
    limit_seconds
        Of the running time, in place of ``resources.time_seconds``. Slurm counts whole minutes,
        rounded up: it is the outer bound of the limit that the job keeps itself.

    Raises
    ------
    UsageError
        An extra option that this package sets itself, or that has a portable name.
    """
    seconds = limit_seconds if limit_seconds is not None else resources.time_seconds
    options: dict[str, Any] = {
        "time": None if seconds is None else max(1, math.ceil(seconds / 60)),
        "nodes": resources.nodes,
        "ntasks": resources.ntasks,
        "cpus-per-task": resources.cpus_per_task,
        "mem": None if resources.mem_mebibytes is None else f"{resources.mem_mebibytes}M",
        "gpus": resources.gpus,
        "gpus-per-node": resources.gpus_per_node,
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "constraint": resources.constraint,
        "reservation": resources.reservation,
        "exclusive": resources.exclusive or None,
    }
    _check_extras("slurm", resources.slurm, _SLURM_OWN, _SLURM_PORTABLE)
    options.update(resources.slurm)
    if resources.avoid_nodes:
        asked = options.get("exclude")
        excluded = [*(asked if isinstance(asked, (list, tuple)) else [asked])]
        options["exclude"] = ",".join(map(str, filter(None, (*excluded, *resources.avoid_nodes))))
    return _written(options)


@dataclass(frozen=True)
class FluxRequest:
    """A request to Flux.

    Attributes
    ----------
    nested
        Whether ``flux batch`` is needed: the program starts tasks of its own. ``flux submit`` is
        7 times quicker and tells FLUX_JOB_ID (facts/flux.md 2).
    """

    nested: bool
    options: list[str]


def flux_request(resources: Resources, limit_seconds: float | None = None) -> FluxRequest:
    """Say a request to Flux; time in seconds.

    Raises
    ------
    UsageError
        What Flux cannot express, by name; an extra option that this package sets itself.
    """
    _refuse_on_flux(resources)
    seconds = limit_seconds if limit_seconds is not None else resources.time_seconds
    nodes, tasks = resources.nodes, resources.ntasks
    nested = (nodes or 1) > 1 or (tasks or 1) > 1
    slots = tasks or nodes or 1
    if nodes is not None and slots < nodes:
        raise UsageError(
            f"resources nodes={nodes} and ntasks={tasks}: Flux needs at least one task a node"
        )
    options: dict[str, Any] = {
        "time-limit": None if seconds is None else f"{math.ceil(seconds)}s",
        "nodes": nodes or (1 if resources.exclusive else None),
        "nslots" if nested else "ntasks": slots,
        "cores-per-slot" if nested else "cores-per-task": resources.cpus_per_task,
        "gpus-per-slot" if nested else "gpus-per-task": _gpus_per_slot(resources, slots),
        "exclusive": bool(resources.exclusive) or None,
        "queue": resources.partition,
        "bank": resources.account,
        "requires": _requirement(resources),
    }
    _check_extras("flux", resources.flux, _FLUX_OWN, _FLUX_PORTABLE)
    return FluxRequest(nested, _written({**options, **resources.flux}))


def _requirement(resources: Resources) -> str | None:
    """Join what the user requires with the nodes that are to be avoided.

    Terms side by side are joined by "and", which binds before an "or" of the user (RFC 35;
    measured with flux-core 0.88.0).
    """
    asked, avoid = resources.constraint, ",".join(resources.avoid_nodes)
    if not avoid:
        return asked
    return f"({asked}) -host:{avoid}" if asked else f"-host:{avoid}"


def _refuse_on_flux(resources: Resources) -> None:
    refused = {
        "mem": (resources.mem_mebibytes, "it has no request for memory"),
        "qos": (resources.qos, "it has no QOS; a queue is named by partition"),
        "reservation": (resources.reservation, "it has no reservations"),
        "exclusive": (
            resources.exclusive if isinstance(resources.exclusive, str) else None,
            "it knows True and False only",
        ),
        "gpus": (resources.gpus and resources.gpus.kind, "it has no types; use constraint"),
        "gpus_per_node": (
            resources.gpus_per_node and resources.gpus_per_node.kind,
            "it has no types; use constraint",
        ),
    }
    problems = [f"resource {key}: Flux: {why}" for key, (value, why) in refused.items() if value]
    if problems:
        raise UsageError("\n".join(problems))


def _gpus_per_slot(resources: Resources, slots: int) -> int | None:
    if resources.gpus is not None:
        total, said = resources.gpus.count, f"gpus={resources.gpus}"
    elif resources.gpus_per_node is not None:
        total = resources.gpus_per_node.count * (resources.nodes or 1)
        said = f"gpus_per_node={resources.gpus_per_node}"
    else:
        return None
    if total % slots:
        raise UsageError(
            f"resource {said}: Flux gives each of the {slots} tasks the same number of GPUs, and "
            f"{total} do not divide so"
        )
    return total // slots


def _check_extras(
    room: str, extras: Mapping[str, Any], own: Collection[str], portable: Mapping[str, str]
) -> None:
    problems = [
        f"resource {room}: {name} is set by this package and cannot be given"
        for name in extras
        if name in own
    ]
    problems += [
        f"resource {room}: say {name} as resources[{portable[name]!r}]"
        for name in extras
        if name in portable
    ]
    if problems:
        raise UsageError("\n".join(problems))


def _written(options: Mapping[str, Any]) -> list[str]:
    """Write options by their long names; a list repeats one, True is a bare flag."""
    argv = []
    for name, value in options.items():
        values: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if one is None or one is False:
                continue
            argv.append(f"--{name}" if one is True else f"--{name}={one}")
    return argv


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as the options of both take them: ``0-3,7``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)
