"""A real `exa serve` over a home of its own, asked over HTTP, by the command line and by a browser."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode

import psutil
from homes import PROGRAMS, Homestead

READY_SECONDS = 300  # only what hangs takes as long
INSTANCE = """\
telemetry:
  enabled: false
"""
AT_ONCE = f"""{INSTANCE}
run_coordinator:
  module: dagster.core.run_coordinator
  class: DefaultRunCoordinator
"""
"""Runs start without a daemon, which would also build by itself what tests look at."""

TOKEN = "töken of the tests"

ODD = 'odd "names"/<script>document.title="hurt"</script> & ünïcode \'x\''
"""A name with all that a page, an address or an attribute could stumble over."""

PIPELINE = f'''\
from pathlib import Path

from examlops_dagster import (
    DatasetAlias, Manual, Schedule, asset, partitions, sink, task,
)

HERE = Path(__file__).parent


@asset("jpcp_features", kind="feature", deps=["PM100"], timeout_seconds=None)
def build_jpcp_features(**upstream):
    """Features of the jobs."""
    return upstream


@asset("jpcp_model", kind="model", deps=["jpcp_features"], timeout_seconds=None)
def train_jpcp(**upstream):
    if (HERE / "broken").exists():
        raise RuntimeError("no <b>luck</b>")
    return upstream


@asset(kind="report", inputs={{"jpcp_model": train_jpcp}}, freshness=Manual, timeout_seconds=None)
@sink("./report.json")
def report(jpcp_model):
    return jpcp_model


@asset("by/part", deps=["PM100"], partitions={{"partition": partitions(["a", "b"])}}, timeout_seconds=None)
def by_part(partition, **upstream):
    if partition == "b" and (HERE / "broken").exists():
        raise RuntimeError("not b")
    return partition


@asset(deps=[{ODD!r}], timeout_seconds=None)
def from_odd(**upstream):
    return 1


@task(outlets=[DatasetAlias("out")], freshness=Schedule("0 6 1 1 *"), timeout_seconds=None)
def mail():
    pass
'''


class Served:
    """A home, and the server over it; ended with all that it started."""

    def __init__(self, folder, monkeypatch, template, modules=None, instance=AT_ONCE):
        self.home = Homestead(folder, monkeypatch, instance, copy_of=template)
        self.folder = folder
        for name, text in (modules or {"pipeline.py": PIPELINE}).items():
            self.home.write(name, text)
        self.home.declare("PM100")
        if modules is None:
            self.home.declare(ODD, deps=["nobody's"])
        self.log = folder / "serve.log"
        self.process = None
        self.url = ""

    def environment(self, **more):
        own = ("DAGSTER_", "EXAMLOPS_", "PYTHONPATH", "PLATFORM_DB")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {
            **kept, "DAGSTER_HOME": str(self.folder), "PYTHONWARNINGS": "ignore",
            "XDG_CACHE_HOME": str(self.folder / ".cache"), "PYTHONDONTWRITEBYTECODE": "1",
            "EXAMLOPS_KEEP_FRESH_SECONDS": "2", **more,
        }  # fmt: skip

    def start(self, *options, module="pipeline", **environment):
        """Start it on a port that is free, and wait until it answers."""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [PROGRAMS / "exa", "-m", module, "serve", "--port", "0", *options],
                cwd=self.folder, env=self.environment(**environment), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        until(lambda: self._address() or self.process.poll() is not None, self.log.read_text)
        assert self.process.poll() is None, self.log.read_text()
        self.url = self._address()
        return self

    def _address(self):
        found = re.search(r"Serving (\S+)/build/assets", self.log.read_text())
        return found[1] if found else ""

    def stop(self, meanwhile=lambda: None):
        """End it as a service manager does; nothing of it may be left."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        try:
            meanwhile()
            code = self.process.wait(READY_SECONDS)
        finally:
            self.process.kill()
            _, left = psutil.wait_procs(children, timeout=60)
            for child in left:
                child.kill()
        assert not left, self.log.read_text()
        return code

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.home.close()

    def ask(self, path, *, method="GET", body=None, code=200, token=None, tag=None, **query):
        """Ask the server, and give its answer as JSON; None where nothing has changed."""
        found = self.answer(path, method=method, body=body, token=token, tag=tag, **query)
        assert found.code == code, (found.code, found.text)
        return json.loads(found.text) if found.text else None

    def answer(self, path, *, method="GET", body=None, token=None, tag=None, **query):
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}".encode().decode("latin-1")
        if tag is not None:
            headers["If-None-Match"] = tag
        text = f"?{urlencode(query, doseq=True)}" if query else ""
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}{text}", sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return Answer(response.status, response.headers, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read().decode())

    def detail(self, name):
        return self.ask(f"/api/assets/{quote(name)}")

    def exa(self, *words, code=0, **environment):
        done = subprocess.run(
            [PROGRAMS / "exa", *words], cwd=self.folder, env=self.environment(**environment),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=READY_SECONDS,
        )  # fmt: skip
        assert code is None or done.returncode == code, done
        return done

    def status(self):
        """Give what `exa assets status --json` says here, without the server."""
        return json.loads(self.exa("-m", "pipeline", "assets", "status", "--json").stdout)

    def graphql(self, query, **variables):
        return self.ask("/graphql", method="POST", body={"query": query, "variables": variables})


class Answer:
    def __init__(self, code, headers, text):
        self.code = code
        self.headers = headers
        self.text = text


def until(condition, log=lambda: "", seconds=READY_SECONDS):
    """Wait for something, and give it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, log()
        time.sleep(0.1)
    return found


def content_of(path):
    """Give all that a SQLite database holds, table by table."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
            for (name,) in tables.fetchall()
        }
