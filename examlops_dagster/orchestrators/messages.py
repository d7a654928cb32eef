"""What the parent and its worker tell each other; plain data, pickled one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.records import Node


@dataclass(frozen=True)
class Surroundings:
    """Where a build runs, as far as a worker does not share it with its parent by itself.

    Attributes
    ----------
    folder
        Working directory of the parent; None when it is gone.
    path
        ``sys.path`` of the parent.
    environment
        Variables that changed since the worker was told last; None removes one.
    """

    folder: str | None
    path: Sequence[str]
    environment: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionCall:
    """Call a production function.

    Attributes
    ----------
    function
        ``module:qualname``, or a pickle by value.
    file
        Path of the module's source, where it has one.
    arguments
        Pickled mapping of keyword arguments.
    serializer
        For the value; None picks one.
    variables
        Set while it is called.
    """

    node: Node
    node_type: NodeType
    function: str | bytes
    file: str | None
    arguments: bytes
    serializer: str | None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandCall:
    """Run a program in place of the production function.

    Attributes
    ----------
    argv
        The program and its arguments.
    environment
        Variables that it gets besides those of the worker.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]


Call: TypeAlias = FunctionCall | CommandCall


@dataclass(frozen=True)
class Order:
    """One build, from the parent to the worker; None in its place asks the worker to exit."""

    surroundings: Surroundings
    call: Call


class Signal(Enum):
    """What a worker says before it answers."""

    READY = "ready"
    """It listens; sent once."""
    STARTED = "started"
    """The function was imported and is called now; the limit runs from here."""
    STALE = "stale"
    """A module that it imported was edited since; it wants to be replaced."""


@dataclass(frozen=True)
class Produced:
    """The function returned; the payload follows as bytes of its own, unless ``format`` is None.

    Attributes
    ----------
    format
        Of the value; None when there is no value.
    data_version
        As the function gave it.
    extras
        Pickled dict of ``metadata`` and ``events``.
    update_detected
        What a sensor said; None for any other node.
    """

    format: str | None
    data_version: str | None
    extras: bytes
    update_detected: bool | None = None


@dataclass(frozen=True)
class Failed:
    """The function did not produce.

    Attributes
    ----------
    reason
        One line.
    details
        Traceback, or the last lines of stderr.
    unusable
        It returned, but what it returned cannot be kept.
    """

    reason: str
    details: str = ""
    unusable: bool = False
