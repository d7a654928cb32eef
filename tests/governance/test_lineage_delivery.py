"""How lineage reaches a backend: at least once, in order, across outages, deaths and bad events."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from command import COMMAND, exa
from homes import CHAIN
from lineages import assert_whole, ends_by_run
from waiting import wait_until

from examlops_dagster.core.records import Attempt, BuildState, Node
from examlops_dagster.errors import UsageError
from examlops_dagster.governance.lineage import deliver
from examlops_dagster.governance.lineage_backend import is_configured
from examlops_dagster.governance.lineage_spool import Delivery, Spool
from examlops_dagster.home import Home
from examlops_dagster.ledger.builds import BuildsLedger, Completion

LIMIT_SECONDS = 300


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Do not take a backend on a busy machine for one that is gone."""
    monkeypatch.setattr("examlops_dagster.governance.lineage_backend.TIMEOUT_SECONDS", 120.0)


class World:
    """Attempts in a platform.db, without Dagster, and a home to deliver from."""

    def __init__(self, database, folder):
        self.database = database
        self.home = Home(folder, exists=True, environment=os.environ)
        self.ledger = BuildsLedger(database)
        self.spool = Spool(database)
        self.made = 0

    def begin(self, name="a"):
        self.made += 1
        attempt = Attempt(Node(name), f"{self.made:032x}", "fp", "code", {}, "local", "")
        assert self.ledger.claim(attempt.node, attempt.build_id) is None
        self.ledger.begin(attempt)
        return attempt

    def end(self, attempt, state=BuildState.SUCCEEDED):
        if state.holds:
            self.ledger.fail(attempt, state, "no")
        else:
            version = self.ledger.allot(attempt, attempt.build_id)
            self.ledger.complete_all([Completion(attempt, version, attempt.build_id, {}, state)])
        self.ledger.release(attempt.node, attempt.build_id)

    def build(self, name="a", state=BuildState.SUCCEEDED):
        attempt = self.begin(name)
        self.end(attempt, state)
        return attempt

    def deliver(self, **how):
        return deliver(self.database, self.home, **{"patient": False, **how})

    def waiting(self):
        return self.spool.counts()["waiting"]


@pytest.fixture
def world(any_database, tmp_path):
    found = World(any_database, tmp_path)
    yield found
    found.ledger.close()


def refuse(name, code):
    return lambda event: code if event["job"]["name"] == f"asset:{name}" else None


class TestOnAnyDatabase:
    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            (BuildState.SUCCEEDED, "COMPLETE"),
            (BuildState.UNCHANGED, "COMPLETE"),
            (BuildState.FAILED, "FAIL"),
            (BuildState.TIMED_OUT, "FAIL"),
            (BuildState.CANCELLED, "ABORT"),
        ],
    )
    def test_every_end_is_told(self, world, consumer, url, state, kind):
        world.build("a", state)
        assert world.deliver().delivered == 2
        assert consumer.kinds("asset:a") == ["START", kind]

    def test_what_was_delivered_is_not_delivered_again(self, world, consumer, url):
        world.build()
        world.deliver()
        assert world.deliver().delivered == 0
        assert consumer.posts == 2

    def test_a_build_that_runs_is_told_when_it_begins_and_when_it_ends(self, world, consumer, url):
        attempt = world.begin()
        world.deliver()
        assert consumer.kinds("asset:a") == ["START"]
        world.end(attempt)
        world.deliver()
        assert consumer.kinds("asset:a") == ["START", "COMPLETE"]

    def test_nothing_is_sent_before_what_happened_earlier(self, world, consumer, url):
        for name in "abc":
            world.build(name)
        world.deliver()
        told = [(e["job"]["name"][-1], e["eventType"]) for e in consumer.events]
        assert told == [(name, kind) for name in "abc" for kind in ("START", "COMPLETE")]

    def test_a_death_is_told_once_it_is_found(self, world, consumer, url):
        attempt = world.begin()
        world.ledger.release(attempt.node, attempt.build_id)  # as after a crash and its expiry
        world.deliver()
        assert [a.build_id for a in world.ledger.bury()] == [attempt.build_id]
        world.deliver()
        assert consumer.kinds("asset:a") == ["START", "FAIL"]
        facet = consumer.events[-1]["run"]["facets"]["errorMessage"]
        assert facet["message"] == "process died"

    def test_an_attempt_that_lives_is_not_buried(self, world):
        world.begin()
        assert world.ledger.bury() == []

    def test_a_success_that_was_told_as_failed_is_told_anew(self, world, consumer, url):
        attempt = world.build("a", BuildState.DIED)
        world.deliver()
        with world.database.write() as connection:  # as the sync does that finds its event
            connection.execute(
                "UPDATE builds SET state = 'succeeded', version = 1, data_version = 'd' "
                "WHERE build_id = :id",
                id=attempt.build_id,
            )
        world.deliver()
        assert consumer.kinds("asset:a") == ["START", "FAIL", "START", "COMPLETE"]
        assert_whole(consumer.events)
        assert world.deliver().delivered == 0

    def test_many_are_taken_over_in_pages(self, world, consumer, url, monkeypatch):
        monkeypatch.setattr("examlops_dagster.governance.lineage_spool.COLLECTED_AT_ONCE", 3)
        for _ in range(8):
            world.build()
        assert world.deliver().delivered == 16
        assert_whole(consumer.events)

    def test_two_deliverers_at_once_keep_the_order_of_each_run(self, world, consumer, url):
        for number in range(60):
            world.build(f"n{number % 7}")
        ended = []

        def work():
            for _ in range(40):
                deliver(world.database, world.home, patient=False, most=5)
                if consumer.posts >= 120:
                    break
                time.sleep(0.005)
            ended.append(True)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=LIMIT_SECONDS)
        assert len(ended) == 2
        world.deliver()
        assert consumer.posts == 120
        assert_whole(consumer.events)

    def test_who_died_over_the_delivery_does_not_keep_others_from_it(self, world, consumer, url):
        world.build()
        other = Spool(world.database)
        assert other.lease()
        assert world.deliver().outage == "another process is delivering them"
        with world.database.write() as connection:
            connection.execute("UPDATE lineage_deliverer SET pid = 1, pid_started = 5")
        assert world.deliver().delivered == 2


class TestOutages:
    @pytest.mark.parametrize("code", [500, 503, 401, 404, 429])
    def test_an_outage_loses_nothing(self, world, consumer, url, code):
        consumer.answer = lambda event: code
        for number in range(4):
            world.build(f"n{number}")
        done = world.deliver()
        assert str(code) in done.outage
        assert consumer.posts <= 3
        consumer.answer = lambda event: None
        assert world.deliver().delivered == 8
        assert world.waiting() == 0
        assert_whole(consumer.events)

    def test_a_backend_that_is_gone_costs_one_try_and_is_left_alone(self, world, monkeypatch):
        monkeypatch.setenv("EXAMLOPS_OPENLINEAGE_URL", "http://127.0.0.1:9")
        world.build()
        before = time.time()
        assert "refused" in world.deliver().outage
        outage = world.spool.outage()
        assert outage.failures == 1
        assert before + 10 <= outage.next_at <= time.time() + 10
        with world.database.write() as connection:
            connection.execute("UPDATE lineage_deliverer SET next_at = next_at + 1000")
        done = world.deliver(patient=True)
        assert (done.delivered, done.waiting) == (0, 2)
        assert world.spool.outage().failures == 1

    def test_the_longer_it_lasts_the_longer_it_is_left_alone(self, world):
        now = 1_000_000.0
        spool, waits = Spool(world.database, lambda: now), []
        for _ in range(8):
            spool.failed("gone")
            waits.append(spool.outage().next_at - now)
        assert waits == [10, 20, 40, 80, 160, 300, 300, 300]

    def test_a_backend_that_answers_no_more_is_given_up(self, world, consumer, url, monkeypatch):
        monkeypatch.setattr("examlops_dagster.governance.lineage_backend.TIMEOUT_SECONDS", 1.0)
        answers = threading.Event()
        consumer.answer = lambda event: answers.wait(600) and 500
        world.build()
        before = time.monotonic()
        assert "timed out" in world.deliver().outage
        assert time.monotonic() - before < 300
        answers.set()
        assert world.waiting() == 2


class TestBadEvents:
    def test_an_event_that_is_refused_is_set_aside_and_the_others_go_on(
        self, world, consumer, url, monkeypatch
    ):
        monkeypatch.setattr("examlops_dagster.governance.lineage_spool.FIRST_REFUSAL_SECONDS", 0)
        consumer.answer = refuse("bad", 422)
        for name in ("a", "bad", "b"):
            world.build(name)
        done = world.deliver()
        assert (done.delivered, done.waiting) == (4, 0)
        assert consumer.kinds("asset:b") == ["START", "COMPLETE"]
        found = world.spool.undelivered(10)
        assert {(e.asset, e.state, e.refusals) for e in found} == {("bad", Delivery.SET_ASIDE, 3)}
        assert "HTTP 422" in found[0].reason

    def test_the_end_waits_for_a_start_that_is_tried_again(self, world, consumer, url):
        consumer.answer = lambda event: 400 if event["eventType"] == "START" else None
        world.build()
        world.deliver()
        assert consumer.events == []
        assert world.waiting() == 2
        consumer.answer = lambda event: None
        world.spool.try_again()
        world.deliver()
        assert consumer.kinds("asset:a") == ["START", "COMPLETE"]

    def test_runs_that_wait_for_their_start_do_not_stand_in_the_way(self, world, consumer, url):
        consumer.answer = lambda event: 400 if "bad" in event["job"]["name"] else None
        for number in range(70):
            world.build(f"bad{number}")
        world.build("good")
        world.deliver()
        assert consumer.kinds("asset:good") == ["START", "COMPLETE"]

    def test_the_end_is_told_though_the_start_was_set_aside(
        self, world, consumer, url, monkeypatch
    ):
        monkeypatch.setattr("examlops_dagster.governance.lineage_spool.FIRST_REFUSAL_SECONDS", 0)
        consumer.answer = lambda event: 400 if event["eventType"] == "START" else None
        world.build()
        world.deliver()
        assert consumer.kinds("asset:a") == ["COMPLETE"]

    def test_an_event_over_which_a_working_backend_fails_is_set_aside_in_the_end(
        self, world, consumer, url, monkeypatch
    ):
        monkeypatch.setattr("examlops_dagster.governance.lineage_spool.FIRST_REFUSAL_SECONDS", 0)
        consumer.answer = refuse("bad", 500)
        world.build("bad")
        for number in range(30):
            world.build(f"n{number}")
        for _ in range(30):
            world.deliver()
        assert len(consumer.events) == 60
        assert {e.asset for e in world.spool.undelivered(10)} == {"bad"}

    def test_bad_events_at_the_head_do_not_stop_the_others(self, world, consumer, url):
        consumer.answer = lambda event: 500 if "bad" in event["job"]["name"] else None
        for number in range(5):
            world.build(f"bad{number}")
        world.build("good")
        for _ in range(4):
            world.deliver()
        assert consumer.kinds("asset:good") == ["START", "COMPLETE"]

    def test_what_cannot_be_made_is_set_aside(self, world, consumer, url):
        attempt = world.begin()
        world.deliver()
        world.end(attempt)
        world.build("b")
        world.spool.collect()
        with world.database.write() as connection:
            connection.execute("DELETE FROM builds WHERE build_id = :id", id=attempt.build_id)
        done = world.deliver()
        assert done.set_aside == 1
        assert consumer.kinds("asset:b") == ["START", "COMPLETE"]


class TestConfiguration:
    @pytest.fixture
    def built(self, database, tmp_path):
        world = World(database, tmp_path)
        world.build()
        yield world
        world.ledger.close()

    def test_the_url_of_the_clients_own_variable_is_used(self, built, consumer, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE_URL", consumer.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "key")
        assert built.deliver().delivered == 2
        assert consumer.headers[0]["Authorization"] == "Bearer key"

    def test_the_clients_nested_variables_are_used(self, built, tmp_path, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path / "events"))
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        assert built.deliver().delivered == 2
        lines = (tmp_path / "events").read_text().splitlines()
        assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]

    def test_a_file_in_the_home_is_read_though_the_daemon_works_elsewhere(
        self, built, consumer, tmp_path, monkeypatch
    ):
        (tmp_path / "openlineage.yml").write_text(
            f"transport:\n  type: http\n  url: {consumer.url}\n"
        )
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert is_configured(built.home)
        assert built.deliver().delivered == 2

    def test_a_transport_with_a_queue_is_waited_for(self, built, consumer, monkeypatch):
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "async_http")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", consumer.url)
        assert built.deliver().delivered == 2
        assert consumer.kinds("asset:a") == ["START", "COMPLETE"]

    def test_nothing_is_configured_by_default_or_when_it_is_disabled(self, built, monkeypatch):
        assert not is_configured(built.home)
        monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
        assert is_configured(built.home)
        built.deliver()  # the client adds variables of its own, which would outlive the setting
        monkeypatch.delenv("OPENLINEAGE_URL")
        assert not is_configured(built.home)
        monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
        assert not is_configured(built.home)

    def test_a_wrong_configuration_is_a_users_mistake(self, built, monkeypatch):
        monkeypatch.setenv("EXAMLOPS_OPENLINEAGE_URL", "not a url")
        with pytest.raises(UsageError, match="EXAMLOPS_OPENLINEAGE_URL='not a url' cannot be used"):
            built.deliver()


KILLED = """\
import os, sys, signal
from examlops_dagster.governance import lineage
from examlops_dagster.governance import lineage_backend as backend

send = backend._Client.send
count = 0

def killed(self, event):
    global count
    send(self, event)
    count += 1
    if count == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

backend._Client.send = killed
from examlops_dagster.home import find_home
from examlops_dagster.store.engine import Database
home = find_home()
lineage.deliver(Database(home.database), home, patient=False)
"""


class TestKilled:
    def test_a_deliverer_that_is_killed_loses_nothing(self, home, chain, consumer, url):
        home.exa(chain, "model")
        for stop_after in (1, 2):
            done = subprocess.run(
                [sys.executable, "-c", KILLED, str(stop_after)],
                env={**os.environ},
                timeout=LIMIT_SECONDS,
                check=False,
            )
            assert done.returncode in (0, -signal.SIGKILL)
        project = home.project()
        deliver(project.database, project.home, patient=False)
        once = {(e["run"]["runId"], e["eventType"]): e for e in consumer.events}.values()
        assert_whole([e for e in once if e["job"]["name"] != "asset:PM100"])
        assert {e["job"]["name"] for e in once} == {"asset:PM100", "asset:features", "asset:model"}

    def test_a_build_that_is_killed_before_delivery_is_told(self, home, consumer, monkeypatch):
        home.declare("PM100")
        home.write(
            "dying.py",
            """\
            import os, signal
            from examlops_dagster import asset

            @asset("first", deps=["PM100"], timeout_seconds=None)
            def first(**upstream):
                return 1

            @asset("second", deps=[first], timeout_seconds=None)
            def second(**upstream):
                if not os.path.exists("again"):
                    os.kill(os.getpid(), signal.SIGKILL)
                return 2
            """,
        )
        argv = [COMMAND, "-m", "dying", "assets", "materialize", "second"]
        died = subprocess.run(argv, timeout=LIMIT_SECONDS, check=False, capture_output=True)
        assert died.returncode == -signal.SIGKILL
        (home.folder / "again").touch()
        environment = {**os.environ, "EXAMLOPS_OPENLINEAGE_URL": consumer.url}
        subprocess.run(
            argv, timeout=LIMIT_SECONDS, check=True, env=environment, capture_output=True
        )
        wait_until(lambda: len(consumer.of_job("asset:second")) == 4)
        assert consumer.kinds("asset:first") == ["START", "COMPLETE"]
        assert consumer.kinds("asset:second") == ["START", "FAIL", "START", "COMPLETE"]
        assert len(ends_by_run(consumer.of_job("asset:second"))) == 2


class TestCommand:
    def test_a_command_that_built_something_delivers(self, home, chain, consumer, url):
        home.exa(chain, "model")
        wait_until(lambda: consumer.kinds("asset:model") == ["START", "COMPLETE"])
        assert {e["eventType"] for e in consumer.of_job("asset:PM100")} == {"COMPLETE"}

    def test_a_backend_that_is_gone_changes_no_exit_code(self, home, monkeypatch):
        home.declare("PM100")
        home.write("pipeline.py", CHAIN)
        done = exa(
            "-m", "pipeline", "assets", "materialize", "model",
            EXAMLOPS_OPENLINEAGE_URL="http://127.0.0.1:9",
        )  # fmt: skip
        assert done.returncode == 0
        assert "Materialized model" in done.stdout

    def test_events_are_shown_and_printed_as_they_are_sent(self, home, chain):
        home.exa(chain, "model")
        shown = exa("lineage", "model").stdout
        assert "START" in shown
        assert "features v1" in shown
        events = json.loads(exa("lineage", "model", "--json").stdout)
        assert [e["eventType"] for e in events] == ["START", "COMPLETE"]

    def test_without_a_backend_they_stay_and_say_so(self, home, chain):
        home.exa(chain, "model")
        shown = exa("lineage", "--undelivered").stdout
        assert "5 lineage events wait" in shown
        assert "EXAMLOPS_OPENLINEAGE_URL" in shown
        refused = exa("lineage", "deliver")
        assert refused.returncode == 2
        assert "there is no lineage backend" in refused.stderr

    def test_they_are_delivered_on_request(self, home, chain, consumer):
        home.exa(chain, "model")
        done = exa("lineage", "deliver", EXAMLOPS_OPENLINEAGE_URL=consumer.url)
        assert done.stdout == "Delivered 5 lineage events, 0 wait.\n"
        assert "delivered" in exa("lineage", "model").stdout

    def test_an_unknown_name_is_a_usage_error(self, home):
        done = exa("lineage", "nosuch")
        assert done.returncode == 2
        assert "No asset named 'nosuch'" in done.stderr
