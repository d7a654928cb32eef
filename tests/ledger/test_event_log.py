import os
import threading

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterRunStatus,
    DataVersion,
    Definitions,
    MaterializeResult,
    materialize,
)
from dagster import asset as plain_asset
from homes import CHAIN, Homestead, names_of

from examlops_dagster.core.seams import Attempt, BuildState, Node, Read
from examlops_dagster.ledger import watermark
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    DATA_VERSION_TAG,
    PROCESS_TAG,
    VERSION_TAG,
    process_tag,
)
from examlops_dagster.store.engine import Connection

SOURCE_ONLY = """\
from examlops_dagster import asset


@asset("model", deps=["PM100"], timeout_seconds=None)
def build_model(**upstream):
    return upstream
"""


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """Make a home with the chain declared, and one with it built: what costs the most, once."""
    folder = tmp_path_factory.mktemp("templates")
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder / "declared", monkeypatch)
        home.declare("PM100")
        assert home.instance
        home.close()
        home = Homestead(folder / "built", monkeypatch, copy_of=folder / "declared")
        assert home.exa(home.module(CHAIN), "model").ok
        home.close()
    return folder


@pytest.fixture
def home(request, tmp_path, monkeypatch, templates):
    template = "built" if "built" in request.fixturenames else "declared"
    found = Homestead(tmp_path / "home", monkeypatch, copy_of=templates / template)
    yield found
    found.close()


@pytest.fixture
def chain(home):
    return home.module(CHAIN)


@pytest.fixture
def built(home):
    return home.module(CHAIN)


def everything(home, modules):
    """All that a verdict rests on."""
    return {
        name: (r.version, r.data_version, r.code_version, r.built_from, r.build_id)
        for name, r in home.records(modules).items()
    }


# What others write


def test_a_materialization_from_outside_makes_what_is_below_it_stale(home, built):
    home.report("PM100", "theirs")
    record = home.records(built)["PM100"]
    assert (record.version, record.data_version, record.build_id) == (2, "theirs", "")
    assert home.why(built, "features") == ("upstream PM100 changed (1 → 2)",)


def test_one_without_a_data_version_counts_as_new_content_each_time(home, built):
    for version in (2, 3):
        home.report("PM100")
        assert home.versions(built)["PM100"] == version


def test_an_equal_data_version_from_outside_keeps_the_integer_version(home, built):
    before = home.records(built)["PM100"]
    home.report("PM100", before.data_version)
    after = home.records(built)["PM100"]
    assert (after.version, after.data_version) == (before.version, before.data_version)
    assert home.states(built)["model"] == "fresh"


def test_the_later_of_a_materialization_and_an_observation_counts(home, built):
    home.report("PM100", "one")
    home.observe("PM100", "two")
    assert home.records(built)["PM100"].data_version == "two"
    home.observe("PM100", "three")
    home.report("PM100", "four")
    assert home.records(built)["PM100"].data_version == "four"


def test_an_observation_without_a_data_version_says_nothing_about_content(home, built):
    before = home.records(built)["PM100"]
    home.observe("PM100")
    assert home.records(built)["PM100"] == before


def test_a_source_that_is_only_observed_has_a_version(home, chain):
    home.observe("PM100", "seen")
    assert home.records(chain)["PM100"].version == 1


def test_many_events_are_read_page_by_page_and_in_their_order(home, chain, monkeypatch):
    monkeypatch.setattr("examlops_dagster.ledger.event_log.taken_over.PAGE", 7)
    for number in range(25):
        (home.observe if number % 3 else home.report)("PM100", f"content {number}")
    record = home.records(chain)["PM100"]
    assert (record.version, record.data_version) == (25, "content 24")
    assert [b.data_version for b in home.builds("PM100")] == [f"content {n}" for n in range(25)]


def test_more_than_a_thousand_events_are_read_at_once(home, chain):
    """The events are written below Dagster: its own way takes ten milliseconds each."""
    home.report("PM100", "first")
    copy_events(home, 1001)
    home.report("PM100", "last")
    record = home.records(chain)["PM100"]
    assert record.data_version == "last"
    assert len(home.builds("PM100")) == 1000  # what history gives at most
    assert home.sql("SELECT count(*) FROM builds") == [(1003,)]


def test_a_record_made_outside_is_judged_by_its_upstreams_alone(home, built):
    home.report("features", "theirs")
    verdict = home.status(built)["features"]
    assert verdict.why == ()  # by another code, and with inputs that nobody recorded
    assert home.why(built, "model") == ("upstream features changed (1 → 2)",)
    home.advance("PM100", modules=built)
    assert home.why(built, "features") == (
        "upstream PM100 changed (1 → 2)",
        "inputs not recorded",
    )


def test_a_changed_code_does_not_make_a_record_made_outside_stale(home, built):
    home.report("model", "theirs")
    home.records(built)
    changed = home.module(CHAIN.replace('"from"', '"made from"'))
    assert home.why(changed, "model") == ()


def test_adopting_a_record_made_outside_makes_it_ours(home, built):
    home.report("features", "theirs")
    project = home.project(built)
    assert project.adopt("features") == [Node("features")]
    assert project.adopt("features") == []
    project.close()
    record = home.records(built)["features"]
    assert record.build_id
    assert record.version == 2
    assert record.built_from == {Node("PM100"): Read(1, home.records(built)["PM100"].data_version)}
    changed = home.module(CHAIN.replace('"read"', '"was read"'))
    assert home.why(changed, "features") == ("code changed",)


def test_a_record_made_outside_during_a_build_above_it_is_built_from_the_former_version(
    home, built
):
    """Our build sets the current version before its own event is read back."""
    build_between(home, built, Node("PM100"), "new", lambda: home.report("features", "theirs"))
    assert home.versions(built)["PM100"] == 2
    assert home.why(built, "features") == (
        "upstream PM100 changed (1 → 2)",
        "inputs not recorded",
    )


def test_an_asset_that_only_others_declare_is_recorded_as_historical(home, built):
    home.report("their/asset", "x")
    assert home.states(built)["their/asset"] == "historical"


# Wipes and deleted runs


@pytest.mark.parametrize("name", ["features", "model"])
def test_a_wiped_asset_was_never_materialized_and_its_numbers_go_on(home, built, name):
    """The events of `model` are the last ones: SQLite gives their ids anew."""
    home.wipe(name)
    assert home.why(built, name)[0] == "never materialized"
    assert home.versions(built)[name] == 0
    assert names_of(home.exa(built, name).rebuilt) == [name]
    assert home.versions(built)[name] == 2
    assert home.states(built)[name] == "fresh"


def test_an_event_that_got_the_id_of_a_wiped_one_is_read(home, built):
    home.report("model", "wiped soon")
    assert home.records(built)["model"].data_version == "wiped soon"
    home.wipe("model")
    home.report("PM100", "theirs")
    assert home.records(built)["PM100"].data_version == "theirs"
    assert home.why(built, "features") == ("upstream PM100 changed (1 → 2)",)


def test_an_event_that_got_the_id_of_a_wiped_one_is_read_after_a_sync_between(home, built):
    home.wipe("model")
    home.records(built)
    home.report("PM100", "theirs")
    assert home.records(built)["PM100"].data_version == "theirs"


def test_an_event_from_outside_that_got_the_id_of_another_one_is_recorded(home, built):
    home.report("model", "one")
    home.records(built)
    home.wipe("model")
    home.report("model", "two")
    assert home.records(built)["model"].data_version == "two"


def test_after_a_wipe_the_next_request_needs_no_dagster_again(home, built):
    home.wipe("model")
    home.records(built)
    assert watermark.nothing_new(home.folder, home.project().database)


def test_an_observed_source_survives_the_wipe_of_another_asset(home, chain):
    home.observe("PM100", "seen")
    assert home.exa(chain, "model").ok
    home.wipe("model")
    assert home.records(chain)["PM100"].data_version == "seen"
    home.wipe("PM100")
    assert "PM100" not in home.records(chain)


def test_a_deleted_run_hides_no_later_event(home, built):
    """Deleting a run in the UI frees the ids of its events."""
    run_plain(home, "theirs", "one")
    assert home.records(built)["theirs"].data_version == "one"
    [run] = home.instance.get_runs(limit=1)
    home.instance.delete_run(run.run_id)
    run_plain(home, "theirs", "two")
    assert home.records(built)["theirs"].data_version == "two"


def test_a_deleted_run_leaves_what_it_built(home, built):
    before = everything(home, built)
    for run in home.instance.get_runs():
        home.instance.delete_run(run.run_id)
    assert everything(home, built) == before
    assert home.states(built) == dict.fromkeys(before, "fresh")


def test_a_history_that_was_deleted_with_its_folder_starts_anew(home, built):
    import shutil

    home.instance.dispose()
    home._instance = None
    shutil.rmtree(home.folder / "history")
    assert home.states(built)["model"] == "never built"
    assert home.exa(built, "model").ok
    assert home.versions(built) == {"PM100": 2, "features": 2, "model": 2}
    home.report("PM100", "theirs")
    assert home.versions(built)["PM100"] == 3


# A platform.db that was lost, or is older than the event log


def forget(home):
    for path in home.folder.glob("platform.db*"):
        path.unlink()


def test_a_lost_platform_db_is_rebuilt_from_the_event_log(home, built):
    home.advance("PM100", "second", built)
    assert home.exa(built, "model").ok
    home.report("model", "theirs")
    project = home.project(built)
    project.adopt("model")
    project.close()
    before = everything(home, built)
    assert set(home.states(built).values()) == {"fresh"}
    forget(home)
    home.declare("PM100")
    assert everything(home, built) == before
    assert set(home.states(built).values()) == {"fresh"}
    assert home.versions(built) == {"PM100": 2, "features": 2, "model": 3}
    changed = home.module(CHAIN.replace('"from"', '"made from"'))
    assert home.why(changed, "model") == ("code changed",)
    assert home.exa(built, "model").rebuilt == []
    assert home.advance("PM100", modules=built) == 3


def test_a_platform_db_restored_from_a_copy_catches_up(home, built):
    copy = {p: p.read_bytes() for p in home.folder.glob("platform.db*")}
    home.advance("PM100", "second", built)
    assert home.exa(built, "model").ok
    home.report("features", "theirs")
    before = home.records(built)
    forget(home)
    for path, content in copy.items():
        path.write_bytes(content)
    after = home.records(built)
    assert {n: (r.version, r.data_version) for n, r in after.items()} == {
        n: (r.version, r.data_version) for n, r in before.items()
    }


def test_a_copy_that_was_made_during_a_build_is_completed_from_the_event(home, built):
    attempt = attempt_at(home, built, "model")
    project = home.project(built)
    project.ledger.begin(attempt)
    home.sql("DELETE FROM claims")
    store_event(home, attempt, 2, "second")
    assert home.records(built)["model"].version == 2
    [last] = home.builds("model")[-1:]
    assert (last.state, last.version, last.data_version) == (BuildState.SUCCEEDED, 2, "second")
    home.report("model", "third")
    assert home.versions(built)["model"] == 3


# Processes that were killed


def attempt_at(home, modules, name):
    read = {} if name == "PM100" else {Node("features"): Read(1, "d")}
    return Attempt(Node(name), os.urandom(8).hex(), "fingerprint", "code", read, "local")


def store_event(home, attempt, version, data_version):
    import json

    reads = [[*node, *read] for node, read in attempt.built_from.items()]
    home.instance.report_runless_asset_event(
        AssetMaterialization(
            AssetKey(attempt.node.asset),
            metadata={BUILT_FROM: json.dumps(reads)},
            tags={
                BUILD_TAG: attempt.build_id,
                VERSION_TAG: str(version),
                DATA_VERSION_TAG: data_version,
            },
        )
    )


def build_between(home, modules, node, data_version, meanwhile):
    """Build a node of ours, while something else happens before its event is stored."""
    project = home.project(modules)
    attempt = attempt_at(home, modules, node.asset)
    project.ledger.claim(node, attempt.build_id)
    project.event_log.sync()
    project.ledger.begin(attempt)
    meanwhile()
    version = project.ledger.allot(attempt, data_version)
    store_event(home, attempt, version, data_version)
    project.ledger.complete(attempt, version, data_version, {})
    project.ledger.release(node, attempt.build_id)
    project.close()


def test_a_build_killed_after_its_event_is_completed(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    version = project.ledger.allot(attempt, "second")
    store_event(home, attempt, version, "second")
    record = home.records(built)["model"]
    assert (record.version, record.data_version, record.build_id) == (
        2,
        "second",
        attempt.build_id,
    )
    assert record.built_from == attempt.built_from
    assert home.endings("model") == ["succeeded", "succeeded"]


def test_a_build_completed_from_its_event_is_not_held_for_its_death(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    version = project.ledger.allot(attempt, "second")
    project.ledger.fail(attempt, BuildState.FAILED, "its value could not be stored")
    assert project.ledger.holds()
    store_event(home, attempt, version, "second")
    home.records(built)
    assert project.ledger.holds() == {}
    assert home.endings("model") == ["succeeded", "succeeded"]


def test_a_later_failure_stays_held_when_a_former_build_is_read_back(home, built):
    project = home.project(built)
    former, later = attempt_at(home, built, "model"), attempt_at(home, built, "model")
    project.ledger.begin(former)
    store_event(home, former, project.ledger.allot(former, "second"), "second")
    project.ledger.complete(former, 2, "second", {})
    project.ledger.begin(later)
    project.ledger.fail(later, BuildState.FAILED, "later")
    home.records(built)
    assert project.ledger.holds()[Node("model")].error == "later"


def test_a_build_killed_before_its_event_leaves_its_number_unused(home, built):
    project = home.project(built)
    attempt = attempt_at(home, built, "model")
    project.ledger.begin(attempt)
    assert project.ledger.allot(attempt, "lost") == 2
    assert home.versions(built)["model"] == 1
    assert home.exa(built, "model", force=True).ok
    home.report("model", "third")
    assert home.versions(built)["model"] == 3
    assert home.endings("model") == ["succeeded", "died", "succeeded", "succeeded"]


def test_two_processes_that_sync_at_once_record_each_event_once(home, built):
    for number in range(30):
        home.report("PM100", f"content {number}")
    logs = [home.project(built).event_log for _ in range(4)]
    errors = []

    def sync(log):
        try:
            log.sync()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=sync, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(home.builds("PM100")) == 31
    assert home.versions(built)["PM100"] == 31


def test_a_sync_that_is_interrupted_anywhere_is_repeated_whole(home, built, monkeypatch):
    home.report("PM100", "theirs")
    expected = None
    execute = Connection.execute
    for limit in range(1, 100):
        left = [limit]

        def stop(self, sql, /, _left=left, **parameters):
            _left[0] -= 1
            if not _left[0]:
                raise KeyboardInterrupt
            return execute(self, sql, **parameters)

        project = home.project(built)
        log = project.event_log
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", stop)
            try:
                log.sync()
                expected = limit
            except KeyboardInterrupt:
                pass
        project.close()
        if expected:
            break
    assert expected
    assert expected > 5
    assert home.versions(built)["PM100"] == 2
    assert len(home.builds("PM100")) == 2


# What is in flight


def open_run(home, name, status, **tags):
    @plain_asset(name=name)
    def body(): ...

    keys = {AssetKey(name)}
    repository = Definitions([body]).get_repository_def()
    job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
    return home.instance.create_run_for_job(
        job, asset_selection=keys, tags=tags, status=status
    ).run_id


def run_plain(home, name, data_version):
    @plain_asset(name=name)
    def body():
        return MaterializeResult(data_version=DataVersion(data_version))

    assert materialize([body], instance=home.instance).success


@pytest.mark.parametrize(
    "status", [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]
)
def test_a_node_of_an_open_run_is_running(home, built, status):
    home.advance("PM100", modules=built)
    run_id = open_run(home, "model", status)
    assert home.states(built)["model"] == "running"
    home.instance.delete_run(run_id)
    assert home.states(built)["model"] == "stale"


def test_a_run_of_this_process_is_running(home, built):
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: process_tag()})
    assert home.states(built)["model"] == "running"


def test_a_run_on_another_host_is_not_taken_for_dead(home, built):
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: "elsewhere:1:1.00"})
    assert home.states(built)["model"] == "running"


def test_a_process_is_the_same_one_after_the_clock_was_set(home, built):
    host, pid, started = process_tag().rsplit(":", 2)
    moved = f"{host}:{pid}:{float(started) + 2:.2f}"
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: moved})
    assert home.states(built)["model"] == "running"


def test_a_run_whose_process_was_killed_does_not_count_and_is_remembered(home, built):
    host, pid, _ = process_tag().rsplit(":", 2)
    open_run(home, "model", DagsterRunStatus.STARTED, **{PROCESS_TAG: f"{host}:{pid}:1.00"})
    assert home.states(built)["model"] == "fresh"
    assert watermark.nothing_new(home.folder, home.project().database)


def test_a_node_that_an_open_run_has_built_is_no_longer_running(home, built):
    run_id = open_run(home, "model", DagsterRunStatus.STARTED)
    home.sql("UPDATE builds SET run_id = :run WHERE asset = 'model'", run=run_id)
    assert home.states(built)["model"] == "fresh"


# How much is read


def fake_assets(home, count):
    source = "from examlops_dagster import asset\n\n\n" + "".join(
        f"@asset('a{n}', deps={['a' + str(n - 1)] if n % 10 else []!r}, timeout_seconds=None)\n"
        f"def f{n}(**upstream):\n    return {n}\n\n\n"
        for n in range(count)
    )
    module = home.module(source)
    project = home.project(module)
    code = project.code_versions
    now = 1_700_000_000
    with project.database.write() as connection:
        for n in range(count):
            reads = f'[["a{n - 1}","",1,"d"]]' if n % 10 else "[]"
            connection.execute(
                "INSERT INTO heads (asset, partition, version, data_version, code_version, "
                "built_from, built_at, build_id, run_id) VALUES "
                "(:asset, '', 1, 'd', :code, :reads, :now, 'b', '')",
                asset=f"a{n}",
                code=code[f"a{n}"],
                reads=reads,
                now=now,
            )
    project.close()
    return module


def count_statements(home, module, monkeypatch):
    """Count the statements of a status on platform.db, and those on Dagster's storage."""
    import sqlite3

    import sqlalchemy

    ours, theirs = [], []
    execute = Connection.execute

    def counted(self, sql, /, **parameters):
        ours.append(sql)
        return execute(self, sql, **parameters)

    def listen(connection, cursor, statement, *_):
        if not statement.startswith("PRAGMA"):
            theirs.append(statement)

    connect = sqlite3.connect

    def traced(*arguments, **named):
        raw = connect(*arguments, **named)
        if named.get("uri"):
            raw.set_trace_callback(theirs.append)
        return raw

    project = home.project(module)
    assert project.event_log is not None
    _ = project.code_versions
    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", listen)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", counted)
            patch.setattr(sqlite3, "connect", traced)
            found = project.statuses()
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", listen)
    project.close()
    assert all(not s.reasons for n, s in found.items() if n.asset.startswith("a")), found
    return len(ours), len(theirs)


@pytest.mark.parametrize("news", [False, True], ids=["nothing new", "an event to read"])
def test_a_status_takes_as_many_statements_for_500_assets_as_for_50(tmp_path, monkeypatch, news):
    counts = []
    for count in (50, 500):
        home = Homestead(tmp_path / str(count), monkeypatch)
        module = fake_assets(home, count)
        assert home.instance
        home.states(module)
        if news:
            home.report("other", "x")
        counts.append(count_statements(home, module, monkeypatch))
        home.close()
    assert counts[0] == counts[1]
    assert counts[0][0] <= 25
    assert counts[0][1] <= 20


def copy_events(home, count):
    import sqlite3
    from contextlib import closing

    path = home.folder / "history" / "runs" / "index.db"
    with closing(sqlite3.connect(path)) as raw:
        columns = "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition"
        for _ in range(count):
            raw.execute(
                f"INSERT INTO event_logs ({columns}) SELECT {columns} FROM event_logs WHERE id = 1"
            )
        raw.commit()


# Events that are taken over by who does not know the declaration

URI_SOURCE = """\
from examlops_dagster import Dataset, asset


@asset("model", deps=[Dataset("s3://bucket/x")], timeout_seconds=None)
def build_model(**upstream):
    return upstream
"""


def test_what_a_stranger_took_over_is_stale_once_its_upstream_moves(home, chain):
    home.report("PM100", "one")
    home.report("features", "f-one")
    home.states()  # a command without the module takes the events over
    assert home.states(chain)["features"] == "fresh"
    home.report("PM100", "two")
    assert home.states(chain)["features"] == "stale"


def test_what_was_current_at_the_event_counts_and_not_what_came_later(home, chain):
    home.report("PM100", "one")
    home.report("features", "f-one")
    home.report("PM100", "two")
    home.states()
    assert home.states(chain)["features"] == "stale"


def test_an_event_for_a_uri_gets_its_name_from_who_declares_it(home):
    module = home.module(URI_SOURCE)
    home.instance.report_runless_asset_event(
        AssetMaterialization(AssetKey(["s3", "bucket", "x"]), tags={DATA_VERSION_TAG: "v"})
    )
    home.states()
    records = home.records(module)
    assert records["s3://bucket/x"].data_version == "v"
    assert "s3/bucket/x" not in records
