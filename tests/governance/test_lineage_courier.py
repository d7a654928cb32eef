"""The process that delivers lineage beside a command: what the command waits for, and what not."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from command import COMMAND, exa
from homes import CHAIN
from lineages import assert_whole
from waiting import wait_until

from examlops_dagster.governance.lineage_courier import (
    PROGRAM,
    Courier,
    deliver_later,
)
from examlops_dagster.governance.lineage_spool import Spool
from examlops_dagster.home import find_home

LIMIT_SECONDS = 300
NOWHERE = "http://127.0.0.1:9"

WAITING = """\
import os, time
from examlops_dagster import asset


@asset("slow", timeout_seconds=None)
def slow():
    while not os.path.exists("go"):
        time.sleep(0.02)
    return 1
"""

KEYED = """\
from examlops_dagster import asset, partitions

KEYS = [f"k{n}" for n in range(40)]


@asset("keys", partitions={"k": partitions(KEYS)}, timeout_seconds=None)
def keys(k):
    return k
"""

READING = """\
from examlops_dagster import Dataset, asset


@asset(deps=[Dataset("s3://bucket/out")])
def reader(**upstream):
    return 1
"""


@pytest.fixture
def declared(home):
    home.declare("PM100")
    home.write("pipeline.py", CHAIN)
    return home


@pytest.fixture
def slow_build(home):
    """Give a command that builds until the file ``go`` is there."""
    home.write("waiting_asset.py", WAITING)
    argv = [COMMAND, "-m", "waiting_asset", "assets", "materialize", "slow"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    yield process
    (home.folder / "go").touch()
    process.communicate(timeout=LIMIT_SECONDS)


def build(**environment):
    done = exa("-m", "pipeline", "assets", "materialize", "model", **environment)
    assert done.returncode == 0, done.stderr
    assert "Materialized model" in done.stdout
    return done


def couriers(home):
    """Give the couriers of a home that run."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if PROGRAM in words and str(home.folder) in words and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until_begun(command, consumer):
    begun = ["START"]
    wait_until(lambda: command.poll() is not None or consumer.kinds("asset:slow") == begun)
    assert command.poll() is None, command.communicate(timeout=LIMIT_SECONDS)


def all_gone(home):
    return wait_until(lambda: not couriers(home))


class TestBesideACommand:
    def test_what_was_built_is_delivered_and_nothing_stays_behind(self, declared, consumer, url):
        done = build()
        assert done.stderr.count("lineage") == 0
        wait_until(lambda: consumer.posts == 5)
        assert consumer.kinds("asset:model") == ["START", "COMPLETE"]
        assert consumer.kinds("asset:PM100") == ["COMPLETE"]
        assert all_gone(declared)

    def test_the_start_of_a_build_is_told_while_it_runs(self, url, consumer, home, slow_build):
        wait_until_begun(slow_build, consumer)
        assert slow_build.poll() is None
        (home.folder / "go").touch()
        slow_build.wait(LIMIT_SECONDS)
        wait_until(lambda: consumer.kinds("asset:slow") == ["START", "COMPLETE"])

    def test_without_a_backend_there_is_none(self, home, monkeypatch):
        monkeypatch.setattr(sys, "executable", "/nonexistent")
        courier = Courier()
        courier.set_off(find_home())
        courier.recall()

    def test_one_that_cannot_be_started_is_told_and_stops_nothing(
        self, home, chain, url, monkeypatch, caplog
    ):
        monkeypatch.setattr(sys, "executable", "/nonexistent")
        assert home.exa(chain, "model").ok
        assert "lineage events are not delivered; they wait" in caplog.text


class TestBackends:
    def test_one_that_is_gone_is_told_and_the_events_wait(self, declared):
        done = build(EXAMLOPS_OPENLINEAGE_URL=NOWHERE)
        assert done.stderr.count("the lineage backend cannot be reached") == 1
        shown = exa("lineage", "--undelivered", EXAMLOPS_OPENLINEAGE_URL=NOWHERE).stdout
        assert "5 lineage events wait" in shown
        assert "The backend cannot be reached" in shown

    def test_one_that_is_left_alone_after_an_outage_is_told_too(self, declared):
        build(EXAMLOPS_OPENLINEAGE_URL=NOWHERE)
        declared.sql("UPDATE lineage_deliverer SET next_at = next_at + 1000")
        again = exa(
            "-m", "pipeline", "assets", "materialize", "model", "--force",
            EXAMLOPS_OPENLINEAGE_URL=NOWHERE,
        )  # fmt: skip
        assert again.returncode == 0
        assert again.stderr.count("the lineage backend cannot be reached") == 1

    def test_one_that_cannot_be_used_is_told(self, declared):
        done = build(EXAMLOPS_OPENLINEAGE_URL="not a url")
        assert "EXAMLOPS_OPENLINEAGE_URL='not a url' cannot be used" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_slow_one_goes_on_getting_events_after_the_command(self, home, consumer, url):
        home.write("keyed.py", KEYED)
        has_ended = threading.Event()

        def slowly(event):
            has_ended.wait(2)

        consumer.answer = slowly
        done = exa("-m", "keyed", "assets", "materialize", "keys")
        on_its_way = consumer.posts
        has_ended.set()
        assert done.returncode == 0, done.stderr
        assert on_its_way < 80  # that would take 160 seconds
        wait_until(lambda: len(consumer.events) == 80)
        assert_whole(consumer.events)
        assert all_gone(home)

    def test_one_that_never_answers_is_not_waited_for_long_and_loses_nothing(
        self, home, chain, consumer, url, caplog
    ):
        home.exa(chain, "model", in_process=True)
        home.sql("UPDATE lineage SET state = 'waiting' WHERE state = 'delivered'")
        answers = threading.Event()
        consumer.answer = lambda event: answers.wait(600) and 500
        courier = Courier()
        courier.set_off(find_home())
        with caplog.at_level(logging.INFO):
            courier.recall()
        assert "goes on delivering lineage events" in caplog.text
        assert all_gone(home)
        answers.set()
        assert Spool(home.project().database).counts() == {"waiting": 5, "set_aside": 0}

    def test_a_transport_of_the_users_own_module_is_found(self, declared):
        declared.write(
            "own_transport.py",
            """\
            from openlineage.client.serde import Serde
            from openlineage.client.transport import Config, Transport

            class Lines(Transport):
                kind = "lines"
                config_class = Config

                def __init__(self, config):
                    pass

                def emit(self, event):
                    with open("events", "a") as file:
                        file.write(Serde.to_json(event) + "\\n")
            """,
        )
        declared.write("openlineage.yml", "transport:\n  type: own_transport.Lines\n")
        build()
        events = declared.folder / "events"
        wait_until(lambda: events.exists() and len(events.read_text().splitlines()) == 5)
        kinds = [json.loads(line)["eventType"] for line in events.read_text().splitlines()]
        assert sorted(kinds) == ["COMPLETE", "COMPLETE", "COMPLETE", "START", "START"]


class TestDeaths:
    def test_a_courier_that_is_killed_loses_nothing(self, url, consumer, home, slow_build):
        wait_until_begun(slow_build, consumer)
        [courier] = couriers(home)
        courier.kill()
        (home.folder / "go").touch()
        _, said = slow_build.communicate(timeout=LIMIT_SECONDS)
        assert slow_build.returncode == 0
        assert "the process that delivered them ended with -9" in said
        assert consumer.kinds("asset:slow") == ["START"]
        assert exa("lineage", "deliver").returncode == 0
        assert consumer.kinds("asset:slow") == ["START", "COMPLETE"]

    def test_a_courier_does_not_outlive_a_command_that_is_killed(
        self, url, consumer, home, slow_build
    ):
        wait_until_begun(slow_build, consumer)
        slow_build.kill()
        assert all_gone(home)

    def test_nor_one_whose_forked_child_keeps_the_pipe(self, home, chain, url):
        forking = """\
        import os, signal, time
        from examlops_dagster.governance.lineage_courier import Courier
        from examlops_dagster.home import find_home
        Courier().set_off(find_home())
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        os.write(1, str(child).encode())
        os.kill(os.getpid(), signal.SIGKILL)
        """
        program = home.write("forking.py", forking)
        with (home.folder / "child").open("wb") as file:
            done = subprocess.run(
                [sys.executable, program], stdout=file, timeout=LIMIT_SECONDS, check=False
            )
        child = int((home.folder / "child").read_text())
        try:
            assert done.returncode == -signal.SIGKILL
            assert all_gone(home)
            assert psutil.pid_exists(child)
        finally:
            os.kill(child, signal.SIGKILL)

    def test_an_interrupt_of_the_terminal_is_not_meant_for_it(
        self, url, consumer, home, slow_build
    ):
        wait_until_begun(slow_build, consumer)
        [courier] = couriers(home)
        assert os.getsid(courier.pid) == courier.pid
        slow_build.send_signal(signal.SIGINT)
        slow_build.communicate(timeout=LIMIT_SECONDS)
        assert slow_build.returncode == 130
        wait_until(lambda: consumer.kinds("asset:slow") == ["START", "ABORT"])

    def test_it_waits_its_turn_while_another_delivers(self, home, chain, consumer, url):
        other = Spool(home.project().database)
        assert other.lease()
        done = threading.Timer(1, other.release)
        done.start()
        home.exa(chain, "model", in_process=True)
        done.join()
        wait_until(lambda: len(consumer.events) == 5)


class TestWithoutABuild:
    @pytest.mark.parametrize(
        ("words", "job"),
        [
            (("source-changed", "PM100"), "asset:PM100"),
            (("report", "PM100", "--data-version", "v"), "asset:PM100"),
            (("emit", "s3://bucket/out"), "asset:s3://bucket/out"),
        ],
    )
    def test_what_a_command_changed_is_delivered_after_it(self, home, consumer, url, words, job):
        home.declare("PM100")
        home.write("reading.py", READING)
        done = exa("-m", "reading", "assets", *words)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: consumer.kinds(job) == ["COMPLETE"])
        assert all_gone(home)

    @pytest.mark.parametrize(
        ("call", "job"),
        [
            ("mark_source_changed('PM100')", "asset:PM100"),
            ("record_dataset_revision('trace', 'abc')", "asset:trace"),
        ],
    )
    def test_what_a_script_changed_is_delivered_after_it(self, home, consumer, url, call, job):
        home.declare("PM100")
        script = f"import examlops_dagster; examlops_dagster.{call}"
        subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_SECONDS)
        wait_until(lambda: consumer.kinds(job) == ["COMPLETE"])
        assert all_gone(home)

    def test_nothing_is_started_where_nothing_waits_or_the_backend_is_left_alone(
        self, home, chain, url, monkeypatch, caplog
    ):
        project = home.project()
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/nonexistent")
            deliver_later(project.database, project.home)
            home.advance("PM100")
            Spool(project.database).failed("gone")
            deliver_later(project.database, project.home)
        assert caplog.text == ""
