"""Builds as flow runs of a real Prefect server, read back through its API."""

import logging
import os
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import worker_functions as functions
from build_requests import request
from homes import Homestead

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT, Upstream
from examlops_dagster.core.records import Node
from examlops_dagster.errors import AssetBuildError, BuildTimeoutError
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators.prefect import FLOW, PrefectOrchestrator
from examlops_dagster.orchestrators.registry import make


@pytest.fixture
def prefect(prefect_server):
    orchestrator = PrefectOrchestrator({"PREFECT_API_URL": prefect_server.url})
    yield orchestrator
    orchestrator.close()


def here(function, arguments=None, **more):
    return request(function, arguments, timeout_seconds=DEFAULT_TIMEOUT, **more)


def counted(folder):
    return len(list(Path(folder).iterdir()))


def refused_address():
    return {"PREFECT_API_URL": "http://127.0.0.1:9/api"}


# A flow run


def test_a_build_is_a_completed_flow_run_with_one_task(prefect, prefect_server):
    arguments = {"PM100": 3, "rows": [1]}
    result = prefect.run(
        here(functions.arguments, arguments, upstreams=(Upstream("PM100"),), partition="2026-01-05")
    )
    assert decode(result.value) == arguments
    run_id = result.provenance["prefect_flow_run_id"]
    assert result.provenance == {"orchestrator": "prefect", "prefect_flow_run_id": run_id}
    flow_run = prefect_server.flow_run(run_id)
    assert prefect_server.flow_of(flow_run) == FLOW
    assert (flow_run["name"], flow_run["state_type"]) == (
        "asset:numbers[2026-01-05]",
        "COMPLETED",
    )
    assert flow_run["parent_task_run_id"] is None
    assert flow_run["parameters"] == {
        "asset": "numbers",
        "partition": "2026-01-05",
        "upstream": {"PM100": 3},
    }
    [task] = prefect_server.task_runs(run_id)
    assert (task["name"], task["state_type"]) == ("produce:numbers[2026-01-05]", "COMPLETED")


def test_what_it_prints_and_logs_is_in_the_logs_of_the_run(prefect, prefect_server):
    def says():
        from prefect.logging import get_run_logger

        print("printed")
        get_run_logger().info("logged with Prefect")
        print("last words")

    run_id = prefect.run(here(says)).provenance["prefect_flow_run_id"]
    told = prefect_server.logs(run_id, "produced numbers")
    assert {"printed", "logged with Prefect", "last words"} <= set(told)
    assert "producing numbers from nothing" in told


def test_the_function_runs_in_this_process_and_a_stated_limit_in_another(prefect):
    assert decode(prefect.run(here(functions.pid)).value) == os.getpid()
    assert decode(prefect.run(request(functions.pid, timeout_seconds=None)).value) == os.getpid()
    assert decode(prefect.run(request(functions.pid, timeout_seconds=300.0)).value) != os.getpid()


def test_a_stated_limit_ends_the_function_and_the_run(prefect, prefect_server, tmp_path):
    with pytest.raises(BuildTimeoutError) as caught:
        prefect.run(request(functions.sleeps, {"folder": str(tmp_path)}, timeout_seconds=1.0))
    run_id = caught.value.details.split()[-1]
    assert prefect_server.flow_run(run_id)["state_type"] == "FAILED"


def test_a_failure_is_its_own_and_a_failed_run(prefect, prefect_server, tmp_path):
    def fails():
        functions.note(tmp_path)
        raise ValueError("no such column")

    with pytest.raises(AssetBuildError, match="ValueError: no such column") as caught:
        prefect.run(here(fails))
    assert counted(tmp_path) == 1
    assert "in fails" in caught.value.details
    assert isinstance(caught.value.__cause__, ValueError)
    run_id = caught.value.details.split()[-1]
    flow_run = prefect_server.flow_run(run_id)
    assert flow_run["state_type"] == "FAILED"
    assert "no such column" in flow_run["state"]["message"]


def test_inside_a_flow_it_is_a_subflow(prefect, prefect_server, prefect_client):
    from prefect import flow
    from prefect.context import get_run_context
    from prefect.settings import PREFECT_API_URL, temporary_settings

    @flow(name="outer")
    def outer():
        own = str(get_run_context().flow_run.id)
        return own, prefect.run(here(functions.nothing)).provenance["prefect_flow_run_id"]

    with temporary_settings({PREFECT_API_URL: prefect_server.url}):
        outer_id, inner_id = outer()
    parent = prefect_server.flow_run(inner_id)["parent_task_run_id"]
    assert parent in [task["id"] for task in prefect_server.task_runs(outer_id)]


@pytest.mark.parametrize("name", ["a/b {x} %s", "größe & <x>"])
def test_odd_names_survive(prefect, prefect_server, name):
    odd = here(functions.nothing)
    odd = replace(odd, declaration=replace(odd.declaration, name=name), node=Node(name, "{y}"))
    run_id = prefect.run(odd).provenance["prefect_flow_run_id"]
    assert prefect_server.flow_run(run_id)["name"] == f"asset:{name}[{{y}}]"
    [task] = prefect_server.task_runs(run_id)
    assert task["name"] == f"produce:{name}[{{y}}]"


def test_versions_of_many_keys_are_shown_by_their_number(prefect, prefect_server):
    keys = {f"2026-01-{n:06}": n for n in range(20_000)}
    found = prefect.run(here(functions.arguments, {"days": keys}, upstreams=(Upstream("days"),)))
    flow_run = prefect_server.flow_run(found.provenance["prefect_flow_run_id"])
    assert flow_run["parameters"]["upstream"] == {"days": "20000 keys"}
    assert decode(found.value) == {"days": keys}


# Retries


@pytest.mark.parametrize(
    ("settings", "calls", "told"),
    [
        ({}, 1, ""),
        ({"RETRIES": "1", "RETRY_DELAY": "0"}, 2, ""),
        ({"RETRIES": "-1"}, 1, "'-1' is no number from 0 on; 0 is taken instead"),
        ({"RETRIES": "two"}, 1, "'two' is no number from 0 on; 0 is taken instead"),
        ({"RETRY_DELAY": "nan"}, 1, "'nan' is no number from 0 on; 10.0 is taken instead"),
    ],
)
def test_retries_are_those_of_the_variables(
    prefect_server, tmp_path, caplog, settings, calls, told
):
    variables = {f"EXAMLOPS_ASSET_PREFECT_{name}": value for name, value in settings.items()}
    prefect = PrefectOrchestrator({"PREFECT_API_URL": prefect_server.url, **variables})
    seen = []

    def fails():
        seen.append(1)
        raise ValueError("again")

    # retries of the declaration are counted by the ledger
    with caplog.at_level(logging.WARNING), pytest.raises(AssetBuildError, match="again"):
        prefect.run(here(fails, retries=5))
    assert len(seen) == calls
    assert told in caplog.text


def test_a_retry_that_succeeds_is_a_success(prefect_server):
    variables = {"RETRIES": "2", "RETRY_DELAY": "0"}
    prefect = PrefectOrchestrator(
        {
            "PREFECT_API_URL": prefect_server.url,
            **{f"EXAMLOPS_ASSET_PREFECT_{name}": value for name, value in variables.items()},
        }
    )
    seen = []

    def fails_once():
        seen.append(1)
        if len(seen) == 1:
            raise ValueError("once")
        return len(seen)

    result = prefect.run(here(fails_once))
    assert decode(result.value) == 2
    run_id = result.provenance["prefect_flow_run_id"]
    [task] = prefect_server.task_runs(run_id)
    assert task["run_count"] == 2


# Without a server


def test_without_an_api_it_is_built_locally_and_says_why(prefect_client):
    result = PrefectOrchestrator({}).run(here(functions.nothing))
    assert result.provenance == {
        "orchestrator": "local",
        "fallback": "local (no Prefect API configured (PREFECT_API_URL))",
    }


def test_without_the_package_it_is_built_locally_and_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect", None)
    result = PrefectOrchestrator(refused_address()).run(here(functions.nothing))
    assert result.provenance["fallback"].startswith("local (prefect is not installed (")


def test_without_a_server_it_is_built_once_and_says_why(prefect_client, tmp_path):
    def note():
        functions.note(tmp_path)

    result = PrefectOrchestrator(refused_address()).run(request(note, timeout_seconds=None))
    assert result.provenance["fallback"].startswith("local (Prefect unavailable (ConnectError")
    assert "prefect_flow_run_id" not in result.provenance
    assert counted(tmp_path) == 1


def test_a_fallback_that_is_refused_is_an_error_and_nothing_runs(prefect_client, tmp_path):
    prefect = PrefectOrchestrator({"EXAMLOPS_ASSET_FALLBACK": "refuse"})
    with pytest.raises(AssetBuildError, match=r"EXAMLOPS_ASSET_FALLBACK=refuse\): no Prefect API"):
        prefect.run(here(lambda: functions.note(tmp_path)))
    assert counted(tmp_path) == 0


@pytest.fixture
def half_a_server(prefect_client):
    """Give the address of a server that is healthy, and breaks off at anything else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.endswith("/health"):
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"true")

        def do_POST(self):
            self.close_connection = True

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api"
        server.shutdown()
        thread.join()


def test_a_server_that_goes_before_the_start_means_one_local_build(half_a_server, tmp_path):
    def note():
        functions.note(tmp_path)

    result = PrefectOrchestrator({"PREFECT_API_URL": half_a_server}).run(here(note))
    assert result.provenance["fallback"].startswith("local (Prefect unavailable (")
    assert result.provenance["orchestrator"] == "local"
    assert counted(tmp_path) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_server_that_is_killed_in_the_middle_changes_nothing(mortal_server, tmp_path, fails):
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill():
        functions.note(marks)
        mortal_server.kill()
        if fails:
            raise ValueError("its own error")
        return "made"

    prefect = PrefectOrchestrator({"PREFECT_API_URL": mortal_server.url})
    if fails:
        with pytest.raises(AssetBuildError, match="ValueError: its own error"):
            prefect.run(here(kill))
    else:
        result = prefect.run(here(kill))
        assert decode(result.value) == "made"
        assert result.provenance["orchestrator"] == "prefect"
        assert "fallback" not in result.provenance
        assert "ConnectError" in result.provenance["prefect_unreported"]
    assert counted(marks) == 1


def test_no_temporary_server_is_ever_started(prefect_client):
    from prefect.settings import PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings

    def children():
        return {child.pid for child in psutil.Process().children(recursive=True)}

    before = children()
    seen = []
    with temporary_settings({PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True}):  # as Prefect has it
        for environment in ({}, refused_address()):
            orchestrator = PrefectOrchestrator(environment)
            build = here(lambda: seen.append(children() - before))
            result = orchestrator.run(replace(build, timeout_seconds=None))
            assert "fallback" in result.provenance
    assert seen == [set(), set()]


# The rest of the house


def test_the_registry_makes_it():
    assert isinstance(make("prefect"), PrefectOrchestrator)


def test_an_interrupt_goes_through(prefect):
    with pytest.raises(KeyboardInterrupt):
        prefect.run(here(functions.interrupted))


def test_threads_have_runs_of_their_own(prefect):
    found = {}

    def build(number):
        found[number] = prefect.run(here(functions.arguments, {"n": number}))

    threads = [threading.Thread(target=build, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert {n: decode(r.value) for n, r in found.items()} == {n: {"n": n} for n in range(3)}
    assert len({r.provenance["prefect_flow_run_id"] for r in found.values()}) == 3


@pytest.fixture
def home(tmp_path, monkeypatch, prefect_server):
    monkeypatch.setenv("PREFECT_API_URL", prefect_server.url)
    found = Homestead(tmp_path / "home", monkeypatch)
    yield found
    found.close()


PIPELINE = """\
from examlops_dagster import asset


@asset
def root():
    return 1
"""


def flow_run_of(home, name):
    [event] = home.events(name)
    return event.metadata["examlops/prefect_flow_run_id"].value


def test_a_materialization_names_its_flow_run(home, prefect_server):
    module = home.module(PIPELINE)
    assert home.exa(module, "root", orchestrator="prefect").ok
    run_id = flow_run_of(home, "root")
    [build] = home.builds("root", modules=[module])
    assert build.provenance["prefect_flow_run_id"] == run_id
    flow_run = prefect_server.flow_run(run_id)
    assert (flow_run["name"], flow_run["state_type"]) == ("asset:root", "COMPLETED")
    assert flow_run["parameters"]["upstream"] == {}


def test_a_materialization_inside_a_flow_is_a_subflow(home, prefect_server, prefect_client):
    from prefect import flow
    from prefect.context import get_run_context
    from prefect.settings import PREFECT_API_URL, temporary_settings

    module = home.module(PIPELINE)

    @flow(name="outer")
    def outer():
        assert home.exa(module, "root", orchestrator="prefect").ok
        return str(get_run_context().flow_run.id)

    with temporary_settings({PREFECT_API_URL: prefect_server.url}):
        outer_id = outer()
    parent = prefect_server.flow_run(flow_run_of(home, "root"))["parent_task_run_id"]
    assert parent in [task["id"] for task in prefect_server.task_runs(outer_id)]
