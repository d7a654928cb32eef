"""Requests that need several runs in turn: the server launches the later ones by itself."""

import pytest
from served import TOKEN, Served, until

from examlops_dagster.core.records import Node
from examlops_dagster.ledger.builds import utc_now
from examlops_dagster.ledger.orders import Order, Orders

PIPELINE = """\
from pathlib import Path

from examlops_dagster import Manual, asset, partitions

HERE = Path(__file__).parent


@asset(deps=["PM100"], partitions={"k": partitions(["a", "b"])}, timeout_seconds=None)
def parts(k, **upstream):
    if (HERE / "broken").exists():
        raise RuntimeError("no luck")
    return k


@asset(deps=[parts], freshness=Manual, timeout_seconds=None)
def total(**upstream):
    return len(upstream["parts"])


@asset(deps=[total], partitions={"k": partitions(["x", "y"])}, timeout_seconds=None)
def shares(k, **upstream):
    return k
"""


@pytest.fixture
def site(tmp_path, monkeypatch, template):
    modules = {"pipeline.py": PIPELINE}
    found = Served(tmp_path / "site", monkeypatch, template, modules)
    yield found
    found.close()


def start(site):
    site.start("--no-daemon", EXAMLOPS_API_TOKEN=TOKEN)


def left(site):
    project = site.home.project()
    rows = project.database.read()
    with rows as connection:
        return connection.execute("SELECT id FROM orders")


def fresh(site, name):
    return site.detail(name)["fresh"]


def test_what_waits_for_the_first_run_is_launched_when_that_ended_well(site):
    start(site)
    found = site.ask("/api/get/shares", method="POST", token=TOKEN, code=202)
    assert [run["assets"] for run in found["runs"]] == [["parts"]]
    assert found["later"] == ["shares", "total"]
    until(lambda: fresh(site, "shares"), site.log.read_text)
    until(lambda: left(site) == [], site.log.read_text)
    runs = site.home.instance.get_runs()
    assert sorted(key.to_user_string() for run in runs for key in run.asset_selection) == [
        "parts",
        "shares",
        "total",
    ]
    rows = site.home.builds("total", modules=[])
    assert [row.state.value for row in rows] == ["succeeded"]


def test_nothing_is_launched_behind_a_run_that_failed(site):
    start(site)
    (site.folder / "broken").write_text("yes")
    site.ask("/api/get/total", method="POST", token=TOKEN, code=202)
    until(lambda: left(site) == [], site.log.read_text)
    assert "total: not launched any more, since run" in site.log.read_text()
    assert len(site.home.instance.get_runs()) == 1


def test_a_server_goes_on_with_what_the_former_one_had_left(site):
    start(site)
    [run] = site.ask("/api/get/parts", method="POST", token=TOKEN, code=202)["runs"]
    until(lambda: fresh(site, "parts"), site.log.read_text)
    site.stop()
    later = frozenset({Node("total")})
    project = site.home.project()
    order = Order("x", ("total",), None, False, (run["id"],), later, utc_now())
    Orders(project.database).keep(order)
    start(site)
    until(lambda: fresh(site, "total"), site.log.read_text)
    until(lambda: left(site) == [], site.log.read_text)


def test_an_order_is_taken_by_one_server(any_database, clock):
    orders = Orders(any_database, clock)
    order = Order("x", ("total",), "a", True, ("r",), frozenset({Node("total", "a")}), clock())
    orders.keep(order)
    assert orders.open() == [order]
    assert orders.take(order)
    assert not orders.take(order)
    assert orders.open() == []
    clock.advance(minutes=2)  # whoever took it was killed
    assert orders.open() == [order]
    assert orders.take(order)
    orders.end(order)
    clock.advance(minutes=2)
    assert orders.open() == []
    assert not orders.take(order)
