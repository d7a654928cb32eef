"""Sensors that probe inside their tick, without a run."""

from datetime import timedelta

import pytest
from dagster import IOManager
from ticks import FORMS, Automation

from examlops_dagster.core.records import Node
from examlops_dagster.errors import UsageError

INBOX = """\
import time
from pathlib import Path

from examlops_dagster import Manual, Schedule, asset, sensor, task

HERE = Path(__file__).parent


@sensor(freshness=Schedule("0 0 1 * *"), timeout_seconds=LIMIT)
def inbox():
    with (HERE / "calls").open("a") as file:
        print("inbox", file=file)
    answer = (HERE / "answer").read_text()
    if answer == "fail":
        raise OSError("no inbox")
    if answer == "slow":
        time.sleep(600)
    return answer.startswith("new"), answer


@asset(inputs={"inbox": inbox}, timeout_seconds=None)
def ingest(inbox):
    return list(inbox)


@sensor(freshness=Manual, timeout_seconds=None)
def by_hand():
    return True, 1


@task(freshness=Schedule("0 0 1 1 *"), timeout_seconds=None)
def mail():
    return None
"""


class Probed(Automation):
    def __init__(self, home, form="sensor", limit=None, **how):
        self.answer = lambda text: home.write("answer", text)
        self.answer("new")
        module = home.module(INBOX.replace("LIMIT", str(limit)))
        super().__init__(home, module, form, probe_sensors=True, **how)

    def probe(self, name="inbox"):
        data = self.evaluate(f"probe_{name}")
        assert data.run_requests == []
        return data.skip_message

    def let_a_tick_pass(self):
        for column in ("first_seen SET seen_at = seen_at", "heads SET built_at = built_at"):
            self.home.sql(f"UPDATE {column} - 86400 * 40 WHERE asset = 'inbox'")

    @property
    def calls(self):
        path = self.home.folder / "calls"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def probed(home):
    found = Probed(home)
    found.probe()
    found.let_a_tick_pass()
    return found


def test_a_sensor_waits_for_the_first_tick_after_it_was_seen(home):
    probed = Probed(home)
    assert probed.probe() == "inbox waits for its next tick."
    assert probed.calls == 0


def test_a_probe_records_what_a_build_records_and_makes_no_run(probed, home):
    assert probed.probe() == "inbox is at version 1."
    [event] = home.events("inbox")
    [build] = home.builds("inbox")
    assert build.state.value == "succeeded"
    assert build.version == 1
    assert event.tags["dagster/data_version"] == build.data_version
    assert event.tags["examlops/version"] == "1"
    assert event.tags["examlops/build"] == build.build_id
    assert event.tags["dagster/code_version"]
    assert event.metadata["version"].value == 1
    assert event.metadata["examlops/orchestrator"].value == "local"
    assert home.instance.get_runs() == []
    assert home.project(probed.module).ledger.claims() == {}


def test_a_probe_that_the_sync_finds_later_is_not_taken_for_anothers(probed, home):
    probed.probe()
    home.states(probed.module)
    assert len(home.builds("inbox")) == 1
    assert home.records(probed.module)["inbox"].build_id == home.builds("inbox")[0].build_id


def test_a_sensor_is_probed_once_a_tick(probed):
    probed.probe()
    assert probed.probe() == "inbox waits for its next tick."
    assert probed.calls == 1
    probed.let_a_tick_pass()
    assert probed.probe() == "inbox is at version 2."
    assert probed.calls == 2


def test_what_a_probe_returned_is_the_input_of_what_is_below(probed, home):
    probed.probe()
    assert probed.requested() == [["ingest"]]
    [result] = probed.tick()
    assert result.success
    assert home.project(probed.module).value(Node("ingest"))[0].payload == b'[true,"new"]'


def test_a_probe_that_saw_nothing_makes_nothing_stale(probed):
    probed.probe()
    probed.tick()
    probed.let_a_tick_pass()
    probed.answer("same")
    assert probed.probe() == "inbox saw nothing new (version 1)."
    assert probed.states()["ingest"] == "fresh"
    assert probed.requested() == []


def test_a_probe_that_fails_keeps_to_its_budget(probed):
    probed.answer("fail")
    assert probed.probe() == "inbox failed: inbox: OSError: no inbox"
    assert probed.probe() == "inbox has failed: OSError: no inbox"
    assert probed.calls == 1
    assert probed.states()["inbox"] == "failed"


def test_a_probe_is_ended_at_its_limit(home):
    probed = Probed(home, limit=0.3)
    probed.probe()
    probed.let_a_tick_pass()
    probed.answer("slow")
    assert "timed out after 0.3 s" in probed.probe()
    assert home.endings("inbox") == ["timed out"]


def test_what_is_being_built_is_not_probed(probed, home):
    project = home.project(probed.module)
    project.ledger.claim(Node("inbox"), "a person")
    assert probed.probe() == "inbox is being built."
    project.ledger.release(Node("inbox"), "a person")
    assert probed.calls == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_probed_sensor_has_no_schedule_and_is_never_requested(home, form, monkeypatch):
    probed = Probed(home, form)
    assert {s.name for s in probed.repository.schedule_defs} == {"mail_schedule"}
    assert {s.name for s in probed.repository.sensor_defs} == {"keep_fresh", "probe_inbox"}
    probed.probe()
    probed.let_a_tick_pass()
    monkeypatch.setattr("examlops_dagster.dagster_bridge.due.SCHEDULE_GRACE", timedelta(0))
    assert probed.requested() == []


def test_a_manual_sensor_is_not_probed(probed):
    assert not probed.repository.has_sensor_def("probe_by_hand")


def test_probes_are_on_by_default(probed):
    assert probed.repository.get_sensor_def("probe_inbox").default_status.value == "RUNNING"


def test_another_io_manager_cannot_keep_what_probes_return(home):
    class Theirs(IOManager):
        def handle_output(self, context, obj): ...

        def load_input(self, context): ...

    with pytest.raises(UsageError, match="our own I/O manager"):
        Probed(home, resources={"examlops_io": Theirs()})
