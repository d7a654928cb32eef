"""The decorators ``@asset``, ``@sensor``, ``@task`` and ``@sink``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from examlops_dagster.core.aliases import Condition, Dataset, DatasetAlias, Outlet
from examlops_dagster.core.declarations import (
    DEFAULT_KIND,
    DEFAULT_TIMEOUT,
    Declaration,
    NodeType,
    Sink,
    Upstream,
    outlet_declaration,
)
from examlops_dagster.core.declared import DECLARED, declaration_of, declared_on, remember
from examlops_dagster.core.freshness import Always, Freshness, Manual
from examlops_dagster.core.mappings import Mapped
from examlops_dagster.core.partitions import Dimension, PartitionSpace
from examlops_dagster.errors import DefinitionError, Problem

F = TypeVar("F", bound=Callable[..., Any])

SINKS = "__examlops_sinks__"
"""Attribute of a function: itself and the sinks that were put on it."""

UpstreamLike: TypeAlias = Any
"""A name, a decorated function, a Dataset, a DatasetAlias, an AssetKey or an asset of Dagster,
or one of those in ``same_key``, ``all_keys``, ``keys`` or ``each_event``."""


@overload
def asset(name: F, /) -> F: ...
@overload
def asset(
    name: str | None = None,
    *,
    kind: str = DEFAULT_KIND,
    deps: UpstreamLike | Sequence[UpstreamLike] = (),
    inputs: Mapping[str, UpstreamLike] | None = None,
    outlets: Outlet | Sequence[Outlet] = (),
    inlets: Outlet | Sequence[Outlet] = (),
    partitions: Mapping[str, Dimension] | None = None,
    serializer: str | None = None,
    freshness: Freshness = Always,
    timeout_seconds: float | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    retry_backoff: float = 0.0,
    resources: Mapping[str, Any] | None = None,
    command: Sequence[str] | None = None,
    orchestrator: str | None = None,
    code_version: str | None = None,
    code_deps: Any | Sequence[Any] = (),
    group: str | None = None,
    pool: str | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    owners: str | Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[F], F]: ...
def asset(name: Any = None, **arguments: Any) -> Any:
    """Declare an asset by its production function, which stays usable as before.

    Parameters
    ----------
    name
        ``[A-Za-z0-9_./-]``, where ``/`` splits it into the parts of a Dagster key; the function's
        name by default.
    kind
        dataset, feature, model, report, or any lower-case word.
    deps
        Upstreams of which the function gets the versions, by parameter name or as
        ``**upstream``. Several of which all, or any, must have changed: ``a & b``, ``a | b``.
    inputs
        Upstreams by parameter, of which the function gets the values.
    outlets, inlets
        Datasets and aliases that the function writes to, or reads events of.
    partitions
        Parameter name to partition space; two at most.
    serializer
        ``json``, ``pickle`` or ``parquet``; by default what keeps the value exactly.
    freshness
        Always, Manual or Schedule.
    timeout_seconds
        Limit of one attempt; None for none, and then the function runs in the calling process.
    retries
        Further attempts after a failed one.
    retry_backoff
        Seconds of delay before the second attempt, growing linearly.
    resources
        What a batch job asks for.
    command
        argv that replaces the call of the function.
    orchestrator
        local, scheduler, prefect or one of an installed package.
    code_version, code_deps
        Overrides the fingerprint of the code; adds functions, classes, modules or paths to it.
    group, pool, description, tags, owners, metadata
        As in Dagster.
    """
    return _decorate(NodeType.ASSET, name, arguments)


@overload
def sensor(name: F, /) -> F: ...
@overload
def sensor(
    name: str | None = None,
    *,
    kind: str = "sensor",
    outlets: Outlet | Sequence[Outlet] = (),
    inlets: Outlet | Sequence[Outlet] = (),
    serializer: str | None = None,
    freshness: Freshness = Manual,
    timeout_seconds: float | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    retry_backoff: float = 0.0,
    resources: Mapping[str, Any] | None = None,
    command: Sequence[str] | None = None,
    orchestrator: str | None = None,
    code_version: str | None = None,
    code_deps: Any | Sequence[Any] = (),
    group: str | None = None,
    pool: str | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    owners: str | Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[F], F]: ...
def sensor(name: Any = None, **arguments: Any) -> Any:
    """Declare a node that looks at the outside world and returns ``(update_detected, output)``.

    The arguments are those of `asset` less deps, inputs and partitions; ``freshness`` is Manual
    by default, and Always is refused.
    """
    return _decorate(NodeType.SENSOR, name, arguments)


@overload
def task(name: F, /) -> F: ...
@overload
def task(
    name: str | None = None,
    *,
    deps: UpstreamLike | Sequence[UpstreamLike] = (),
    inputs: Mapping[str, UpstreamLike] | None = None,
    outlets: Outlet | Sequence[Outlet] = (),
    inlets: Outlet | Sequence[Outlet] = (),
    freshness: Freshness = Always,
    timeout_seconds: float | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    retry_backoff: float = 0.0,
    resources: Mapping[str, Any] | None = None,
    command: Sequence[str] | None = None,
    orchestrator: str | None = None,
    code_version: str | None = None,
    code_deps: Any | Sequence[Any] = (),
    group: str | None = None,
    pool: str | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    owners: str | Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[F], F]: ...
def task(name: Any = None, **arguments: Any) -> Any:
    """Declare a node with a side effect; only tasks may depend on it.

    The arguments are those of `asset` less partitions, serializer and kind, which is task.
    """
    return _decorate(NodeType.TASK, name, arguments)


def sink(url: str, *, serializer: str | None = None) -> Callable[[F], F]:
    """Write an asset's value to ``url`` after each build; goes below ``@asset``.

    Parameters
    ----------
    url
        Path or fsspec URL; ``{key}`` stands for the partition.
    serializer
        Name of the format; by default the suffix says it.
    """

    def decorate(function: F) -> F:
        if declared_on(function):
            raise DefinitionError(
                [Problem(_where(function), "@sink stands above @asset", "put it below @asset")]
            )
        setattr(function, SINKS, (function, (Sink(url, serializer), *_sinks_of(function))))
        return function

    return decorate


_ARGUMENTS = frozenset((
    "kind", "deps", "inputs", "outlets", "inlets", "partitions", "serializer", "freshness",
    "timeout_seconds", "retries", "retry_backoff", "resources", "command", "orchestrator",
    "code_version", "code_deps", "group", "pool", "description", "tags", "owners", "metadata",
))  # fmt: skip
_TAKES = {
    NodeType.ASSET: _ARGUMENTS,
    NodeType.SENSOR: _ARGUMENTS - {"deps", "inputs", "partitions"},
    NodeType.TASK: _ARGUMENTS - {"partitions", "serializer", "kind"},
}


def _decorate(node_type: NodeType, name: Any, arguments: dict[str, Any]) -> Any:
    unknown = sorted(set(arguments) - _TAKES[node_type])
    if unknown:
        takes = sorted(_TAKES[node_type])
        nearest = [n for word in unknown for n in difflib.get_close_matches(word, takes, n=1)]
        hint = f"did you mean {', '.join(nearest)}? " if nearest else ""
        raise TypeError(
            f"@{node_type.value} takes no {', '.join(unknown)}; {hint}It takes {', '.join(takes)}"
        )
    if callable(name) and not isinstance(name, str):
        return _declare(node_type, None, arguments, name)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"@{node_type.value} takes a name, not {name!r}")
    return lambda function: _declare(node_type, name, arguments, function)


def _declare(node_type: NodeType, name: str | None, arguments: dict[str, Any], function: F) -> F:
    where = _where(function)
    problems: list[str] = []
    given = dict(arguments)
    upstreams: list[Upstream | None] = []
    conditions: list[Condition] = []
    for thing in _as_tuple(given.pop("deps", ())):
        if isinstance(thing, Condition):
            upstreams += _members(thing, conditions, where, problems)
        else:
            upstreams.append(_upstream(thing, None, where, problems))
    for parameter, thing in (given.pop("inputs", None) or {}).items():
        upstreams.append(_upstream(thing, parameter, where, problems))
    space = given.pop("partitions", None)
    if space is not None and not isinstance(space, Mapping):
        problems.append(f"partitions {space!r} is not a mapping of parameter name to space")
        space = None
    if node_type is not NodeType.ASSET:
        given.setdefault("kind", node_type.value)
    given.setdefault("freshness", Manual if node_type is NodeType.SENSOR else Always)
    for one_or_many in ("outlets", "inlets", "code_deps", "owners"):
        given[one_or_many] = _as_tuple(given.get(one_or_many, ()))
    for outlets in ("outlets", "inlets"):
        given[outlets] = _outlets(outlets, given[outlets], problems)
    given["command"] = tuple(map(str, _as_tuple(given.get("command") or ())))
    for mapping in ("resources", "tags", "metadata"):
        given[mapping] = dict(given.get(mapping) or {})
    declaration = Declaration(
        name=name if name is not None else getattr(function, "__name__", ""),
        node_type=node_type,
        upstreams=tuple(u for u in upstreams if u is not None),
        conditions=tuple(conditions),
        function=function,
        where=where,
        partitions=PartitionSpace.of(space) if space else None,
        sinks=_sinks_of(function),
        problems=tuple(problems),
        **given,
    )
    setattr(function, DECLARED, (*declared_on(function), declaration))
    remember(declaration)
    return function


def _sinks_of(function: Any) -> tuple[Sink, ...]:
    """Give a function's sinks; a wrapper has copied those of what it wraps (functools.wraps).

    They are the wrapper's while they wait for ``@asset``, not once an asset has them.
    """
    owner, sinks = getattr(function, SINKS, (function, ()))
    return () if owner is not function and declared_on(owner) else sinks


def _upstream(
    thing: Any, parameter: str | None, where: str, problems: list[str]
) -> Upstream | None:
    mapped = thing if isinstance(thing, Mapped) else None
    inner = mapped.upstream if mapped is not None else thing
    if isinstance(inner, str):
        return Upstream(inner, parameter, mapped)
    if isinstance(inner, (Dataset, DatasetAlias)):
        return Upstream(inner.name, parameter, mapped, outlet_declaration(inner, where))
    declared = declaration_of(inner)
    if declared is not None:
        return Upstream(declared.name, parameter, mapped, declared)
    key = getattr(inner, "key", inner)  # an AssetsDefinition or AssetSpec has the key of one asset
    path = getattr(key, "path", None)
    if isinstance(path, Sequence) and path and all(isinstance(part, str) for part in path):
        name = "/".join(path)
        external = Declaration(name, NodeType.EXTERNAL, where=where, metadata={"path": tuple(path)})
        return Upstream(name, parameter, mapped, external)
    wrapped = declaration_of(getattr(inner, "__wrapped__", None))
    if wrapped is not None:
        problems.append(
            f"upstream {inner!r} is a wrapper around {wrapped.name!r}, not what @asset was put on; "
            f"give the name, or put the decorator that wraps below @asset"
        )
        return None
    problems.append(
        f"upstream {inner!r} is neither a name, a decorated function, a Dataset, a DatasetAlias "
        "nor an asset of Dagster"
    )
    return None


def _members(
    condition: Condition, conditions: list[Condition], where: str, problems: list[str]
) -> list[Upstream]:
    """Give the edges of a condition, and keep it over their names."""
    found = {id(thing): _upstream(thing, None, where, problems) for thing in condition.leaves()}
    edges = [edge for edge in found.values() if edge is not None]
    if len(edges) < len(found):
        return []
    conditions.append(condition.over(lambda thing: getattr(found[id(thing)], "name", "")))
    return edges


def _outlets(argument: str, things: tuple[Any, ...], problems: list[str]) -> tuple[Outlet, ...]:
    problems.extend(
        f"{argument}: {thing!r} is neither a Dataset nor a DatasetAlias"
        for thing in things
        if not isinstance(thing, (Dataset, DatasetAlias))
    )
    return tuple(thing for thing in things if isinstance(thing, (Dataset, DatasetAlias)))


def _as_tuple(one_or_many: Any) -> tuple[Any, ...]:
    if isinstance(one_or_many, (list, tuple, set, frozenset)):
        return tuple(one_or_many)
    return (one_or_many,)


def _where(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '?')}"
    return f"{code.co_filename}:{code.co_firstlineno}"
