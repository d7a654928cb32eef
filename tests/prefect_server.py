"""A real Prefect server on loopback, with its own SQLite, and what it says through its API."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

from ports import free_port

START_SECONDS = 300  # five on a quiet machine
STAYING_HOME = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}

CLIENT_SETTINGS = {
    **STAYING_HOME,
    "PREFECT_CLIENT_MAX_RETRIES": "1",  # of a server that was killed; 5 take more than a minute
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.2",
}
"""Prefect reads them when it is imported."""


class PrefectServer:
    """Starts a server, asks it, and ends it."""

    def __init__(self, folder, copy_of=None):
        folder.mkdir(parents=True, exist_ok=True)
        self._database = folder / "prefect.db"
        if copy_of is not None:
            with (
                closing(sqlite3.connect(copy_of._database)) as theirs,
                closing(sqlite3.connect(self._database)) as ours,
            ):
                theirs.backup(ours)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api"
        self._log = folder / "log"
        kept = {n: v for n, v in os.environ.items() if not n.startswith("PREFECT_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("prefect"), "server", "start",
                 "--host", "127.0.0.1", "--port", str(port)],
                env={**kept, **STAYING_HOME, "PREFECT_HOME": str(folder), "PREFECT_PROFILES_PATH": str(folder / "profiles.toml")},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ask("health")
            except OSError:
                ended = self.process.poll() is not None
                assert not ended, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.1)
            else:
                return self

    def ask(self, path, body=None):
        request = urllib.request.Request(
            f"{self.url}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def flow_run(self, run_id):
        return self.ask(f"flow_runs/{run_id}")

    def flow_of(self, flow_run):
        return self.ask(f"flows/{flow_run['flow_id']}")["name"]

    def task_runs(self, run_id):
        """Give the task runs of a flow run; the server gets to know of them a moment later."""
        body = {"flow_runs": {"id": {"any_": [run_id]}}}
        return self._when_there("task_runs/filter", body, lambda found: found and all(
            run["state_type"] in ("COMPLETED", "FAILED") for run in found
        ))  # fmt: skip

    def logs(self, run_id, until):
        """Give the messages that were logged in a flow run, once one holds a text."""
        body = {"logs": {"flow_run_id": {"any_": [run_id]}}}
        found = self._when_there(
            "logs/filter", body, lambda logs: any(until in log["message"] for log in logs)
        )
        return [log["message"] for log in found]

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _when_there(self, path, body, wanted):
        deadline = time.monotonic() + 30
        while not wanted(found := self.ask(path, body)):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found
