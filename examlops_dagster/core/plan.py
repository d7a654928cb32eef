"""What would be built, what is left out and what cannot be built, each with its reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.records import Node
from examlops_dagster.core.verdicts import Reason, State, Status


class Action(Enum):
    """What a step does; the value is what JSON shows."""

    BUILD = "build"
    ADOPT = "adopt"
    """Give a source its first version; nothing is called."""


@dataclass(frozen=True)
class Step:
    """One node that the plan builds.

    Attributes
    ----------
    reasons
        Why.
    forced
        Built even if nothing is stale any more when its turn comes: somebody named it.
    """

    node: Node
    action: Action
    reasons: tuple[Reason, ...] = ()
    forced: bool = False

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons in words."""
        return tuple(map(str, self.reasons)) or (("forced",) if self.forced else ())


@dataclass(frozen=True)
class Blocked:
    """A node of the slice that cannot be built, and what to do about it."""

    node: Node
    why: str


@dataclass(frozen=True)
class Plan:
    """Steps in an order in which they can be built, and what is left out.

    Attributes
    ----------
    targets
        What was asked for; empty for "all that is due".
    skipped
        Nodes of the slice that are fresh.
    blocked
        Nodes of the slice that cannot be built, with those below them.
    deferred
        Nodes of the slice below datasets or aliases without an event, to which steps may emit:
        whether they are to be built is known when those have run.
    """

    targets: tuple[Node, ...]
    steps: tuple[Step, ...]
    skipped: tuple[Node, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    deferred: tuple[Blocked, ...] = ()

    @property
    def builds(self) -> list[Step]:
        """The steps that call a function; sources are adopted by whoever builds from them."""
        return [step for step in self.steps if step.action is Action.BUILD]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to build."""
        return not self.steps


def plan_targets(
    graph: Graph,
    nodes: Nodes,
    verdicts: Mapping[Node, Status],
    targets: Sequence[Node],
    *,
    force: bool = False,
    deps: bool = True,
    named: bool = True,
) -> Plan:
    """Plan what a request for ``targets`` builds: they and their stale ancestors.

    Parameters
    ----------
    graph, nodes
        Declared names and edges, and the partitions that exist.
    verdicts
        As `statuses` gives them.
    force
        Build the targets even if they are fresh; their ancestors as usual.
    deps
        False builds nothing but the targets; what they read must exist, or be a source, which is
        adopted.
    named
        Whether a person names the targets, so that sensors and tasks among them run in any case.
    """
    wanted = set(targets)
    slice_ = nodes.ancestors(targets) if deps else wanted | _to_adopt(nodes, verdicts, wanted)
    steps: list[Step] = []
    skipped: list[Node] = []
    blocked: dict[Node, str] = {}
    deferred: dict[Node, str] = {}
    planned: set[str] = set()
    for node in _in_order(graph, nodes, slice_):
        verdict = verdicts.get(node) or Status(node, State.UNDECLARED)
        declaration = graph.declarations[node.asset]
        awaited = declaration.is_emitted and not verdict.version
        if awaited and not declaration.is_source:
            may_come = any(edge.name in planned for edge in declaration.upstreams)
            (deferred if may_come else blocked)[node] = _impossible(graph, verdict) or ""
            continue
        forced = node in wanted and _is_forced(declaration, force=force, named=named)
        fresh = not verdict.reasons and verdict.state is not State.UNDECLARED and not awaited
        if fresh and not forced:
            skipped.append(node)
            continue
        why = _impossible(graph, verdict) or _blocked_above(nodes, node, blocked)
        if why is None and not deps:
            why = _missing_above(nodes, node, verdicts, slice_)
        if why is not None:
            blocked[node] = why
            continue
        later = _blocked_above(nodes, node, deferred)
        if later is not None:
            deferred[node] = later
            continue
        planned.add(node.asset)
        action = Action.ADOPT if declaration.is_source else Action.BUILD
        steps.append(Step(node, action, verdict.reasons, forced))
    told = {n: w for n, w in blocked.items() if n in wanted or not _is_emitted(graph, n)}
    return Plan(
        tuple(targets),
        tuple(steps),
        tuple(skipped),
        tuple(Blocked(*b) for b in told.items()),
        tuple(Blocked(*b) for b in deferred.items()),
    )


def _is_forced(declaration: Declaration, *, force: bool, named: bool) -> bool:
    """Tell whether a target is built even if it is fresh; see `plan_targets`."""
    if declaration.function is None:
        return False  # nothing to call: a source is advanced by source-changed
    return force or (named and declaration.node_type in (NodeType.SENSOR, NodeType.TASK))


def plan_due(
    graph: Graph,
    nodes: Nodes,
    verdicts: Mapping[Node, Status],
    only: Collection[str] | None = None,
) -> Plan:
    """Plan everything that is stale and may run now, by itself.

    Parameters
    ----------
    graph, nodes, verdicts
        As for `plan_targets`.
    only
        Names to which the plan is confined, with their ancestors; None for all.
    """
    names = None if only is None else graph.ancestors(only)
    steps: list[Step] = []
    skipped: list[Node] = []
    blocked: dict[Node, str] = {}
    for name in graph.declarations:
        if names is not None and name not in names:
            continue
        for node in nodes.of(name):
            verdict = verdicts[node]
            if verdict.state is State.FRESH:
                skipped.append(node)
            elif verdict.state is State.RUNNABLE:
                why = _impossible(graph, verdict) or _blocked_above(nodes, node, blocked)
                if why is not None:
                    blocked[node] = why
                    continue
                source = graph.declarations[name].is_source
                if source and not graph.downstreams[name]:
                    continue  # adopted the first time it is needed
                action = Action.ADOPT if source else Action.BUILD
                steps.append(Step(node, action, verdict.reasons))
            elif verdict.state is not State.RUNNING:
                why = f"{verdict.shown}: {'; '.join(verdict.why)}"
                blocked[node] = f"{node} is {why}" if _is_emitted(graph, node) else why
    told = {node: why for node, why in blocked.items() if not _is_emitted(graph, node)}
    return Plan((), tuple(steps), tuple(skipped), tuple(Blocked(*b) for b in told.items()))


def joined(graph: Graph, first: Plan, second: Plan) -> Plan:
    """Join two plans over one snapshot; a step of the first stands for that of the second.

    What is blocked of the first stays so; the second is what can be built besides.
    """
    have = {step.node for step in first.steps}
    position = {name: n for n, name in enumerate(graph.declarations)}
    steps = [*first.steps, *(step for step in second.steps if step.node not in have)]
    steps.sort(key=lambda step: position[step.node.asset])
    return Plan(
        (*first.targets, *second.targets),
        tuple(steps),
        blocked=first.blocked,
        deferred=first.deferred,
    )


def without(nodes: Nodes, plan: Plan, left_out: Collection[Node], roots: Collection[Node]) -> Plan:
    """Leave steps out of a plan: those of ``left_out``, and all that is below ``roots``."""
    above = set(roots)
    kept: list[Step] = []
    for step in plan.steps:
        if any(
            Node(e.name, key) in above for e, keys in nodes.upstreams(step.node) for key in keys
        ):
            above.add(step.node)
        elif step.node not in left_out:
            kept.append(step)
    return replace(plan, steps=tuple(kept))


def slices(graph: Graph, nodes: Nodes, plan: Plan) -> list[Plan]:
    """Cut the builds of a plan into parts that Dagster can execute as one run each, in order.

    A run holds one partition space at most (Dagster refuses two), and nothing that is built from
    a dataset or alias of the same plan, since those are known only when their producers ended.
    """
    return [replace(plan, steps=tuple(steps)) for _, steps in _ranked(graph, nodes, plan)]


def first_slices(graph: Graph, nodes: Nodes, plan: Plan) -> list[Plan]:
    """Give the parts that wait for no other part: what automation may request at once."""
    ranked = _ranked(graph, nodes, plan)
    return [replace(plan, steps=tuple(steps)) for level, steps in ranked if level == 0]


def _ranked(graph: Graph, nodes: Nodes, plan: Plan) -> list[tuple[int, list[Step]]]:
    rank: dict[Node, int] = {}
    highest: dict[str, int] = {}
    parts: dict[tuple[int, int], list[Step]] = {}
    for step in plan.steps:
        if step.action is Action.ADOPT:
            continue  # whoever builds from a source adopts it
        space = nodes.space(step.node.asset)
        level = 0
        for edge, keys in nodes.upstreams(step.node):
            if graph.declarations[edge.name].is_emitted:
                level = max(level, 1 + _rank_of_producers(graph, edge.name, highest))
                continue
            apart = nodes.space(edge.name) is not space
            for key in keys:
                above = rank.get(Node(edge.name, key))
                if above is not None:
                    level = max(level, above + apart)
        highest[step.node.asset] = max(level, highest.get(step.node.asset, 0))
        rank[step.node] = level
        # by identity: a space of 10,000 keys takes 0.1 ms to hash
        parts.setdefault((level, id(space)), []).append(step)
    ordered = sorted(parts.items(), key=lambda part: part[0][0])
    return [(level, steps) for (level, _), steps in ordered]


def _rank_of_producers(graph: Graph, name: str, highest: Mapping[str, int]) -> int:
    """Give the last part in which the plan may emit to a dataset or alias; -1 for none."""
    return max((highest.get(e.name, -1) for e in graph.upstreams(name)), default=-1)


def _in_order(graph: Graph, nodes: Nodes, members: set[Node]) -> Iterable[Node]:
    """Give nodes upstreams first; keys in the order of their space."""
    by_name: dict[str, list[Node]] = {}
    for node in members:
        by_name.setdefault(node.asset, []).append(node)
    for name in graph.declarations:
        found = by_name.get(name)
        if not found:
            continue
        if len(found) == 1:
            yield found[0]
            continue
        position = {key: n for n, key in enumerate(nodes.keys(name))}
        yield from sorted(found, key=lambda node: position.get(node.partition, len(position)))


def _impossible(graph: Graph, verdict: Status) -> str | None:
    """Say why nobody can build a node, or None."""
    name = verdict.node.asset
    if verdict.state is State.UNDECLARED and name not in graph.undeclared:
        return f"{verdict.node} is not a partition of {name}"
    if verdict.state is State.UNDECLARED:
        return f"{verdict.node} is undeclared → exa assets declare {name}"
    declaration = graph.declarations[name]
    if declaration.function is not None or declaration.is_source:
        return None
    if declaration.is_emitted:
        producers = ", ".join(edge.name for edge in declaration.upstreams)
        remedy = f"build what emits to it ({producers}), or " if producers else ""
        return f"{name} is {verdict.shown}: {verdict.note} → {remedy}exa assets emit {name} URI"
    if declaration.node_type is NodeType.EXTERNAL:
        return f"{name} is an asset of plain Dagster, never materialized → materialize it there"
    return (
        f"{name} is declared without a production function "
        "→ load the module that has it: exa -m MODULE ... (or -f FILE)"
    )


def _to_adopt(nodes: Nodes, verdicts: Mapping[Node, Status], wanted: set[Node]) -> set[Node]:
    """Give the sources right above ``wanted`` that nobody has adopted yet."""
    found: set[Node] = set()
    for node in wanted:
        for edge, keys in nodes.upstreams(node):
            if nodes.graph.declarations[edge.name].is_source:
                found.update(n for key in keys if _is_missing(n := Node(edge.name, key), verdicts))
    return found


def _missing_above(
    nodes: Nodes, node: Node, verdicts: Mapping[Node, Status], members: set[Node]
) -> str | None:
    """Say which upstream is neither there nor made by the plan, or None."""
    for edge, keys in nodes.upstreams(node):
        for key in keys:
            upstream = Node(edge.name, key)
            if upstream in members or not _is_missing(upstream, verdicts):
                continue
            verdict = verdicts.get(upstream) or Status(upstream, State.UNDECLARED)
            never = f"upstream {upstream} was never built → exa assets materialize {edge.name}"
            return _impossible(nodes.graph, verdict) or never
    return None


def _is_missing(node: Node, verdicts: Mapping[Node, Status]) -> bool:
    verdict = verdicts.get(node)
    return verdict is None or not verdict.version


def _blocked_above(nodes: Nodes, node: Node, blocked: Mapping[Node, str]) -> str | None:
    if not blocked:
        return None
    declaration = nodes.graph.declarations[node.asset]
    conditional: dict[str, str | None] = dict.fromkeys(declaration.conditional)
    for edge, keys in nodes.upstreams(node):
        for key in keys:
            upstream = Node(edge.name, key)
            if upstream not in blocked:
                continue
            emitted = _is_emitted(nodes.graph, upstream)
            why = f"upstream {blocked[upstream]}" if emitted else f"upstream {upstream} is blocked"
            if edge.name not in conditional:
                return why
            conditional[edge.name] = why
    return next(filter(None, (c.lacks(conditional) for c in declaration.conditions)), None)


def _is_emitted(graph: Graph, node: Node) -> bool:
    declaration = graph.declarations.get(node.asset)
    return declaration is not None and declaration.is_emitted
