"""A real `dagster dev`, driven as its pages drive it."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from homes import PROGRAMS, Homestead
from ports import free_port
from waiting import PATIENCE_SECONDS, is_alive, wait_until

PIPELINE = """\
import os
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"])
def features(**upstream):
    return upstream["PM100"]


@asset(deps=[features])
def model(**upstream):
    return upstream["features"]


@asset
def endless():
    (HERE / "endless.pid").write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
"""
DEFINITIONS = """\
from examlops_dagster.dagster_bridge.definitions import build_definitions

defs = build_definitions("pipeline", automation="off")
"""

LAUNCH = """
mutation($parameters: ExecutionParams!) {
  launchPipelineExecution(executionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}
"""
TERMINATE = """
mutation($id: String!) {
  terminateRuns(runIds: [$id], terminatePolicy: SAFE_TERMINATE) {
    ... on TerminateRunsResult { terminateRunResults { __typename } }
  }
}
"""
STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


class UI:
    def __init__(self, home):
        self.home = home
        self.url = None
        self.log = home.folder / "dev.log"
        self.environment = {
            **os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self.dev = None

    def start(self):
        for tries_left in (4, 3, 2, 1, 0):
            port = str(free_port())
            self.url = f"http://127.0.0.1:{port}"
            with self.log.open("w") as log:
                self.dev = subprocess.Popen(
                    [PROGRAMS / "dagster", "dev", "-m", "defs", "-h", "127.0.0.1", "-p", port],
                    cwd=self.home.folder, env=self.environment, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            wait_until(lambda: self.dev.poll() is not None or self._is_loaded())
            if self.dev.poll() is None:
                return
            said = self.log.read_text()  # somebody else may have taken the port meanwhile
            assert tries_left, said
            assert "in use" in said, said

    def stop(self):
        children = psutil.Process(self.dev.pid).children(recursive=True)
        self.dev.send_signal(signal.SIGINT)
        try:
            self.dev.wait(120)
        except subprocess.TimeoutExpired:
            self.dev.kill()
        _, left = psutil.wait_procs(children, timeout=120)
        for process in left:
            process.kill()
        assert not left, self.log.read_text()

    def _is_loaded(self):
        query = "{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename } } } } }"
        try:
            found = self.ask(query)["workspaceOrError"]["locationEntries"]
        except (urllib.error.URLError, ConnectionError):
            return False
        kinds = [entry["locationOrLoadError"]["__typename"] for entry in found]
        return kinds == ["RepositoryLocation"]

    def ask(self, query, **variables):
        answer = self.post("/graphql", {"query": query, "variables": variables})
        assert not answer.get("errors"), answer
        return answer["data"]

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def materialize(self, *names):
        """Do what the Materialize button does, and give the id of the run."""
        parameters = {
            "mode": "default",
            "executionMetadata": {"tags": []},
            "runConfigData": "{}",
            "selector": {
                "repositoryLocationName": "defs",
                "repositoryName": "__repository__",
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": [name]} for name in names],
                "assetCheckSelection": [],
            },
        }
        answer = self.ask(LAUNCH, parameters=parameters)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def terminate(self, run_id):
        """Do what the Terminate button does, and give what Dagster answers."""
        answer = self.ask(TERMINATE, id=run_id)
        [result] = answer["terminateRuns"]["terminateRunResults"]
        return result["__typename"]

    def status(self, run_id):
        return self.ask(STATUS, id=run_id)["runOrError"]["status"]

    def wait_for_end(self, run_id):
        ends = ("SUCCESS", "FAILURE", "CANCELED")
        wait_until(lambda: self.status(run_id) in ends)
        return self.status(run_id)

    def exa(self, *words, code=0):
        done = subprocess.run(
            [PROGRAMS / "exa", "-m", "pipeline", *words], cwd=self.home.folder,
            env=self.environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done
        return done

    def states(self):
        rows = json.loads(self.exa("assets", "status", "--json").stdout)
        return {row["name"]: (row["version"], row["state"]) for row in rows}


@pytest.fixture(scope="module")
def ui(tmp_path_factory, template):
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("ui") / "home"
        home = Homestead(folder, monkeypatch, copy_of=template)
        home.write("pipeline.py", PIPELINE)
        home.write("defs.py", DEFINITIONS)
        home.declare("PM100")
        found = UI(home)
        found.start()
        yield found
        found.stop()
        home.close()


@pytest.fixture
def endless(ui):
    """Give the file in which the endless function writes its process."""
    path = ui.home.folder / "endless.pid"
    path.unlink(missing_ok=True)
    return path


def pid_in(path):
    wait_until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_what_the_button_builds_is_fresh_for_exa(ui):
    run_id = ui.materialize("features", "model")
    assert ui.wait_for_end(run_id) == "SUCCESS", ui.log.read_text()
    assert {name: ui.states()[name] for name in ("PM100", "features", "model")} == {
        "PM100": (1, "fresh"), "features": (1, "fresh"), "model": (1, "fresh"),
    }  # fmt: skip


def test_a_report_through_rest_makes_what_is_below_it_stale(ui):
    if ui.states()["model"][0] == 0:
        ui.exa("assets", "materialize", "model")
    version = ui.states()["PM100"][0]
    ui.post("/report_asset_materialization/PM100", {"data_version": f"of {time.time()}"})
    states = ui.states()
    assert states["PM100"] == (version + 1, "fresh")
    assert states["features"][1] == states["model"][1] == "runnable_stale"
    done = ui.exa("assets", "materialize", "model")
    assert "rebuilt features, model" in done.stdout
    assert ui.states()["model"][1] == "fresh"


def test_terminate_ends_a_run_of_the_command_line(ui, endless):
    process = subprocess.Popen(
        [PROGRAMS / "exa", "-m", "pipeline", "assets", "materialize", "endless"],
        cwd=ui.home.folder, env=ui.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    worker = pid_in(endless)
    [run] = ui.home.instance.get_runs(limit=1)
    assert ui.states()["endless"] == (0, "running")
    # Dagster finds no process of its own to tell, but the run is CANCELING, and ours sees that
    assert ui.terminate(run.run_id) == "TerminateRunFailure"
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, errors
    assert ui.status(run.run_id) == "CANCELED"
    assert not is_alive(worker)
    assert "Traceback" not in errors
    assert ui.home.endings("endless")[-1] == "cancelled"


def test_terminate_ends_a_run_of_the_ui(ui, endless):
    run_id = ui.materialize("endless")
    worker = pid_in(endless)
    assert ui.states()["endless"] == (0, "running")
    assert ui.terminate(run_id) == "TerminateRunSuccess"
    assert ui.wait_for_end(run_id) == "CANCELED", ui.log.read_text()
    wait_until(lambda: not is_alive(worker))
    assert ui.home.endings("endless")[-1] == "cancelled"
    assert ui.states()["endless"] == (0, "failed")
    assert ui.home.project().ledger.claims() == {}
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
