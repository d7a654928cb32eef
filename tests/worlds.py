"""What the tests of the core share: short declarations, records, and a world to build in."""

import json
from datetime import datetime, timezone

from examlops_dagster.core.declarations import AssetOutput, Declaration, NodeType, Upstream
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.partitions import PartitionSpace, partitions
from examlops_dagster.core.plan import plan_due, plan_targets
from examlops_dagster.core.records import Node, Read, Record
from examlops_dagster.core.seams import BuildResult, Value
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.core.status import statuses
from examlops_dagster.core.walk import Walk
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.ledger.memory import MemoryLedger

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=timezone.utc)
XY = {"key": partitions(["x", "y"])}


def nothing(**upstream):
    """A production function that stores its result itself."""


def says(value):
    """A production function that returns ``value``."""

    def produce(**upstream):
        return value

    return produce


def fails(**upstream):
    raise ValueError("no luck")


def source(name, **more):
    return Declaration(name, where="command line", outside=True, **more)


def built(name, *upstreams, function=nothing, space=None, **more):
    """An asset with a function; an upstream is a name or an Upstream."""
    edges = tuple(u if isinstance(u, Upstream) else Upstream(u) for u in upstreams)
    return Declaration(
        name,
        upstreams=edges,
        function=function,
        where=f"pipeline.py:{name}",
        partitions=PartitionSpace.of(space) if space else None,
        **more,
    )


def sensor_of(name, *, freshness=Manual, **more):
    return built(name, node_type=NodeType.SENSOR, freshness=freshness, **more)


def task_of(name, *upstreams, **more):
    return built(name, *upstreams, node_type=NodeType.TASK, **more)


def graph_of(*declarations):
    return build_graph({d.name: d for d in declarations})


def record(version=1, data=None, *, of=None, at=NOW, code=None, build_id="build"):
    """What exists; ``of`` maps upstream names (or nodes) to (version, data version)."""
    reads = {n if isinstance(n, Node) else Node(n): Read(*read) for n, read in (of or {}).items()}
    return Record(version, data or f"d{version}", code, reads, at, build_id)


def snapshot(records=None, now=NOW, **more):
    found = {n if isinstance(n, Node) else Node(n): r for n, r in (records or {}).items()}
    return Snapshot(now, records=found, **more)


def judged(declarations, records=None, code=None, **more):
    """Verdicts by node, and by name for assets without partitions."""
    verdicts = statuses(graph_of(*declarations), snapshot(records, **more), code or {})
    return {**verdicts, **{n.asset: v for n, v in verdicts.items() if not n.partition}}


class InPlace:
    """An orchestrator that calls the function here, and keeps what it was asked for."""

    name = "in place"

    def __init__(self):
        self.requests = []

    @property
    def called(self):
        return [str(request.node) for request in self.requests]

    def run(self, request):
        self.requests.append(request)
        try:
            output = request.declaration.function(**request.arguments)
        except AssetBuildError:
            raise
        except Exception as error:
            raise AssetBuildError(request.node.asset, f"{type(error).__name__}: {error}") from error
        detected = None
        if request.declaration.node_type is NodeType.SENSOR:
            detected, output = output
        if not isinstance(output, AssetOutput):
            output = AssetOutput(output)
        value = None
        if output.value is not None:
            value = Value("json", json.dumps(output.value).encode())
        return BuildResult(
            value, output.data_version, output.metadata, {"orchestrator": self.name}, detected
        )


class LedgerValues:
    """The values that a MemoryLedger keeps."""

    def __init__(self, ledger):
        self.ledger = ledger

    def keep(self, node, value):
        self.ledger.keep(node, value)

    def load(self, node):
        return json.loads(self.ledger.value(node).payload)


class World:
    """Declarations, a clock and a ledger in memory, in which plans are walked."""

    def __init__(self, clock, *declarations, zone="UTC", first_seen=None):
        self.clock = clock
        self.code = {}
        self.zone = zone
        self.first_seen = first_seen or {}
        self.ledger = MemoryLedger(clock)
        self.orchestrator = InPlace()
        self.slept = []
        self.declare(*declarations)

    def declare(self, *declarations):
        self.graph = graph_of(*declarations)

    @property
    def walk(self):
        return Walk(
            self.graph,
            self.ledger,
            LedgerValues(self.ledger),
            self.orchestrator,
            self.clock,
            self.code,
            self.zone,
            self.slept.append,
            self.first_seen,
        )

    @property
    def snapshot(self):
        return self.walk.snapshot()

    @property
    def nodes(self):
        return Nodes(self.graph, self.snapshot)

    def status(self):
        return statuses(self.graph, self.snapshot, self.code)

    def states(self):
        return {str(node): verdict.shown for node, verdict in self.status().items()}

    def why(self, name, partition=""):
        return self.status()[Node(name, partition)].why

    def version(self, name, partition=""):
        return self.ledger.records()[Node(name, partition)].version

    def plan(self, *names, **how):
        targets = [n if isinstance(n, Node) else Node(n) for n in names]
        return plan_targets(self.graph, self.nodes, self.status(), targets, **how)

    def due(self, **how):
        return plan_due(self.graph, self.nodes, self.status(), **how)

    def materialize(self, *names, **how):
        return self.walk.run(self.plan(*names, **how))

    def run_due(self):
        return self.walk.run(self.due())

    def change_source(self, name):
        self.ledger.report(Node(name), f"changed at {len(self.ledger.attempts)} {self.clock()}")


def names(nodes):
    return [str(node) for node in nodes]


def step_names(plan):
    return [str(step.node) for step in plan.steps]
