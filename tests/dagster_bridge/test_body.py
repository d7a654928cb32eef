import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from dagster import Definitions, IOManager, in_process_executor
from dagster import asset as plain_asset
from homes import CHAIN, names_of, run_program

from examlops_dagster.core.seams import BuildState, Node
from examlops_dagster.dagster_bridge.io import ExamlopsIOManager
from examlops_dagster.ledger.builds import BuildsLedger

# What a build records


def test_a_build_is_recorded_with_what_it_read(home, chain):
    home.exa(chain, "model")
    record = home.records(chain)["model"]
    features = home.records(chain)["features"]
    assert record.built_from == {Node("features"): (1, features.data_version)}
    [event] = home.events("model")
    assert event.tags["dagster/data_version"] == record.data_version
    assert event.tags["examlops/version"] == "1"
    assert event.metadata["version"].value == 1


def test_a_function_that_returns_nothing_keeps_no_value(home):
    module = home.module(
        """\
        from examlops_dagster import asset


        @asset(timeout_seconds=None)
        def quiet():
            return None
        """
    )
    home.exa(module, "quiet")
    assert home.events("quiet")[0].metadata.get("path") is None
    assert not list(home.folder.rglob("storage/examlops/quiet/*"))
    assert home.exa(module, "quiet", force=True).ok
    assert home.versions(module)["quiet"] == 2


NO_VALUE = """\
from examlops_dagster import asset


@asset(timeout_seconds=None)
def quiet():
    return None


@asset(inputs={"quiet": "quiet"}, timeout_seconds=None)
def reader(quiet):
    return quiet
"""


def test_inputs_of_an_asset_without_a_value_fail_and_say_what_to_do(home):
    module = home.module(NO_VALUE)
    report = home.exa(module, "reader")
    [failed] = report.failed
    assert "use deps" in failed.reason
    assert home.states(module)["reader"] == "failed"


# Asked for by a person, or planned

SAME = """\
from pathlib import Path

from examlops_dagster import asset

CALLS = Path(__file__).with_name("calls")


def called(name):
    with CALLS.open("a") as file:
        print(name, file=file)


@asset(deps=["PM100"], timeout_seconds=None)
def same(**upstream):
    called("same")
    return {"always": "equal"}


@asset(inputs={"same": "same"}, timeout_seconds=None)
def reader(same):
    called("reader")
    return same["always"]


@asset(inputs={"reader": "reader", "pm": "features"}, timeout_seconds=None)
def both(reader, pm):
    called("both")
    return [reader, pm]


@asset(deps=["PM100"], timeout_seconds=None)
def features(**upstream):
    called("features")
    return upstream["PM100"]
"""


@pytest.fixture
def same(home):
    home.declare("PM100")
    module = home.module(SAME)
    assert home.exa(module, "both").ok
    home.advance("PM100", modules=module)
    (home.folder / "calls").unlink()
    return module


def calls(home):
    path = home.folder / "calls"
    return path.read_text().split() if path.exists() else []


def test_a_planned_step_looks_again_and_keeps_the_former_version(home, same):
    report = home.exa(same, "both")
    assert sorted(names_of(report.rebuilt)) == ["both", "features", "same"]
    assert names_of(report.unchanged) == ["reader"]
    assert sorted(calls(home)) == ["both", "features", "same"]
    assert home.versions(same) == {"PM100": 2, "same": 1, "features": 2, "reader": 1, "both": 2}
    assert set(home.states(same).values()) == {"fresh"}
    assert home.endings("reader") == ["succeeded", "unchanged"]


def test_below_an_unchanged_step_the_former_value_is_loaded(home, same):
    home.exa(same, "both")
    former, last = home.events("reader")
    assert former.tags["dagster/data_version"] == last.tags["dagster/data_version"]
    project = home.project(same)
    store = ExamlopsIOManager().values(home.instance)
    value = store.load(["both"], "", project.ledger.records()[Node("both")].data_version)
    assert value.payload == b'["equal",2]'


def test_a_click_always_calls_the_function(home, same):
    assert home.click(same, "reader").success
    assert home.click(same, "reader").success
    assert calls(home) == ["reader", "reader"]
    assert home.endings("reader") == ["succeeded"] * 3
    assert home.versions(same)["reader"] == 1


def test_a_click_lifts_a_hold(home):
    module = home.module(FAILS.format(retries=0))
    assert home.exa(module, "fails").failed
    assert home.states(module)["fails"] == "failed"
    (home.folder / "mended").touch()
    assert home.click(module, "fails").success
    assert home.states(module)["fails"] == "fresh"


# Attempts

FAILS = """\
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(retries={retries}, retry_backoff=0.01, timeout_seconds=None)
def fails():
    if (HERE / "mended").exists():
        return 1
    raise ValueError("last line")


@asset(deps=[fails], timeout_seconds=None)
def below():
    return 2
"""


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_failing_build_is_tried_as_often_as_its_budget_allows(home, retries):
    module = home.module(FAILS.format(retries=retries))
    report = home.exa(module, "below")
    assert [(str(f.node), f.reason) for f in report.failed] == [("fails", "ValueError: last line")]
    assert home.endings("fails") == ["failed"] * (1 + retries)
    verdict = home.status(module)["fails"]
    assert (verdict.version, verdict.shown) == (0, "failed")
    assert verdict.why[-1] == "ValueError: last line"
    assert home.builds("below") == []


def test_a_click_has_the_same_budget(home):
    module = home.module(FAILS.format(retries=2))
    assert not home.click(module, "fails").success
    assert home.endings("fails") == ["failed"] * 3
    assert not home.click(module, "fails").success
    assert home.endings("fails") == ["failed"] * 6


def test_the_whole_error_is_in_a_file_that_the_report_names(home):
    module = home.module(FAILS.format(retries=0))
    [failed] = home.exa(module, "fails").failed
    text = Path(failed.log).read_text()
    assert "Traceback" in text
    assert "raise ValueError" in text


def test_a_retry_that_succeeds_is_a_success(home):
    module = home.module(
        """\
        from pathlib import Path

        from examlops_dagster import asset

        HERE = Path(__file__).parent


        @asset(retries=2, timeout_seconds=None)
        def third_time():
            with (HERE / "tries").open("a") as file:
                file.write("x")
            if len((HERE / "tries").read_text()) < 3:
                raise ValueError("not yet")
            return 1
        """
    )
    report = home.exa(module, "third_time")
    assert report.ok
    assert names_of(report.rebuilt) == ["third_time"]
    assert home.endings("third_time") == ["failed", "failed", "succeeded"]
    assert home.states(module)["third_time"] == "fresh"


# I/O managers


class Failing(ExamlopsIOManager):
    def handle_output(self, context, obj):
        raise OSError("disk full")


@pytest.mark.parametrize("way", ["click", "exa"])
def test_an_io_manager_that_fails_leaves_a_failed_build_and_no_claim(home, chain, way):
    definitions = home.definitions(chain, resources={"examlops_io": Failing()})
    if way == "click":
        assert not home.click(definitions, "features").success
    else:
        chain.defs = definitions
        report = home.exa(chain, "features")
        assert names_of(f.node for f in report.failed) == ["features"]
    project = home.project(chain)
    assert project.ledger.claims() == {}
    assert home.endings("features") == ["failed"]
    assert home.states(chain)["features"] == "failed"
    assert home.versions(chain)["features"] == 0
    assert home.events("features") == []
    started = time.monotonic()
    chain.defs = None
    assert home.exa(chain, "features").ok
    assert time.monotonic() - started < 20
    assert home.versions(chain)["features"] == 2  # the number of the failed one stays unused


class InMemory(IOManager):
    def __init__(self):
        self.kept = {}

    def handle_output(self, context, obj):
        self.kept[context.asset_key] = obj

    def load_input(self, context):
        return self.kept[context.asset_key]


def test_an_io_manager_of_the_user_gets_and_gives_plain_values(home, chain):
    manager = InMemory()
    definitions = home.definitions(chain, resources={"examlops_io": manager})
    assert home.click(definitions, "features", "model").success
    assert {k.to_user_string(): v for k, v in manager.kept.items()} == {
        "features": {"read": 1},
        "model": {"from": {"read": 1}},
    }


def test_a_plain_asset_may_use_our_io_manager(home, chain):
    @plain_asset(io_manager_key="examlops_io")
    def kept():
        return {"by": "dagster"}

    @plain_asset
    def reads(kept, model):
        assert kept == {"by": "dagster"}
        assert model == {"from": {"read": 1}}

    definitions = home.definitions(chain, into=Definitions([kept, reads]))
    assert home.click(definitions, "features", "model").success
    assert home.click(definitions, "kept", "reads").success


def test_a_plain_asset_reads_the_value_that_was_recorded(home, chain):
    """A process was killed between the value and the event."""

    @plain_asset
    def reads(context, model):
        context.add_output_metadata({"read": str(model)})

    definitions = home.definitions(chain, into=Definitions([reads]))
    assert home.click(definitions, "features", "model").success
    store = ExamlopsIOManager().values(home.instance)
    from examlops_dagster.core.seams import Value

    store.keep(["model"], "", "never recorded", Value("json", b'"half a build"'))
    assert home.click(definitions, "reads").success
    assert home.events("reads")[-1].metadata["read"].value == "{'from': {'read': 1}}"


# Inputs while an upstream moves

SLOW = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(deps=["PM100"], timeout_seconds=None)
def moving(**upstream):
    return {"version": upstream["PM100"]}


@asset(inputs={"moving": moving}, timeout_seconds=None)
def reader(moving):
    (HERE / "reading").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return moving
"""


def test_a_value_belongs_to_the_version_recorded_while_the_upstream_moves(home):
    home.declare("PM100")
    module = home.module(SLOW)
    assert home.exa(module, "moving").ok
    worker = threading.Thread(target=lambda: home.click(module, "reader"))
    worker.start()
    while not (home.folder / "reading").exists():
        time.sleep(0.01)
    home.advance("PM100", modules=module)
    home.click(module, "moving")
    (home.folder / "go").touch()
    worker.join()
    records = home.records(module)
    assert records["moving"].version == 2
    assert records["reader"].built_from[Node("moving")].version == 1
    store = ExamlopsIOManager().values(home.instance)
    value = store.load(["reader"], "", records["reader"].data_version)
    assert value.payload == b'{"version":1}'
    assert home.why(module, "reader") == ("upstream moving changed (1 → 2)",)


def test_a_value_that_a_newer_build_took_away_is_not_taken_for_none(home, monkeypatch):
    """Between the versions and the values that are read, the upstream is built twice."""
    home.declare("PM100")
    module = home.module(SLOW)
    assert home.exa(module, "moving").ok
    (home.folder / "go").touch()
    definitions = home.definitions(module)
    begin = BuildsLedger.begin
    moved = []

    def move(self, attempt, notes=()):
        begin(self, attempt, notes)
        if attempt.node.asset == "reader" and not moved:
            moved.append(True)
            for _ in range(2):
                home.advance("PM100", modules=module)
                assert home.click(module, "moving").success

    monkeypatch.setattr(BuildsLedger, "begin", move)
    assert not home.click(definitions, "reader").success
    [failed] = home.builds("reader")
    assert failed.error == "upstream moving changed while its value was loaded → ask again"
    assert home.states(module)["reader"] == "never built"  # it is not held for that
    assert home.click(definitions, "reader").success
    assert home.records(module)["reader"].built_from[Node("moving")].version == 3


# Claims

TWENTY = """\
import sys

from dagster import AssetKey, DagsterInstance

import shared
from examlops_dagster.dagster_bridge.definitions import build_definitions

instance = DagsterInstance.get()
repository = build_definitions(shared, automation="off").get_repository_def()
keys = {AssetKey("contended")}
job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    assert job.execute_in_process(instance=instance).success
"""


def test_two_processes_build_one_asset_in_one_order(home):
    home.write(
        "shared.py",
        """\
        from examlops_dagster import asset


        @asset(timeout_seconds=None)
        def contended():
            return None
        """,
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TWENTY],
            cwd=home.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    versions = [int(event.tags["examlops/version"]) for event in home.events("contended")]
    assert versions == list(range(1, 21))
    builds = home.builds("contended")
    assert [b.version for b in builds] == versions
    assert {b.state for b in builds} == {BuildState.SUCCEEDED}
    assert len({b.run_id for b in builds}) == 20


def test_who_waits_for_a_claim_judges_by_what_is_there_then(home, chain):
    """Its own sync lies before the wait."""
    home.exa(chain, "model")
    home.advance("PM100", modules=chain)
    project = home.project(chain)
    assert project.ledger.claim(Node("features"), "other") is None
    worker = threading.Thread(target=lambda: home.click(chain, "features"))
    worker.start()
    time.sleep(1.5)
    home.report("PM100", "theirs")
    project.ledger.release(Node("features"), "other")
    worker.join()
    assert home.records(chain)["features"].built_from[Node("PM100")].data_version == "theirs"


def test_a_claim_of_a_process_that_was_killed_is_free_at_once(home, chain):
    program = textwrap.dedent(
        f"""
        import os, signal
        from examlops_dagster.core.seams import Node
        from examlops_dagster.ledger.builds import BuildsLedger
        from examlops_dagster.store.engine import Database

        database = Database({str(home.folder / "platform.db")!r})
        assert BuildsLedger(database).claim(Node("features"), "token") is None
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    with closing(sqlite3.connect(home.folder / "platform.db")) as raw:
        assert raw.execute("SELECT asset FROM claims").fetchall() == [("features",)]
    started = time.monotonic()
    assert home.exa(chain, "features").ok
    assert time.monotonic() - started < 20


# Executors


@pytest.mark.parametrize("executor", [None, in_process_executor], ids=["default", "in process"])
def test_dagsters_own_command_builds_under_an_executor_that_is_not_ours(home, executor):
    """The default one starts a process for each step."""
    home.write("shared.py", CHAIN + FAILS.format(retries=1))
    named = "executor=in_process_executor" if executor else ""
    home.write(
        "their_defs.py",
        f"""\
        from dagster import in_process_executor

        import shared
        from examlops_dagster.dagster_bridge.definitions import build_definitions

        defs = build_definitions(shared, automation="off", {named})
        """,
    )
    home.declare("PM100")
    done = run_program(
        home.folder, "dagster", "asset", "materialize", "-m", "their_defs", "--select", "*",
        code=1, DAGSTER_HOME=str(home.folder), PYTHONWARNINGS="ignore",
    )  # fmt: skip
    import shared

    assert home.endings("features") == ["succeeded"], done
    assert home.endings("model") == ["succeeded"]
    assert home.endings("fails") == ["failed"] * 2
    assert home.builds("below") == []
    states = home.states(shared)
    assert states["model"] == "fresh"
    assert states["fails"] == "failed"
    del sys.modules["shared"]
