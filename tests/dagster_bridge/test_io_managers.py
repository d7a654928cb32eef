"""Values through I/O managers, ours and the user's, while upstreams move."""

import threading

import pytest
from dagster import Definitions, IOManager
from dagster import asset as plain_asset
from homes import names_of
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.io import ExamlopsIOManager
from examlops_dagster.ledger.builds import BuildsLedger


class Failing(ExamlopsIOManager):
    def handle_output(self, context, obj):
        raise OSError("disk full")


@pytest.mark.parametrize("way", ["click", "exa"])
def test_an_io_manager_that_fails_leaves_a_failed_build_and_no_claim(home, chain, way):
    definitions = home.definitions(chain, resources={"examlops_io": Failing()})
    if way == "click":
        assert not home.click(definitions, "features").success
    else:
        chain.defs = definitions
        report = home.exa(chain, "features")
        assert names_of(f.node for f in report.failed) == ["features"]
    project = home.project(chain)
    assert project.ledger.claims() == {}
    assert home.endings("features") == ["failed"]
    assert home.states(chain)["features"] == "failed"
    assert home.versions(chain)["features"] == 0
    assert home.events("features") == []
    chain.defs = None
    assert home.exa(chain, "features").ok
    assert home.versions(chain)["features"] == 2  # the number of the failed one stays unused


class InMemory(IOManager):
    def __init__(self):
        self.kept = {}

    def handle_output(self, context, obj):
        self.kept[context.asset_key] = obj

    def load_input(self, context):
        return self.kept[context.asset_key]


def test_an_io_manager_of_the_user_gets_and_gives_plain_values(home, chain):
    manager = InMemory()
    definitions = home.definitions(chain, resources={"examlops_io": manager})
    assert home.click(definitions, "features", "model").success
    assert {k.to_user_string(): v for k, v in manager.kept.items()} == {
        "features": {"read": 1},
        "model": {"from": {"read": 1}},
    }


def test_a_plain_asset_may_use_our_io_manager(home, chain):
    @plain_asset(io_manager_key="examlops_io")
    def kept():
        return {"by": "dagster"}

    @plain_asset
    def reads(kept, model):
        assert kept == {"by": "dagster"}
        assert model == {"from": {"read": 1}}

    definitions = home.definitions(chain, into=Definitions([kept, reads]))
    assert home.click(definitions, "features", "model").success
    assert home.click(definitions, "kept", "reads").success


def test_a_plain_asset_reads_the_value_that_was_recorded(home, chain):
    """A process was killed between the value and the event."""

    @plain_asset
    def reads(context, model):
        context.add_output_metadata({"read": str(model)})

    definitions = home.definitions(chain, into=Definitions([reads]))
    assert home.click(definitions, "features", "model").success
    store = ExamlopsIOManager().values(home.instance)
    from examlops_dagster.core.seams import Value

    store.keep(["model"], "", "never recorded", Value("json", b'"half a build"'))
    assert home.click(definitions, "reads").success
    assert home.events("reads")[-1].metadata["read"].value == "{'from': {'read': 1}}"


SLOW = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"], timeout_seconds=None)
def moving(**upstream):
    return {"version": upstream["PM100"]}


@asset(inputs={"moving": moving}, timeout_seconds=None)
def reader(moving):
    (HERE / "reading").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return moving
"""


def test_a_value_belongs_to_the_version_recorded_while_the_upstream_moves(home):
    home.declare("PM100")
    module = home.module(SLOW)
    assert home.exa(module, "moving").ok
    worker = threading.Thread(target=lambda: home.click(module, "reader"))
    worker.start()
    wait_until((home.folder / "reading").exists)
    home.advance("PM100", modules=module)
    home.click(module, "moving")
    (home.folder / "go").touch()
    worker.join(PATIENCE_SECONDS)
    records = home.records(module)
    assert records["moving"].version == 2
    assert records["reader"].built_from[Node("moving")].version == 1
    store = ExamlopsIOManager().values(home.instance)
    value = store.load(["reader"], "", records["reader"].data_version)
    assert value.payload == b'{"version":1}'
    assert home.why(module, "reader") == ("upstream moving changed (1 → 2)",)


def test_a_value_that_a_newer_build_took_away_is_not_taken_for_none(home, monkeypatch):
    """Between the versions and the values that are read, the upstream is built twice."""
    home.declare("PM100")
    module = home.module(SLOW)
    assert home.exa(module, "moving").ok
    (home.folder / "go").touch()
    definitions = home.definitions(module)
    begin = BuildsLedger.begin
    moved = []

    def move(self, attempt, notes=()):
        begin(self, attempt, notes)
        if attempt.node.asset == "reader" and not moved:
            moved.append(True)
            for _ in range(2):
                home.advance("PM100", modules=module)
                assert home.click(module, "moving").success

    monkeypatch.setattr(BuildsLedger, "begin", move)
    assert not home.click(definitions, "reader").success
    [failed] = home.builds("reader")
    assert failed.error == "upstream moving changed while its value was loaded → ask again"
    assert home.states(module)["reader"] == "never built"  # it is not held for that
    assert home.click(definitions, "reader").success
    assert home.records(module)["reader"].built_from[Node("moving")].version == 3
