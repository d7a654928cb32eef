"""The asset page, as a person with a mouse, a keyboard or a screen reader meets it."""

import re
import time
from urllib.parse import quote_plus

import pytest
from axe_playwright_python.sync_playwright import Axe
from served import ODD, READY_SECONDS, until
from waiting import slowness

SEED = ("PM100", "jpcp_features", "jpcp_model")


def opened(page, served, query=""):
    page.goto(f"{served.url}/build/assets{query}")
    page.wait_for_selector("a.node[tabindex='0']", state="attached")  # the script is alive
    return page


def comes_true(page, expression, argument=None):
    """Wait for a condition; Playwright's own way is an eval, which the page's policy forbids."""
    until(lambda: page.evaluate(expression, argument), lambda: expression)


def node(page, name):
    """Give the node of an asset in the graph."""
    position = page.evaluate(
        "name => [...document.querySelectorAll('tbody tr')]"
        ".find((row) => row.dataset.name === name).dataset.n",
        name,
    )
    return page.locator(f"a.node[data-n='{position}']")


def place(page, name):
    found = node(page, name)
    return int(found.get_attribute("data-column")), int(found.get_attribute("data-row"))


def row(page, name):
    return page.evaluate(
        "name => { const row = [...document.querySelectorAll('tbody tr')]"
        ".find((row) => row.dataset.name === name);"
        "return [...row.cells].map((cell) => cell.textContent.trim()); }",
        name,
    )


def violations(page):
    found = Axe().run(page).response["violations"]
    return [(v["id"], v["help"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found]


def test_the_seed_stands_left_to_right_with_kind_and_state_in_words(page, served):
    opened(page, served)
    assert [place(page, name)[0] for name in SEED] == [0, 1, 2]
    assert place(page, ODD)[0] == 1
    assert place(page, "from_odd")[0] == 2
    for name, kind in zip(SEED, ("dataset", "feature", "model"), strict=True):
        text = node(page, name).text_content()
        assert name in text
        assert f"{kind} · " in text
    boxes = [node(page, name).bounding_box() for name in SEED]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert boxes[1]["x"] + boxes[1]["width"] < boxes[2]["x"]


def test_a_stale_chain_says_why(page, served):
    served.exa("-m", "pipeline", "assets", "materialize", "jpcp_model")
    served.exa("-m", "pipeline", "assets", "source-changed", "PM100")
    opened(page, served)
    node(page, "jpcp_model").click()
    page.wait_for_selector("#detail article")
    assert "upstream jpcp_features is stale" in page.inner_text("#detail .why")
    page.click("#detail .built-from a")
    page.wait_for_selector("#detail article[data-asset='jpcp_features']")
    versions = re.search(r"changed \((\d+) → (\d+)\)", page.inner_text("#detail .why"))
    assert int(versions[2]) == int(versions[1]) + 1
    assert "jpcp_model" in page.inner_text("#detail .feeds")
    assert "asset=jpcp_features" in page.url
    assert page.get_attribute("#detail .links a", "href") == "/assets/jpcp_features"
    assert page.locator("#detail .builds a").first.get_attribute("href").startswith("/runs/")


def test_states_change_without_reloading(page, served):
    served.exa("-m", "pipeline", "assets", "materialize", "jpcp_model")
    opened(page, served, "?asset=jpcp_model")
    page.evaluate("window.untouched = true")
    assert "fresh" in node(page, "jpcp_model").text_content()
    (served.folder / "broken").touch()
    served.exa("-m", "pipeline", "assets", "materialize", "jpcp_model", "--force", code=1)
    served.exa("-m", "pipeline", "assets", "source-changed", "PM100")
    served.exa("-m", "pipeline", "assets", "materialize", "jpcp_model", code=1)
    page.wait_for_selector("a.node[data-state='failed']")
    assert "model · failed" in node(page, "jpcp_model").text_content()
    page.wait_for_selector("#detail .why >> text=no <b>luck</b>")
    assert row(page, "jpcp_model")[2] == "✗ failed"
    (served.folder / "broken").unlink()
    served.exa("assets", "declare", "new one", "--deps", "PM100")
    comes_true(
        page,
        "[...document.querySelectorAll('tbody tr')].some((row) => row.dataset.name === 'new one')",
    )
    assert place(page, "new one")[0] == 1
    served.exa("assets", "undeclare", "new one")
    assert page.evaluate("window.untouched")


def test_an_undeclared_upstream_is_shown_as_such(page, served):
    opened(page, served)
    assert "undeclared" in node(page, "nobody's").text_content()
    node(page, "nobody's").click()
    page.wait_for_selector("#detail article")
    assert "exa assets declare" in page.inner_text("#detail")


def test_odd_names_never_execute(page, served):
    opened(page, served, f"?asset={quote_plus(ODD)}&q={quote_plus(ODD)}")
    assert page.title() == "Assets"
    assert page.inner_text("#detail h2") == ODD
    assert page.input_value("#filters [name=q]") == ODD
    assert page.locator("tbody tr:visible").count() == 1
    node(page, "from_odd").dispatch_event("click")
    page.wait_for_selector("#detail article[data-asset='from_odd']")
    page.locator("#detail .built-from a", has_text=ODD).click()
    comes_true(page, "name => document.querySelector('#detail h2').textContent === name", ODD)
    assert page.title() == "Assets"
    assert page.locator("script").count() == 1


def test_search_and_filters_show_what_is_looked_for(page, served):
    opened(page, served)
    page.fill("#filters [name=q]", "JPCP")
    comes_true(page, "document.getElementById('found').textContent.startsWith('2 of')")
    assert page.locator("tbody tr:visible").count() == 2
    assert "off" in node(page, "PM100").get_attribute("class")
    page.select_option("#filters [name=kind]", "model")
    assert page.locator("tbody tr:visible").count() == 1
    page.fill("#filters [name=q]", "")
    page.select_option("#filters [name=kind]", "")
    page.select_option("#filters [name=state]", "undeclared")
    assert page.locator("tbody tr:visible").count() == 1
    assert page.url.endswith("?state=undeclared")
    opened(page, served, "?state=undeclared")
    assert page.locator("tbody tr:visible").count() == 1


def test_the_keyboard_is_enough(page, served):
    opened(page, served)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    node(page, "PM100").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.column") == "2"
    page.keyboard.press("ArrowLeft")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail article")
    assert label.startswith(page.inner_text("#detail h2"))
    assert page.evaluate("document.activeElement.id") == "detail"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, served, scheme):
    page.emulate_media(color_scheme=scheme)
    opened(page, served)
    assert violations(page) == []
    node(page, "jpcp_model").click()
    page.wait_for_selector("#detail article")
    page.fill("#filters [name=q]", "jpcp")
    assert violations(page) == []


def test_the_page_works_without_its_script(browser, served):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(READY_SECONDS * 1000)
    page = context.new_page()
    page.goto(f"{served.url}/build/assets")
    page.click("tbody a >> text=jpcp_features")
    assert page.inner_text("#detail h2") == "jpcp_features"
    page.fill("#filters [name=q]", "jpcp_model")
    page.click("#filters button")
    page.wait_for_url("**q=jpcp_model**")
    assert page.locator("tbody tr:visible").count() == 1
    context.close()


def test_a_server_that_is_gone_is_told(page, served, request):
    request.node.allowed_errors = ("Failed to load resource",)
    opened(page, served)
    page.route("**/build/assets/live", lambda route: route.abort())
    page.wait_for_selector("#live >> text=does not answer")
    page.unroute("**/build/assets/live")
    comes_true(page, "document.getElementById('live').textContent === ''")


def test_a_thousand_assets_are_drawn_and_searched(page, thousand):
    started = time.perf_counter()
    opened(page, thousand)
    assert time.perf_counter() - started < 20 * slowness()
    assert page.locator("a.node").count() == page.locator("tbody tr").count() == 1001  # and PM100
    columns = page.evaluate(
        "[...document.querySelectorAll('a.node')].map((n) => [Number(n.dataset.column),"
        "(n.dataset.up || '').split(' ').filter(Boolean).map(Number)])"
    )
    for column, above in columns:
        assert column == (1 + max(columns[up][0] for up in above) if above else 0)
    boxes = page.evaluate(
        "[...document.querySelectorAll('a.node')].map((n) => n.getAttribute('transform'))"
    )
    assert len(set(boxes)) == 1001  # none hides another
    page.fill("#filters [name=q]", "a999")
    comes_true(page, "document.getElementById('found').textContent === '1 of 1001'")
    page.click("tbody tr:visible a")
    page.wait_for_selector("#detail article")
    assert page.locator(".chosen-edges").get_attribute("d").count("M") == 2
