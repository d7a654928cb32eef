"""`exa serve` as an operator starts and ends it."""

import contextlib
import os
import signal
import socket

import psutil
import pytest
from homes import run_program
from served import INSTANCE, TOKEN, Served, until
from waiting import is_alive

SLOW = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"], timeout_seconds=None)
def lasting(**upstream):
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.05)
    return 1
"""
RELOAD = "mutation { reloadWorkspace { __typename } }"


def test_a_port_that_is_taken_is_told(fresh_site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = fresh_site.exa("-m", "pipeline", "serve", "--port", str(port), code=2)
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
        done = fresh_site.exa(
            "-m", "pipeline", "serve", "--port", str(port), "--host", "0.0.0.0", code=2
        )
        assert done.stderr.startswith(f"Warning: whoever reaches 0.0.0.0:{port}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--timezone", "Mars/Base"), "is not an IANA name"),
        (("--path-prefix", "build"), "begins with /"),
        (("--host", "no such host"), "--host no such host"),
        (("--port", "70000"), "70000"),
    ],
)
def test_what_cannot_work_is_told_before_anything_starts(fresh_site, words, told):
    done = fresh_site.exa("-m", "pipeline", "serve", *words, code=2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_declarations_that_cannot_work_are_told(fresh_site):
    fresh_site.home.write(
        "broken.py", 'from examlops_dagster import asset\n@asset(deps=["zz"])\ndef a(): ...\n'
    )
    done = fresh_site.exa("-m", "broken", "serve", "--port", "0", code=2)
    assert "1 problem in the declarations" in done.stderr


def test_read_only_refuses_every_change(tmp_path, monkeypatch, template):
    found = Served(tmp_path / "home", monkeypatch, template)
    found.start(
        "--no-daemon", "--read-only", "--path-prefix", "/here/now", EXAMLOPS_API_TOKEN=TOKEN
    )
    try:
        assert found.url.endswith("/here/now")
        for path in ("/api/run", "/api/get/report"):
            assert "read-only" in found.ask(path, method="POST", token=TOKEN, code=403)["error"]
        answer = found.graphql(RELOAD)
        assert answer["data"]["reloadWorkspace"]["__typename"] == "UnauthorizedError"
        report = found.answer("/report_asset_materialization/PM100", method="POST", body={})
        assert report.code == 401
        assert found.ask("/api/assets/PM100")["version"] == 0
        assert found.ask("/api/assets/report")["links"]["asset"] == "/here/now/assets/report"
        assert found.ask("/api/openapi.json")["servers"] == [{"url": "/here/now"}]
        page = found.answer("/build/assets").text
        assert 'href="/here/now/build/static/assets.css"' in page
        assert found.answer("/build/static/assets.css").code == 200
        dagsters_own = found.answer("/assets/report").text
        assert '"assetPrefix":"/here/now"' in dagsters_own
        assert (
            found.exa("--url", found.url, "assets", "graph").stdout.count("PM100 (source)\n") == 1
        )
    finally:
        found.close()


def test_the_daemon_is_watched_and_sigterm_lets_runs_end(tmp_path, monkeypatch, template):
    found = Served(tmp_path / "home", monkeypatch, template, {"pipeline.py": SLOW}, INSTANCE)
    found.start()
    try:
        assert found.ask("/api/run", method="POST", code=403)["error"].startswith("this server")
        [first] = until(lambda: daemons(found), found.log.read_text)
        os.kill(first, signal.SIGKILL)
        until(lambda: daemons(found) not in ([], [first]), found.log.read_text)
        until(lambda: found.ask("/api/health")["daemon"] == "running", found.log.read_text)
        until((found.folder / "began").exists, found.log.read_text)  # the daemon asked for it
        assert found.detail("lasting")["state"] == "running"
        text = (found.folder / "pipeline.py").read_text()
        found.home.write("pipeline.py", f"{text}\n# edited\n")
        assert found.ask("/api/health")["codeIsOlder"] == ["lasting"]
        assert "was edited after this server loaded it" in " ".join(
            found.answer("/build/assets").text.split()
        )

        def let_it_end():
            until(lambda: "Ending ..." in found.log.read_text(), found.log.read_text)
            (found.folder / "go").touch()

        assert found.stop(let_it_end) == 0
        [run] = found.home.instance.get_runs()
        assert run.status.value == "SUCCESS", found.log.read_text()
        assert found.home.endings("lasting") == ["succeeded"]
    finally:
        found.close()


def test_nothing_lives_on_when_it_is_killed(fresh_site):
    fresh_site.start()
    [daemon] = until(lambda: daemons(fresh_site), fresh_site.log.read_text)
    children = psutil.Process(fresh_site.process.pid).children(recursive=True)
    others = [child for child in children if child.pid != daemon and _words(child)]
    # a code server ends by itself when it misses the web server's heartbeat for 45 s
    assert all("--heartbeat" in _words(child) for child in others if "dagster" in _words(child))
    fresh_site.process.kill()
    fresh_site.process.wait()
    until(lambda: not is_alive(daemon))
    for child in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def test_dagster_itself_goes_on_without_us(fresh_site):
    """What workspace.yaml loads needs nothing of `exa serve`."""
    done = run_program(
        fresh_site.folder, "python", "-c",
        "import sys; import examlops_dagster.dagster_bridge.workspace; "
        "sys.exit(any(name.startswith('examlops_dagster.web') for name in sys.modules))",
        EXAMLOPS_MODULES="pipeline", PYTHONPATH=str(fresh_site.folder),
        DAGSTER_HOME=str(fresh_site.folder),
    )  # fmt: skip
    assert done.returncode == 0


def daemons(found):
    """Give the processes of Dagster's daemon that the server has started."""
    children = psutil.Process(found.process.pid).children()
    return [c.pid for c in children if "dagster._daemon" in _words(c) and is_alive(c.pid)]


def _words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
