"""What ``@asset``, ``@sensor``, ``@task`` and ``@sink`` record about a function."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar, overload

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.freshness import Always, Freshness, Manual
from examlops_dagster.core.partitions import Dimension, Mapped, PartitionSpace
from examlops_dagster.errors import DefinitionError, Problem

F = TypeVar("F", bound=Callable[..., Any])

DECLARED = "__examlops__"
"""Attribute of a decorated function, and global of a module, that hold declarations."""

SINKS = "__examlops_sinks__"
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
    """

    name: str
    node_type: NodeType = NodeType.ASSET
    kind: str = DEFAULT_KIND
    upstreams: tuple[Upstream, ...] = ()
    function: Callable[..., Any] | None = field(default=None, repr=False)
    where: str = ""
    outside: bool = False
    outlets: tuple[Dataset | DatasetAlias, ...] = ()
    inlets: tuple[Dataset | DatasetAlias, ...] = ()
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
            self.function is None and not self.upstreams and self.node_type is not NodeType.EXTERNAL
        )

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
    """The parameters of a function, as far as calling it by keyword needs them."""

    names: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    takes_any: bool = False

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Read a function's parameters; plain functions without the cost of a signature."""
        if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
            code = function.__code__
            positional = code.co_varnames[: code.co_argcount]
            keyword = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
            with_default = set(positional[len(positional) - len(function.__defaults__ or ()) :])
            with_default |= set(function.__kwdefaults__ or {})
            names = positional + keyword
            return Parameters(
                names,
                frozenset(n for n in names if n not in with_default),
                bool(code.co_flags & inspect.CO_VARKEYWORDS),
            )
        found = inspect.signature(function).parameters.values()
        by_name = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        return Parameters(
            tuple(p.name for p in by_name),
            frozenset(p.name for p in by_name if p.default is p.empty),
            any(p.kind is p.VAR_KEYWORD for p in found),
        )


UpstreamLike: TypeAlias = Any
"""A name, a decorated function, a Dataset, a DatasetAlias, an AssetKey or an asset of Dagster,
or one of those in ``same_key``, ``all_keys`` or ``keys``."""

Outlet: TypeAlias = Dataset | DatasetAlias


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
        ``**upstream``.
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
    kind: str = DEFAULT_KIND,
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

    The arguments are those of `asset` less partitions, serializer and kind.
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
        if hasattr(function, DECLARED):
            raise DefinitionError(
                [Problem(_where(function), "@sink stands above @asset", "put it below @asset")]
            )
        setattr(function, SINKS, (Sink(url, serializer), *getattr(function, SINKS, ())))
        return function

    return decorate


def declarations_of(module: ModuleType) -> list[Declaration]:
    """Give what a module declares: made while it was executed, or held in its names."""
    found: list[Declaration] = list(_module_list(vars(module)))
    for thing in list(vars(module).values()):
        if callable(thing) and not isinstance(thing, type):
            found.extend(_declared_on(thing))
    return list({id(d): d for d in found}.values())


def declaration_of(thing: Any) -> Declaration | None:
    """Give the declaration of a decorated function; None for anything else."""
    declared = _declared_on(thing)
    return declared[-1] if declared else None


def _declared_on(thing: Any) -> tuple[Declaration, ...]:
    # things that answer to any name (mocks, expressions) and modules hold something else there
    found = getattr(thing, DECLARED, ())
    if isinstance(found, tuple) and all(isinstance(d, Declaration) for d in found):
        return found
    return ()


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
        waiting.extend(_outlet_declaration(o, declaration.where) for o in declaration.outlets)
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


_TAKES: dict[NodeType, frozenset[str]] = {
    NodeType.ASSET: frozenset(asset_field for asset_field in (
        "kind", "deps", "inputs", "outlets", "inlets", "partitions", "serializer", "freshness",
        "timeout_seconds", "retries", "retry_backoff", "resources", "command", "orchestrator",
        "code_version", "code_deps", "group", "pool", "description", "tags", "owners", "metadata",
    )),
}  # fmt: skip
_TAKES[NodeType.SENSOR] = _TAKES[NodeType.ASSET] - {"deps", "inputs", "partitions"}
_TAKES[NodeType.TASK] = _TAKES[NodeType.ASSET] - {"partitions", "serializer", "kind"}


def _decorate(node_type: NodeType, name: Any, arguments: dict[str, Any]) -> Any:
    unknown = sorted(set(arguments) - _TAKES[node_type])
    if unknown:
        raise TypeError(
            f"@{node_type.value} takes no {', '.join(unknown)}; it takes "
            f"{', '.join(sorted(_TAKES[node_type]))}"
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
    upstreams = [
        _upstream(thing, None, where, problems) for thing in _as_tuple(given.pop("deps", ()))
    ]
    for parameter, thing in (given.pop("inputs", None) or {}).items():
        upstreams.append(_upstream(thing, parameter, where, problems))
    space = given.pop("partitions", None)
    if space is not None and not isinstance(space, Mapping):
        problems.append(f"partitions {space!r} is not a mapping of parameter name to space")
        space = None
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
        function=function,
        where=where,
        partitions=PartitionSpace.of(space) if space else None,
        sinks=getattr(function, SINKS, ()),
        problems=tuple(problems),
        **given,
    )
    setattr(function, DECLARED, (*getattr(function, DECLARED, ()), declaration))
    remember(declaration)
    return function


def _upstream(
    thing: Any, parameter: str | None, where: str, problems: list[str]
) -> Upstream | None:
    mapped = thing if isinstance(thing, Mapped) else None
    inner = mapped.upstream if mapped is not None else thing
    if isinstance(inner, str):
        return Upstream(inner, parameter, mapped)
    if isinstance(inner, (Dataset, DatasetAlias)):
        return Upstream(inner.name, parameter, mapped, _outlet_declaration(inner, where))
    declared = declaration_of(inner)
    if declared is not None:
        return Upstream(declared.name, parameter, mapped, declared)
    key = getattr(inner, "key", inner)  # an AssetsDefinition or AssetSpec has the key of one asset
    path = getattr(key, "path", None)
    if isinstance(path, Sequence) and path and all(isinstance(part, str) for part in path):
        name = "/".join(path)
        external = Declaration(name, NodeType.EXTERNAL, where=where, metadata={"path": tuple(path)})
        return Upstream(name, parameter, mapped, external)
    problems.append(
        f"upstream {inner!r} is neither a name, a decorated function, a Dataset, a DatasetAlias "
        "nor an asset of Dagster"
    )
    return None


def _outlets(argument: str, things: tuple[Any, ...], problems: list[str]) -> tuple[Outlet, ...]:
    problems.extend(
        f"{argument}: {thing!r} is neither a Dataset nor a DatasetAlias"
        for thing in things
        if not isinstance(thing, (Dataset, DatasetAlias))
    )
    return tuple(thing for thing in things if isinstance(thing, (Dataset, DatasetAlias)))


def _outlet_declaration(outlet: Dataset | DatasetAlias, where: str) -> Declaration:
    kind = NodeType.DATASET if isinstance(outlet, Dataset) else NodeType.ALIAS
    extra = dict(outlet.extra) if isinstance(outlet, Dataset) else {}
    return Declaration(outlet.name, kind, kind=kind.value, where=where, metadata=extra)


def _as_tuple(one_or_many: Any) -> tuple[Any, ...]:
    if isinstance(one_or_many, (list, tuple, set, frozenset)):
        return tuple(one_or_many)
    return (one_or_many,)


def _where(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '?')}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def remember(declaration: Declaration) -> None:
    """Keep a declaration with the module that is being executed.

    So that declarations from a loop or a factory, which no name of the module holds, are found;
    a module executed anew (``importlib.reload``) starts an empty list, known by its new spec.
    """
    frame = sys._getframe()  # noqa: SLF001 - the module that is being executed
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_name != "<module>":
        return
    kept = _module_list(frame.f_globals)
    in_notebook = declaration.where.startswith("<")
    if in_notebook:
        kept[:] = [d for d in kept if d.name != declaration.name]
    kept.append(declaration)


class _ModuleDeclarations(list[Declaration]):
    def __init__(self, spec: object) -> None:
        self.spec = spec
        super().__init__()


def _module_list(module_globals: dict[str, Any]) -> list[Declaration]:
    kept = module_globals.get(DECLARED)
    spec = module_globals.get("__spec__")
    if not isinstance(kept, _ModuleDeclarations) or kept.spec is not spec:
        kept = module_globals[DECLARED] = _ModuleDeclarations(spec)
    return kept
