"""The portable vocabulary of ``resources``: what each value may be, whatever the scheduler.

``options.py`` says it in the words of one scheduler.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from examlops_dagster.core.checks import RESOURCES
from examlops_dagster.errors import UsageError

TIME_FORMS = "D-HH:MM:SS, HH:MM:SS, 90m, 1h30m or 30d"

_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,4}):([0-5]\d):([0-5]\d)")
_UNITS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP])(?:i?B)?", re.IGNORECASE)
_GPUS = re.compile(r"(?:([A-Za-z][A-Za-z0-9_.-]*):)?(\d+)")
_OPTION = re.compile(r"[a-z][a-z0-9]+(-[a-z0-9]+)*")
_MEBIBYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_COMMA = re.compile(r",(?=\s*[A-Za-z_][\w.-]*=)")
_COUNTS = ("nodes", "ntasks", "cpus_per_task")
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}
_EXCLUSIVE_KINDS = ("user", "mcs", "topo")
_AVOIDED = "avoid_nodes"
"""No word of the vocabulary of users, who have a constraint (Flux) or an exclude (Slurm)."""


@dataclass(frozen=True)
class Gpus:
    """A number of GPUs, and their type where one was named (``a100:2``)."""

    count: int
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}" if self.kind else str(self.count)


@dataclass(frozen=True)
class Resources:
    """A request that is valid in itself; None stands for the scheduler's own default.

    Attributes
    ----------
    time_seconds
        Limit of the running time.
    queue_time_seconds
        Limit of the waiting time, which the orchestrator keeps.
    mem_mebibytes
        Per node.
    gpus
        Of the whole job.
    exclusive
        Whole nodes; a word is a kind of exclusiveness that only Slurm has.
    setup
        Lines of shell before the interpreter.
    slurm, flux
        Options that only one scheduler has, by their long names.
    avoid_nodes
        Those that failed an earlier attempt, as the scheduler writes them; see `avoiding`.
    """

    time_seconds: float | None = None
    queue_time_seconds: float | None = None
    mem_mebibytes: int | None = None
    gpus: Gpus | None = None
    gpus_per_node: Gpus | None = None
    nodes: int | None = None
    ntasks: int | None = None
    cpus_per_task: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool | str = False
    setup: tuple[str, ...] = ()
    slurm: Mapping[str, Any] = field(default_factory=dict)
    flux: Mapping[str, Any] = field(default_factory=dict)
    avoid_nodes: tuple[str, ...] = ()


def parse_resources(resources: Mapping[str, Any]) -> Resources:
    """Read a request; a None stands for a key that is not there.

    Raises
    ------
    UsageError
        Names every value that cannot be used, and what is allowed.
    """
    found: dict[str, Any] = {}
    problems = []
    for key, value in resources.items():
        if value is None:
            continue
        try:
            name, read = _read(key, value)
        except ValueError as error:
            problems.append(f"resource {key}={value!r}: {error}")
        else:
            found[name] = read
    if "gpus" in found and "gpus_per_node" in found:
        problems.append("resources gpus and gpus_per_node: give one of them")
    if problems:
        raise UsageError("\n".join(problems))
    return Resources(**found)


def resources_of_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts of a command line; ``slurm.KEY=VALUE`` names an extra option.

    One text may hold several, with commas between them; a comma before anything else belongs to
    the value (``slurm.nodelist=n1,n2``). Counts are given as numbers, since conditions of a policy
    compare them.

    Raises
    ------
    UsageError
        A text that is no such pair, or an unknown key.
    """
    found: dict[str, Any] = {}
    for pair in (each for text in pairs for each in _COMMA.split(text)):
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE, as in --resources gpus=4")
        if key in ("slurm", "flux"):
            raise UsageError(f"{pair!r}: name the option, as in --resources {key}.OPTION=VALUE")
        room, dot, option = key.partition(".")
        if dot and room in ("slurm", "flux"):
            found.setdefault(room, {})[option] = _FLAGS.get(value.lower(), value)
        elif key in RESOURCES:
            is_count = key in ("gpus", "gpus_per_node", *_COUNTS) and value.strip().isdecimal()
            found[key] = int(value) if is_count else value
        else:
            raise UsageError(f"unknown resource {key!r}{_nearest(key, RESOURCES)}")
    return found


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one request over another; extras of a scheduler are merged by option."""
    found = {**base, **over}
    for room in ("slurm", "flux"):
        if isinstance(base.get(room), Mapping) and isinstance(over.get(room), Mapping):
            found[room] = {**base[room], **over[room]}
    return found


def avoiding(resources: Mapping[str, Any], nodes: Iterable[str]) -> dict[str, Any]:
    """Ask for other nodes than those that failed, and than those that are avoided already.

    Each scheduler says it in its own words, besides what the user asked for; see options.py.

    Parameters
    ----------
    nodes
        As the scheduler writes them: names, lists or ranges.
    """
    found = list(dict.fromkeys((*avoided(resources), *filter(None, nodes))))
    return {**resources, _AVOIDED: found} if found else dict(resources)


def avoided(resources: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the nodes that `avoiding` laid over a request."""
    return tuple(resources.get(_AVOIDED, ()))


def parse_time(value: object) -> float:
    """Read a length of time, in seconds.

    Bare numbers are refused: they are minutes to Slurm, and to Flux, and seconds to people.

    Raises
    ------
    ValueError
        It has none of the forms.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _seconds(value.strip())
    else:
        raise ValueError(f"a bare number has no unit; write {TIME_FORMS}")  # noqa: TRY004 - told with the key
    if seconds <= 0:
        raise ValueError("it must be above 0")
    return seconds


def _seconds(text: str) -> float:
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    units = _UNITS.fullmatch(text.lower())
    if units and any(units.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in units.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if re.fullmatch(r"[\d.]+", text):
        raise ValueError(f"a bare number has no unit; write {TIME_FORMS}")
    raise ValueError(f"write {TIME_FORMS}")


def _read(key: str, value: Any) -> tuple[str, Any]:
    if key not in _READERS:
        raise ValueError(f"no such resource{_nearest(key, _READERS)}")
    return f"{key}{_SUFFIXES.get(key, '')}", _READERS[key](value)


def _memory(value: object) -> int:
    matched = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if matched is None:
        raise ValueError("write a number with a unit, as in 500M, 4G or 1T (per node)")
    number = float(matched[1]) * _MEBIBYTES[matched[2].upper()]
    whole = int(-(-number // 1))
    if whole < 1:
        raise ValueError("it must be above 0; exclusive=True gives a whole node")
    return whole


def _gpus(value: object) -> Gpus | None:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    matched = _GPUS.fullmatch(text.strip()) if isinstance(text, str) else None
    if matched is None:
        raise ValueError("write a number, or a type and a number as in a100:2")
    return Gpus(int(matched[2]), matched[1] or "") if int(matched[2]) else None


def _count(value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("write a whole number above 0")
    return value


def _word(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("write a text without control characters")
    return value.strip()


def _exclusive(value: object) -> bool | str:
    found = _FLAGS.get(value.lower(), value) if isinstance(value, str) else value
    if isinstance(found, bool) or (isinstance(found, str) and found in _EXCLUSIVE_KINDS):
        return found
    raise ValueError(f"write True or False (or, on Slurm, {', '.join(_EXCLUSIVE_KINDS)})")


def _lines(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(line for line in value.splitlines() if line.strip())
    if isinstance(value, Sequence) and all(isinstance(line, str) for line in value):
        return tuple(value)
    raise ValueError("write one or many lines of shell")


def _extras(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("write a dict of long option names and values")  # noqa: TRY004 - told with the key
    found = {}
    for option, setting in value.items():
        name = str(option).lstrip("-").replace("_", "-")
        if not _OPTION.fullmatch(name):
            raise ValueError(f"{option!r} is not the long name of an option")
        settings = setting if isinstance(setting, (list, tuple)) else [setting]
        if not all(s is None or isinstance(s, (str, int, float)) for s in settings):
            raise ValueError(f"{option}={setting!r} is no text, number, True, or list of these")
        found[name] = setting
    return found


_SUFFIXES = {"time": "_seconds", "queue_time": "_seconds", "mem": "_mebibytes"}
_READERS: dict[str, Callable[[Any], Any]] = {
    "time": parse_time,
    "queue_time": parse_time,
    "mem": _memory,
    "gpus": _gpus,
    "gpus_per_node": _gpus,
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(("partition", "account", "qos", "constraint", "reservation"), _word),
    "exclusive": _exclusive,
    "setup": _lines,
    "slurm": _extras,
    "flux": _extras,
    _AVOIDED: _lines,
}


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    if nearest:
        return f"; did you mean {nearest[0]}?"
    return f"; known: {', '.join(sorted(known))}"
