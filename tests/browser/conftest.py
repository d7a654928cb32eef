"""A real Chromium over a real `exa serve`."""

import shutil
from pathlib import Path

import pytest
from needs import lack
from served import READY_SECONDS, Served

PICTURES = Path(__file__).parents[2] / ".screenshots"


@pytest.fixture
def browser():
    """Give a Chromium for one test: Playwright runs an event loop in this thread meanwhile."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        lack("no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # as root, as CI runs, Chromium refuses its sandbox
        browser = playwright.chromium.launch(
            executable_path=found,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=READY_SECONDS * 1000,
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory, template):
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = Served(tmp_path_factory.mktemp("served") / "home", monkeypatch, template)
        found.start("--no-daemon")
        yield found
        found.close()


@pytest.fixture(scope="session")
def thousand(tmp_path_factory, template):
    """A server over 1,000 assets in layers of 25, two upstreams each."""
    lines = ["from examlops_dagster import asset\n"]
    for n in range(1000):
        layer, place = divmod(n, 25)
        above = [f"a{(layer - 1) * 25 + (place + k) % 25}" for k in (0, 7)] if layer else []
        lines.append(f'@asset("a{n}", deps={above!r}, timeout_seconds=None)\ndef f{n}(): ...\n')
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("thousand") / "home"
        found = Served(folder, monkeypatch, template, {"pipeline.py": "\n".join(lines)})
        found.start("--no-daemon", "--read-only")
        yield found
        found.close()


@pytest.fixture
def page(browser, request):
    """Give a page on which nothing may go wrong; at the end its picture is kept."""
    context = browser.new_context(viewport={"width": 1500, "height": 950})
    page = context.new_page()
    page.set_default_timeout(READY_SECONDS * 1000)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    yield page
    PICTURES.mkdir(exist_ok=True)
    name = request.node.name.replace("/", "-").replace("[", "-").rstrip("]")
    page.screenshot(path=PICTURES / f"{name}.png")
    context.close()
    allowed = getattr(request.node, "allowed_errors", ())
    assert [text for text in wrong if not any(part in text for part in allowed)] == []
