"""The sync from the event log: in pages, repeated whole, once for each event, and its cost."""

import threading

import pytest
from homes import Homestead

from examlops_dagster.store.engine import Connection


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
