import subprocess
import sys
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from needs import library

from examlops_dagster.core.declarations import closed_over, merge
from examlops_dagster.core.declared import declarations_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import plan_targets
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import statuses
from examlops_dagster.core.walk import Walk
from examlops_dagster.demo import assets, delivery
from examlops_dagster.formats import decode
from examlops_dagster.ledger.memory import MemoryLedger
from examlops_dagster.orchestrators.local import LocalOrchestrator

library("sklearn")
library("pyarrow")


def declared():
    merged, problems = merge(closed_over(declarations_of(assets)), [])
    return build_graph(merged, problems)


class Demo:
    """The demo on the plain walk, with nothing but memory behind it."""

    def __init__(self):
        self.graph = declared()
        self.ledger = MemoryLedger(lambda: datetime.now(timezone.utc))
        self.metadata = {}
        values = SimpleNamespace(keep=self.ledger.keep, load=self.value)
        self.walk = Walk(self.graph, self.ledger, values, self, self.ledger._clock)
        self.name = "local"

    def run(self, request):
        result = LocalOrchestrator(in_process=True).run(request)
        self.metadata[request.node.asset] = result.metadata
        return result

    def value(self, node):
        return decode(self.ledger.value(node))

    def materialize(self, name):
        snapshot = self.walk.snapshot()
        verdicts = statuses(self.graph, snapshot, {})
        plan = plan_targets(self.graph, Nodes(self.graph, snapshot), verdicts, [Node(name)])
        return self.walk.run(plan)


@pytest.fixture
def demo(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_DEMO_DATA", str(tmp_path))
    return Demo()


def names(nodes):
    return {node.asset for node in nodes}


def test_the_demo_is_two_sources_and_what_is_made_from_them():
    graph = declared()
    assert {n for n, d in graph.declarations.items() if d.is_source} == {"digits", "holdout"}
    assert graph.ancestors(["digits_report"]) == set(graph.declarations)


def test_loading_the_demo_loads_no_heavy_library():
    code = (
        "import sys, examlops_dagster.demo.assets; "
        "sys.exit(', '.join({'pandas', 'sklearn', 'numpy', 'dagster'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_more_images_rebuild_the_stale_slice_alone_and_make_a_better_model(demo):
    demo.materialize("digits_report")
    first = demo.metadata["digits_model"]
    delivery.deliver("digits", delivery.ALL_IMAGES)
    demo.ledger.report(Node("digits"), "delivered again")

    outcome = demo.materialize("digits_report")

    assert names(outcome.rebuilt) == {"digits_features", "digits_model", "digits_report"}
    assert names(outcome.skipped) == {"digits", "holdout", "holdout_features"}
    second = demo.metadata["digits_model"]
    assert (first["n_train"], second["n_train"]) == (delivery.FIRST_DELIVERY, delivery.ALL_IMAGES)
    assert 0.85 < first["accuracy"] < second["accuracy"]


def test_the_same_images_again_train_no_model(demo):
    demo.materialize("digits_report")
    demo.ledger.report(Node("digits"), "delivered again")

    outcome = demo.materialize("digits_report")

    assert names(outcome.rebuilt) == {"digits_features"}
    assert names(outcome.unchanged) == {"digits_model", "digits_report"}


def test_the_report_agrees_with_the_model_that_it_is_about(demo):
    demo.materialize("digits_report")
    report = demo.value(Node("digits_report"))
    assert report["accuracy"] == demo.metadata["digits_model"]["accuracy"]
    assert sorted(report["recall"]) == [str(digit) for digit in range(10)]


def test_training_again_on_the_same_images_gives_the_same_model(demo):
    demo.materialize("digits_model")
    features = [demo.value(Node(name)) for name in ("digits_features", "holdout_features")]
    again = assets.digits_model(*features)
    model = demo.value(Node("digits_model"))
    test = features[1].drop(columns="label")
    assert (again.value.predict_proba(test) == model.predict_proba(test)).all()
