"""5,000 assets in the web: how long the API takes, and how soon Chromium paints the page.

Layers fifty wide, two upstreams each, all recorded as built; a real `exa serve` on loopback.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _common import PYTHON, environment, fill_ledger, home_in, in_turn, inside, ours, scratch, show

LIMIT_SECONDS = 300
WIDTH = 50
PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint")[0];
  if (found) resolve(found.startTime);
}).observe({ type: "paint", buffered: true }))"""
LOADED = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Start `exa serve`, and give its address."""
    log = home / "serve.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [PYTHON, "-m", "examlops_dagster.cli", "-m", "assets", "serve", "--port", "0",
             "--no-daemon", "--read-only"],
            cwd=home, env={**environment(home), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (found := re.search(r"Serving (\S+)/build/assets", log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"exa serve did not start\n{log.read_text()}")
            time.sleep(0.2)
        yield found[1]
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
        return answer.read()


def touched(home: Path) -> None:
    """Change something in platform.db, so that the next answer needs a new snapshot."""
    import sqlite3

    with sqlite3.connect(home / "platform.db") as connection:
        connection.execute("INSERT INTO first_seen VALUES (?, '', 0)", (str(time.time()),))
    connection.close()


def painted(url: str, repeat: int) -> tuple[float, float]:
    """Give seconds to the first paint and until the script has run, the best of some."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("no chromium: apt-get install chromium")
    paints, loads = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(repeat):
            page = browser.new_page()
            page.goto(url, timeout=LIMIT_SECONDS * 1000)
            paints.append(page.evaluate(PAINT) / 1000)
            loads.append(page.evaluate(LOADED) / 1000)
            page.close()
        browser.close()
    return min(paints), min(loads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    os.environ.pop("DAGSTER_HOME", None)
    with scratch() as folder:
        home = home_in(folder, "web", {"assets": ours(in_layers(chosen.size))})
        with inside(home):
            fill_ledger("assets")
        with served(home) as url:
            api, page = f"{url}/api/assets", f"{url}/build/assets"
            size = len(fetched(api)) / 1e6

            def anew() -> None:
                touched(home)
                fetched(api)

            works: dict[str, Callable[[], object]] = {
                "/api/assets, warm": lambda: fetched(api),
                "/api/assets?limit=100, warm": lambda: fetched(f"{api}?limit=100"),
                "/api/assets, after a change": anew,
                "/build/assets, the server's own time": lambda: fetched(page),
            }
            took = in_turn(works, chosen.repeat)
            paint, loaded = painted(page, chosen.repeat)
    show(
        f"{chosen.size} assets, {size:.1f} MB of JSON",
        ("", "time"),
        [
            *((name, each.wall) for name, each in took.items()),
            ("first paint in Chromium", paint),
            ("all drawn and the script alive", loaded),
        ],
    )


def in_layers(size: int) -> dict[str, list[str]]:
    return {
        f"a{n}": [f"a{(n // WIDTH - 1) * WIDTH + (n + k) % WIDTH}" for k in (0, 7)]
        if n >= WIDTH
        else []
        for n in range(size)
    }


if __name__ == "__main__":
    main()
