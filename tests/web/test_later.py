"""Requests that need several runs in turn: the server launches the later ones by itself."""

from datetime import timedelta

import psutil
import pytest
from served import TOKEN, Served, until

from examlops_dagster.clock import utc_now
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.orders import Order, Orders, OrderState

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
    found = site.ask("/api/orders")["orders"]
    return [order["id"] for order in found if order["state"] == "open"]


def fresh(site, name):
    return site.detail(name)["fresh"]


def test_what_waits_for_the_first_run_is_launched_when_that_ended_well(site):
    start(site)
    found = site.ask("/api/get/shares", method="POST", token=TOKEN, code=202)
    order = site.ask(f"/api/orders/{found['order']}")
    assert (order["names"], order["later"]) == (["shares"], ["shares", "total"])
    assert [run["id"] for run in order["runs"]] == [run["id"] for run in found["runs"]]
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
    order = site.ask(f"/api/orders/{found['order']}")
    assert (order["state"], order["later"], order["why"]) == ("done", [], None)
    assert order["endedAt"] > order["askedAt"]
    assert site.detail("shares")["order"] is None
    again = site.ask("/api/get/shares", method="POST", token=TOKEN)
    assert (again["runs"], again["order"]) == ([], None)


def test_nothing_is_launched_behind_a_run_that_failed(site):
    start(site)
    (site.folder / "broken").write_text("yes")
    found = site.ask("/api/get/total", method="POST", token=TOKEN, code=202)
    told = "total: not launched any more, since run"
    until(lambda: told in site.log.read_text(), site.log.read_text)
    assert left(site) == []
    [run] = site.home.instance.get_runs()
    order = site.ask(f"/api/orders/{found['order']}")
    assert (order["state"], order["later"]) == ("given_up", ["total"])
    assert order["why"] == f"since run {run.run_id} ended as FAILURE"
    assert site.detail("total")["order"] == order
    page = site.answer("/build/assets/detail?asset=total").text
    assert f"Not launched any more: {order['why']}" in page
    assert site.ask("/api/orders")["orders"] == [order]


def test_an_order_that_nobody_knows_is_told(site):
    start(site)
    told = site.ask("/api/orders/nosuch", code=404)
    assert told["error"] == "there is no order 'nosuch' (any more) → GET /api/orders"


def code_servers(site):
    started = psutil.Process(site.process.pid).children(recursive=True)
    return [each for each in started if "grpc" in each.cmdline() or "code-server" in each.cmdline()]


def test_a_launch_is_tried_again_while_the_code_server_is_away_and_says_so(site):
    site.exa("-m", "pipeline", "assets", "materialize", "parts")
    [run] = site.home.instance.get_runs()
    site.start("--no-daemon", EXAMLOPS_API_TOKEN=TOKEN, DAGSTER_GRPC_TIMEOUT_SECONDS="15")
    away = code_servers(site)
    assert away
    for process in away:
        process.suspend()
    try:
        later = frozenset({Node("total")})
        order = Order("x", ("total",), None, False, (run.run_id,), later, utc_now())
        Orders(site.home.project().database).keep(order)
        until(lambda: site.ask("/api/orders/x")["failures"], site.log.read_text)
        told = site.ask("/api/orders/x")
        assert (told["state"], told["later"]) == ("open", ["total"])
        assert told["nextAt"] is not None
        assert told["why"]
        said = "launch 1 of 8 failed, the next is in 10 s"
        until(lambda: said in site.log.read_text(), site.log.read_text)
        assert "tried again" in site.answer("/build/assets/detail?asset=total").text
    finally:
        for process in away:
            process.resume()
    until(lambda: fresh(site, "total"), site.log.read_text)
    until(lambda: left(site) == [], site.log.read_text)
    assert site.ask("/api/orders/x")["state"] == "done"


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


def test_an_order_whose_launch_failed_is_open_again_when_its_time_has_come(any_database, clock):
    orders = Orders(any_database, clock)
    order = Order("x", (), None, True, (), frozenset({Node("total", "a")}), clock())
    orders.keep(order, taken=True)
    orders.postpone(order, "the code server is away", clock() + timedelta(seconds=10))
    assert orders.open() == []
    [seen] = orders.listed()
    assert (seen.failures, seen.why) == (1, "the code server is away")
    clock.advance(seconds=10)
    assert orders.open() == [seen]
    assert orders.take(seen)
    orders.launched(seen)
    assert orders.named("x") == order


def test_what_became_of_an_order_is_known_for_a_week(any_database, clock):
    orders = Orders(any_database, clock)
    first, second = (
        Order(name, (), None, True, (), frozenset({Node("total")}), clock()) for name in "ab"
    )
    for order in (first, second):
        orders.keep(order)
    orders.end(first, "no luck")
    found = orders.named("a")
    assert (found.state, found.why, found.ended_at) == (OrderState.GIVEN_UP, "no luck", clock())
    clock.advance(days=7, seconds=1)
    orders.end(second)
    assert [order.id for order in orders.listed()] == ["b"]
    assert orders.named("b").state is OrderState.DONE
