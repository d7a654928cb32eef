"""From declared names to edges; cycles, order and ancestors, all iterative and O(V+E)."""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from examlops_dagster.core.checks import declaration_problems
from examlops_dagster.core.declarations import Declaration, NodeType, Upstream
from examlops_dagster.core.mappings import same_key_problem
from examlops_dagster.core.seams import ORCHESTRATORS
from examlops_dagster.errors import DefinitionError, Problem

MAX_NEAREST = 20
"""Unknown names for which near ones are looked up; 0.1 s each among 10,000."""


@dataclass(frozen=True)
class Graph:
    """The declared nodes and their edges, in an order in which they can be built.

    Attributes
    ----------
    declarations
        By name, upstreams first; names that are only referred to stand there too.
    undeclared
        Names that a command-line declaration has as upstream and nobody declared.
    downstreams
        Names that read of a name.
    """

    declarations: Mapping[str, Declaration]
    undeclared: frozenset[str]
    downstreams: Mapping[str, tuple[str, ...]]

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, which are current by their events."""
        found = self.declarations.values()
        return tuple(d.name for d in found if d.node_type is NodeType.DATASET)

    def upstreams(self, name: str) -> tuple[Upstream, ...]:
        """Give the edges into a node; empty for an undeclared one."""
        return self.declarations[name].upstreams

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """Give ``names`` and all that they are made from."""
        return _reached(names, lambda name: (edge.name for edge in self.upstreams(name)))

    def descendants(self, names: Iterable[str]) -> set[str]:
        """Give ``names`` and all that is made from them."""
        return _reached(names, self.downstreams.__getitem__)


def _reached(names: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(following(name))
    return found


def build_graph(
    declarations: Mapping[str, Declaration],
    problems: Iterable[Problem] = (),
    *,
    orchestrators: Iterable[str] = ORCHESTRATORS,
) -> Graph:
    """Connect declarations, or say all that is wrong with them.

    Parameters
    ----------
    declarations
        By name, as `merge` gives them.
    problems
        Found before; they are raised with those found here.
    orchestrators
        The known names.

    Raises
    ------
    DefinitionError
        With every problem: unknown upstreams, cycles, name clashes, bad names, crons, resources,
        parameters, mappings, owners, tags.
    """
    found = list(problems)
    known = frozenset(orchestrators)
    declarations = _with_producers(declarations)
    undeclared: dict[str, Declaration] = {}
    downstreams: dict[str, list[str]] = {name: [] for name in declarations}
    nearest: dict[str, list[str]] = {}
    for name, declaration in declarations.items():
        found.extend(declaration_problems(declaration, known))
        found.extend(_mapping_problems(declaration, declarations))
        for upstream in dict.fromkeys(edge.name for edge in declaration.upstreams):
            problem = _edge_problem(declaration, upstream, declarations, nearest)
            if problem is not None:
                found.append(problem)
                continue
            if upstream not in declarations:
                undeclared.setdefault(
                    upstream, Declaration(upstream, NodeType.EXTERNAL, outside=True)
                )
                downstreams.setdefault(upstream, [])
            downstreams[upstream].append(name)
    found.extend(_key_clashes(declarations))
    everything = {**undeclared, **declarations}
    order = _order(everything, downstreams)
    if len(order) < len(everything):
        found.extend(_cycles(everything, set(order)))
    if found:
        raise DefinitionError(found)
    return Graph(
        declarations={name: everything[name] for name in order},
        undeclared=frozenset(undeclared),
        downstreams={name: tuple(names) for name, names in downstreams.items()},
    )


def _with_producers(declarations: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """Lead the edges of outlets into their datasets and aliases: who may emit to them."""
    producers: dict[str, list[Upstream]] = {}
    for name, declaration in declarations.items():
        for outlet in declaration.outlets:
            producers.setdefault(outlet.name, []).append(Upstream(name))
    found = dict(declarations)
    for name, edges in producers.items():
        declared = found.get(name)
        if declared is not None and declared.is_emitted:
            found[name] = replace(declared, upstreams=(*declared.upstreams, *edges))
    return found


def _edge_problem(
    declaration: Declaration,
    upstream: str,
    declarations: Mapping[str, Declaration],
    nearest: dict[str, list[str]],
) -> Problem | None:
    other = declarations.get(upstream)
    if other is None:
        if declaration.outside:
            return None
        if not re.search(r"\S", upstream) or not upstream.isprintable():
            return Problem(declaration.where, f"{declaration.name}: bad upstream name {upstream!r}")
        if upstream not in nearest and len(nearest) < MAX_NEAREST:
            nearest[upstream] = difflib.get_close_matches(upstream, declarations, n=3)
        close = nearest.get(upstream)
        did_you_mean = f"did you mean {', '.join(close)}? or " if close else ""
        return Problem(
            declaration.where,
            f"{declaration.name}: unknown upstream {upstream!r}",
            f"{did_you_mean}declare it: exa assets declare {_shown(upstream)}",
        )
    may_follow = declaration.node_type is NodeType.TASK or declaration.is_emitted
    if other.node_type is NodeType.TASK and not may_follow:
        return Problem(
            declaration.where,
            f"{declaration.node_type.value} {declaration.name!r} has task {upstream!r} as upstream",
            "a task always runs anew, so only another task may depend on it",
        )
    return None


def _mapping_problems(
    declaration: Declaration, declarations: Mapping[str, Declaration]
) -> Iterable[Problem]:
    own = declaration.partitions
    for edge in declaration.upstreams:
        other = declarations.get(edge.name)
        each = edge.mapped is not None and edge.mapped.kind == "each_event"
        if each and other is not None and not other.is_emitted:
            yield Problem(
                declaration.where,
                f"{declaration.name}: each_event({edge.name!r}) is an asset, which has no events",
                "only a Dataset or a DatasetAlias has; leave each_event out",
            )
        if edge.mapped is None or edge.mapped.kind != "same_key" or other is None:
            continue
        theirs = other.partitions
        text = same_key_problem(own, theirs) if own is not None and theirs is not None else None
        if text is not None:
            yield Problem(
                declaration.where,
                f"{declaration.name}: upstream {edge.name!r} is read by {text}",
                "use keys(x, function), all_keys(x) or no mapping",
            )


def _shown(name: str) -> str:
    return name if re.fullmatch(r"[\w./:@-]+", name) else repr(name)


def key_path(declaration: Declaration) -> tuple[str, ...]:
    """Give the parts of the Dagster key of a declared name.

    ``/`` splits a name; a URI becomes its scheme and its non-empty parts, since an empty part has
    no page in Dagster's UI. A key that Dagster already has is kept as it is.
    """
    path = declaration.metadata.get("path") if declaration.node_type is NodeType.EXTERNAL else None
    if path:
        return tuple(path)
    scheme, separator, rest = declaration.name.partition("://")
    text = f"{scheme}/{rest}" if separator else declaration.name
    return tuple(part for part in text.split("/") if part) or (declaration.name,)


def _key_clashes(declarations: Mapping[str, Declaration]) -> Iterable[Problem]:
    by_key: dict[tuple[str, ...], Declaration] = {}
    for declaration in declarations.values():
        path = key_path(declaration)
        other = by_key.setdefault(path, declaration)
        if other is not declaration:
            yield Problem(
                declaration.where,
                f"{declaration.name!r} and {other.name!r} ({other.where}) have the same Dagster "
                f"key {'/'.join(path)}",
                "rename one",
            )


def _order(
    declarations: Mapping[str, Declaration], downstreams: Mapping[str, Sequence[str]]
) -> list[str]:
    """Kahn's algorithm; what is missing in the result lies on or below a cycle."""
    waiting_for = {
        name: len({edge.name for edge in d.upstreams if edge.name in declarations})
        for name, d in declarations.items()
    }
    ready = deque(name for name, count in waiting_for.items() if not count)
    order: list[str] = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for downstream in downstreams[name]:
            waiting_for[downstream] -= 1
            if not waiting_for[downstream]:
                ready.append(downstream)
    return order


def _cycles(declarations: Mapping[str, Declaration], ordered: set[str]) -> Iterable[Problem]:
    """Name cycles in full, those that share a node once; a walk in depth, so O(V+E)."""
    walked = set(ordered)
    named: set[str] = set()
    for start in declarations:
        if start in walked:
            continue
        path = {start: 0}
        waiting = [iter(declarations[start].upstreams)]
        while waiting:
            name = next(reversed(path))
            upstream = next(waiting[-1], None)
            if upstream is None:
                waiting.pop()
                path.popitem()
                walked.add(name)
            elif upstream.name in path:
                if name not in named and upstream.name not in named:
                    cycle = list(path)[path[upstream.name] :]
                    named.update(cycle)
                    yield Problem(
                        declarations[upstream.name].where,
                        f"cycle: {' ← '.join([*cycle, cycle[0]])}",
                        "remove one of these dependencies",
                    )
            elif upstream.name in declarations and upstream.name not in walked:
                path[upstream.name] = len(path)
                waiting.append(iter(declarations[upstream.name].upstreams))
