"""Builds that are killed after each of their steps, and what the next one makes of it."""

import subprocess
import sys

import pytest
from homes import CHAIN, Homestead

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.run import materialize_in

PIPELINE = f"""\
{CHAIN}

from examlops_dagster import partitions


@asset("days", partitions={{"day": partitions(["mon", "tue", "wed"])}}, timeout_seconds=None)
def build_days(day):
    return day


from examlops_dagster import DatasetAlias, Metadata


@asset("emitter", outlets=DatasetAlias("out"), timeout_seconds=None)
def emitter():
    yield Metadata("s3://one", alias="out")
    yield Metadata("s3://two", alias="out")
    return 1
"""

KILLER = """\
import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

import pipeline
from dagster import DagsterEventType, DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage
from examlops_dagster.dagster_bridge.run import materialize_in
from examlops_dagster.home import Home
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.outlets import Outlets
from examlops_dagster.project import Project
from examlops_dagster.values import FileValues

import examlops_dagster.dagster_bridge.execute
from examlops_dagster.dagster_bridge import range_build, range_events

root, target, together = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
range_build.MOST_WAITING = together
range_events.LONGEST_WAIT_SECONDS = 3600
if not together:
    range_events.takes_batches = lambda storage: False


def kill_after(calls):
    left = [calls]

    def counted(function, matters=lambda *_: True):
        def call(*arguments, **named):
            result = function(*arguments, **named)
            if matters(*arguments):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
            return result

        return call

    def materializes(storage, event):
        return event.dagster_event_type is DagsterEventType.ASSET_MATERIALIZATION

    def are_materializations(storage, connection, events, ids):
        return materializes(storage, events[0])

    for name in ("claim", "begin", "allot", "complete_all", "release", "release_all"):
        setattr(BuildsLedger, name, counted(getattr(BuildsLedger, name)))
    Outlets.sent = counted(Outlets.sent)
    FileValues.keep = counted(FileValues.keep)
    SqliteEventLogStorage.store_event = counted(SqliteEventLogStorage.store_event, materializes)
    tags = SqliteEventLogStorage._store_asset_event_tags  # the run has the event, the index not
    SqliteEventLogStorage._store_asset_event_tags = counted(tags, are_materializations)
    range_events.make_durable = counted(range_events.make_durable)
    range_events.store_batch = counted(range_events.store_batch)


for number in itertools.count():
    folder = root / str(number)
    shutil.copytree(Path.cwd(), folder)
    child = os.fork()
    if not child:
        os.environ["DAGSTER_HOME"] = str(folder)
        os.chdir(folder)
        kill_after(number)
        project = Project(Home(folder, True, os.environ), [pipeline], False)
        report = materialize_in(project, [target])
        os._exit(0 if report.ok else 1)
    _, status = os.waitpid(child, 0)
    print(number, status, flush=True)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
"""


@pytest.fixture
def killed(tmp_path, monkeypatch, template):
    """Kill a build after its first step of the record, its second, and so on."""
    monkeypatch.syspath_prepend(tmp_path / "template")
    home = Homestead(tmp_path / "template", monkeypatch, copy_of=template)
    home.declare("PM100")
    pipeline = home.module(PIPELINE, "pipeline")
    home.close()

    def kill(target, together=1):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", KILLER, tmp_path, target, str(together)],
            cwd=home.folder, capture_output=True, text=True, check=False, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, done
        count = len(done.stdout.split("\n")) - 2
        for number in range(count):
            found = Homestead(tmp_path / str(number), monkeypatch)
            yield number, found, pipeline
            found.close()

    yield kill
    del sys.modules["pipeline"]


def recorded(home, nodes):
    """Give the versions of nodes that their events state, in their order."""
    return {
        node: [
            int(event.tags["examlops/version"])
            for event in home.events(node.asset)
            if (event.partition or "") == node.partition
        ]
        for node in nodes
    }


def check(home, pipeline, nodes, target, number):
    """What an event states is recorded, and nothing else; the next build mends the rest."""
    project = home.project(pipeline)
    verdicts = project.statuses()
    for node, versions in recorded(home, nodes).items():
        verdict = verdicts[node]
        assert verdict.version == (versions[-1] if versions else 0), (number, node)
        assert verdict.state.value in ("fresh", "runnable_stale"), (number, verdict)
    report = materialize_in(project, [target])
    assert report.ok, (number, report)
    verdicts = project.statuses()
    for node, versions in recorded(home, nodes).items():
        assert len(versions) == 1, (number, node, versions)  # what had an event is not built again
        assert verdicts[node].version == versions[-1]
        assert verdicts[node].state.value == "fresh", (number, verdicts[node])
        last = project.ledger.history(node, limit=1)[0]
        assert last.state.value == "succeeded", (number, last)
    assert project.ledger.claims() == {}
    assert project.ledger.holds(nodes) == {}


def test_a_build_killed_after_any_step_is_whole_or_not_there(killed):
    nodes = [Node("PM100"), Node("features")]
    numbers = [
        check(home, pipeline, nodes, "features", number) or number
        for number, home, pipeline in killed("features")
    ]
    assert len(numbers) >= 12


@pytest.mark.parametrize(
    ("together", "steps"),
    [
        pytest.param(0, 3 * 9, id="each event by Dagster"),
        pytest.param(2, 3 * 4 + 2 * 5, id="two together, then one"),
    ],
)
def test_a_range_killed_after_any_step_goes_on_behind_it(killed, together, steps):
    nodes = [Node("days", key) for key in ("mon", "tue", "wed")]
    numbers = [
        check(home, pipeline, nodes, "days", number) or number
        for number, home, pipeline in killed("days", together)
    ]
    assert len(numbers) == steps


def test_what_a_killed_build_emitted_is_known_once_with_its_version_or_not_at_all(killed):
    numbers = 0
    for number, home, pipeline in killed("emitter"):
        project = home.project(pipeline)
        built = project.statuses()[Node("emitter")].version == 1
        found = project.outlets.events("out", alias=True)
        assert [e.uri for e in found] == (["s3://one", "s3://two"] if built else []), number
        report = materialize_in(project, ["emitter"])
        assert report.ok, (number, report)
        assert [e.uri for e in project.outlets.events("out", alias=True)] == [
            "s3://one",
            "s3://two",
        ]
        home.sql("UPDATE unsent_outlets SET since = 0")
        project.event_log.send_left()
        assert home.events("s3/one"), number
        assert home.events("out"), number
        assert home.sql("SELECT count(*) FROM unsent_outlets") == [(0,)]
        numbers += 1
    assert numbers >= 10
