"""Dagster's processes as an operator starts them: a code server, a daemon, a web server."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

from homes import PROGRAMS, Homestead
from ports import free_port

READY_SECONDS = 300  # only what hangs takes as long
INSTANCE = """\
telemetry:
  enabled: false
run_queue:
  max_concurrent_runs: 3
"""


class Site:
    """A home with the processes of Dagster over it; all end with the test."""

    def __init__(self, folder, monkeypatch, defs, template):
        self.home = Homestead(folder, monkeypatch, instance=INSTANCE, copy_of=template)
        self.folder = folder
        self._processes = {}
        self.code_port = free_port()
        self.home.write("defs.py", defs)
        self.home.write(
            "workspace.yaml",
            f"""\
            load_from:
              - grpc_server:
                  host: 127.0.0.1
                  port: {self.code_port}
                  location_name: site
            """,
        )

    def start_code_server(self):
        self.start(
            "code",
            *("dagster", "api", "grpc", "-f", "defs.py", "-h", "127.0.0.1"),
            *("-p", self.code_port, "--location-name", "site"),
        )
        self.until(lambda: _listens(self.code_port), "the code server")

    def start_daemon(self):
        self.start("daemon", "dagster-daemon", "run", "-w", "workspace.yaml")

    def start_web_server(self):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.start(
            "web", "dagster-webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", port
        )
        self.until(lambda: _listens(port), "the web server")

    def start(self, name, program, *arguments):
        """Start a program in a process group of its own; its output goes to a file."""
        own = ("DAGSTER_", "EXAMLOPS_", "PYTHONPATH", "PLATFORM_DB")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        with (self.folder / f"{name}.log").open("a") as log:
            self._processes[name] = subprocess.Popen(
                [PROGRAMS / program, *map(str, arguments)],
                cwd=self.folder,
                env={
                    **kept,
                    "DAGSTER_HOME": str(self.folder),
                    "EXAMLOPS_KEEP_FRESH_SECONDS": "2",
                    "PYTHONWARNINGS": "ignore",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._processes[name]

    def press_ctrl_c(self, name):
        """Interrupt a process as its terminal does: all that it started get it too."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(READY_SECONDS)

    def kill(self, name):
        """Kill a process, and all that it started, as a power cut does."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for name in list(self._processes):
            self.kill(name)
        self.home.close()

    def until(self, condition, what, seconds=READY_SECONDS):
        """Wait for something that the processes are going to do, and give it."""
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            logs = sorted(self.folder.glob("*.log"))
            shown = "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in logs)
            assert time.monotonic() < deadline, f"{what} never came\n{shown}"
            for name, process in self._processes.items():
                assert process.poll() in (None, 0), f"{name} ended\n{shown}"
            time.sleep(0.25)

    def calls(self):
        """Give what the functions of the site wrote down, in order."""
        path = self.folder / "calls"
        return path.read_text().split() if path.exists() else []

    def graphql(self, query, **variables):
        request = urllib.request.Request(
            f"{self.url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]


def _listens(port):
    with socket.socket() as found:
        found.settimeout(1)
        return found.connect_ex(("127.0.0.1", port)) == 0
