"""What ``@asset``, ``@sensor``, ``@task`` and ``@sink`` record about a function."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from types import FunctionType
from typing import Any

from examlops_dagster.core.aliases import Condition, Dataset, DatasetAlias, Outlet
from examlops_dagster.core.freshness import Always, Freshness
from examlops_dagster.core.mappings import Mapped
from examlops_dagster.core.partitions import PartitionSpace
from examlops_dagster.errors import Problem

DEFAULT_KIND = "dataset"


class _DefaultTimeout(float):
    """The limit that nobody stated; jobs do not inherit it (they have the partition's own)."""

    def __repr__(self) -> str:
        return "DEFAULT_TIMEOUT"


DEFAULT_TIMEOUT = _DefaultTimeout(300)
"""Seconds per attempt unless a declaration says otherwise."""


class NodeType(Enum):
    """What a declaration declares; the value is the word that users read."""

    ASSET = "asset"
    SENSOR = "sensor"
    TASK = "task"
    DATASET = "dataset"
    ALIAS = "alias"
    EXTERNAL = "external"
    """An asset of plain Dagster that ours depend on."""


@dataclass(frozen=True)
class Upstream:
    """One edge, as it was declared.

    Attributes
    ----------
    name
        Name of the upstream.
    parameter
        For ``inputs``: the parameter that gets the value. None for ``deps``: the version is
        given where the function asks for it.
    mapped
        How keys are found; None takes the usual mapping.
    declared
        The upstream's own declaration, where the edge was made with a decorated function, a
        dataset, an alias or an asset of Dagster.
    """

    name: str
    parameter: str | None = None
    mapped: Mapped | None = field(default=None, compare=False)
    declared: Declaration | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Sink:
    """A path to which an asset's value is written after it is built.

    Attributes
    ----------
    url
        fsspec URL; relative paths start at the project's folder; ``{key}`` is the partition.
    serializer
        Name of the format; None goes by the suffix.
    """

    url: str
    serializer: str | None = None


@dataclass(frozen=True)
class AssetOutput:
    """What a production function may return to say more than a value.

    Attributes
    ----------
    value
        The value to keep; None keeps nothing.
    data_version
        Identifies the content; None derives it from the value.
    metadata
        Facts for the materialization.
    """

    value: Any = None
    data_version: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Declaration:
    """One declared node; the fields are the arguments of the decorators.

    Attributes
    ----------
    where
        ``file:line``, for messages.
    outside
        Made from the command line or recorded by a dataset, not in code.
    conditions
        Over names of upstreams: several that make it stale together.
    match
        Of an alias: a glob pattern of the URIs that it takes; empty for any.
    """

    name: str
    node_type: NodeType = NodeType.ASSET
    kind: str = DEFAULT_KIND
    upstreams: tuple[Upstream, ...] = ()
    conditions: tuple[Condition, ...] = ()
    match: str = ""
    function: Callable[..., Any] | None = field(default=None, repr=False)
    where: str = ""
    outside: bool = False
    outlets: tuple[Outlet, ...] = ()
    inlets: tuple[Outlet, ...] = ()
    partitions: PartitionSpace | None = None
    serializer: str | None = None
    freshness: Freshness = Always
    timeout_seconds: float | None = DEFAULT_TIMEOUT
    retries: int = 0
    retry_backoff: float = 0.0
    resources: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    orchestrator: str | None = None
    code_version: str | None = None
    code_deps: tuple[Any, ...] = ()
    group: str | None = None
    pool: str | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sinks: tuple[Sink, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_source(self) -> bool:
        """Whether it has neither an upstream nor a production function, here or in Dagster."""
        return (
            self.function is None
            and not self.upstreams
            and self.node_type not in (NodeType.EXTERNAL, NodeType.ALIAS)
        )

    @property
    def is_emitted(self) -> bool:
        """Whether it is a dataset or an alias: current by its events, whoever emits them."""
        return self.node_type in (NodeType.DATASET, NodeType.ALIAS)

    @cached_property
    def conditional(self) -> frozenset[str]:
        """Names of the upstreams that count only by a condition."""
        return frozenset(name for c in self.conditions for name in c.leaves())

    @property
    def is_root(self) -> bool:
        """Whether it has no upstream, but a production function."""
        return self.function is not None and not self.upstreams

    @property
    def parameters(self) -> Parameters:
        """The parameters of the production function."""
        return Parameters.of(self.function) if self.function is not None else Parameters()


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function, as far as calling it by keyword needs them.

    Attributes
    ----------
    names
        Of those that can be given by keyword.
    required
        Those of them without a default.
    takes_any
        Whether it takes any other keyword.
    positional
        Names of those that must be given, and cannot be given by keyword.
    """

    names: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    takes_any: bool = False
    positional: tuple[str, ...] = ()

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Read a function's parameters; plain functions without the cost of a signature."""
        if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
            code = function.__code__
            positional = code.co_varnames[: code.co_argcount]
            keyword = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
            with_default = set(positional[len(positional) - len(function.__defaults__ or ()) :])
            with_default |= set(function.__kwdefaults__ or {})
            names = positional[code.co_posonlyargcount :] + keyword
            return Parameters(
                names,
                frozenset(n for n in names if n not in with_default),
                bool(code.co_flags & inspect.CO_VARKEYWORDS),
                tuple(n for n in positional[: code.co_posonlyargcount] if n not in with_default),
            )
        found = inspect.signature(function).parameters.values()
        by_name = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        return Parameters(
            tuple(p.name for p in by_name),
            frozenset(p.name for p in by_name if p.default is p.empty),
            any(p.kind is p.VAR_KEYWORD for p in found),
            tuple(p.name for p in found if p.kind is p.POSITIONAL_ONLY and p.default is p.empty),
        )


def closed_over(declarations: Iterable[Declaration]) -> list[Declaration]:
    """Add the upstreams that were given as functions, datasets, aliases or Dagster's assets."""
    seen: dict[int, Declaration] = {}
    waiting = deque(declarations)
    while waiting:
        declaration = waiting.popleft()
        if id(declaration) in seen:
            continue
        seen[id(declaration)] = declaration
        waiting.extend(u.declared for u in declaration.upstreams if u.declared is not None)
        both = (*declaration.outlets, *declaration.inlets)
        waiting.extend(outlet_declaration(o, declaration.where) for o in both)
    return list(seen.values())


def merge(
    in_code: Iterable[Declaration], outside: Iterable[Declaration]
) -> tuple[dict[str, Declaration], list[Problem]]:
    """Make one declaration a name: code wins in what it states, the outside fills the rest.

    Returns
    -------
    tuple
        Declarations by name in order of declaration, and the problems (name clashes).
    """
    merged: dict[str, Declaration] = {}
    problems: list[Problem] = []
    for declaration in in_code:
        other = merged.setdefault(declaration.name, declaration)
        if other is declaration or declaration.node_type is NodeType.EXTERNAL:
            continue  # an AssetKey may name whatever is declared
        if other.node_type is NodeType.EXTERNAL:
            merged[declaration.name] = declaration
        elif not _implied(declaration) and not _implied(other):
            problems.append(
                Problem(
                    declaration.where,
                    f"{declaration.node_type.value} {declaration.name!r} is also declared at "
                    f"{other.where} as {other.node_type.value}",
                    "give one of the two another name",
                )
            )
        elif declaration.node_type is not other.node_type:
            if not _implied(declaration):
                merged[declaration.name] = declaration
            problems.append(
                Problem(
                    declaration.where,
                    f"{declaration.name!r} is named as {declaration.node_type.value} here and as "
                    f"{other.node_type.value} at {other.where}",
                    "assets, datasets and aliases share one name space: rename one",
                )
            )
    for declaration in outside:
        code = merged.get(declaration.name)
        if code is None or code.node_type is NodeType.EXTERNAL:
            merged[declaration.name] = declaration
        else:
            merged[declaration.name] = _filled(code, declaration)
    return merged, problems


_DEFAULTS = {f.name: f.default for f in fields(Declaration)}
_FILLABLE = ("kind", "upstreams", "description", "partitions")


def _filled(code: Declaration, outside: Declaration) -> Declaration:
    gaps = {
        name: getattr(outside, name)
        for name in _FILLABLE
        if getattr(code, name) == _DEFAULTS[name] and getattr(outside, name) != _DEFAULTS[name]
    }
    if "upstreams" in gaps:
        gaps["outside"] = True  # its edges were made outside: an unknown one is undeclared
    return replace(code, **gaps) if gaps else code


def _implied(declaration: Declaration) -> bool:
    return declaration.node_type in (NodeType.DATASET, NodeType.ALIAS, NodeType.EXTERNAL)


def outlet_declaration(outlet: Outlet, where: str) -> Declaration:
    """Declare what an outlet or an upstream names."""
    kind = NodeType.DATASET if isinstance(outlet, Dataset) else NodeType.ALIAS
    extra = dict(outlet.extra) if isinstance(outlet, Dataset) else {}
    match = outlet.match if isinstance(outlet, DatasetAlias) else ""
    return Declaration(outlet.name, kind, kind=kind.value, where=where, match=match, metadata=extra)
