import hashlib
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from clock import Clock
from worlds import NOW

from examlops_dagster.errors import StoreError
from examlops_dagster.governance.audit import GENESIS, Audit, Entry

ROOT = Path(__file__).parents[2]
ODD = {"text": 'é "quoted" \0 \ud800', "number": 1.5, "none": None, "list": [1, {"a": "b"}]}


@pytest.fixture
def audit(any_database):
    return Audit(any_database, Clock(NOW))


def fill(audit, count=5):
    for number in range(1, count + 1):
        audit.append(Entry("declare", "alice", [f"asset{number}"], {"n": number}))


def lift_the_ban(database):
    """Do what an intruder with the rights of the database's owner does first."""
    with database.write() as connection:
        if database.is_postgres:
            connection.execute("DROP TRIGGER audit_append_only ON audit")
        else:
            connection.execute("DROP TRIGGER audit_refuses_update")
            connection.execute("DROP TRIGGER audit_refuses_delete")


def tamper(database, sql, **named):
    lift_the_ban(database)
    with database.write() as connection:
        connection.execute(sql, **named)


def test_an_empty_log_holds(audit):
    found = audit.verify()
    assert (found.ok, found.count, found.head) == (True, 0, GENESIS)


def test_rows_follow_from_each_other(audit):
    fill(audit)
    rows = list(audit.rows())
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert [row.former for row in rows] == [GENESIS, *(row.hash for row in rows[:-1])]
    assert audit.verify().head == rows[-1].hash
    assert audit.verify().ok


def test_a_hash_can_be_computed_by_who_has_the_export_alone(audit):
    audit.append(Entry("declare", "alice", ["größe/x"], ODD))
    [row] = audit.rows()
    exported = json.loads(json.dumps(row.as_json))
    stated = exported.pop("hash")
    text = json.dumps(exported, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == stated


def test_any_text_can_be_recorded(audit):
    audit.append(Entry("declare", "al\0ice \ud800 ü", ["a\nb", "ü"], ODD))
    [row] = audit.rows()
    assert row.actor == "al\\x00ice \\ud800 ü"
    assert row.assets == ("a\nb", "ü")
    assert row.details == ODD
    assert audit.verify().ok


def test_what_is_recorded_once_is_there_once(audit):
    audit.append(Entry("x", "a", once="k"), Entry("x", "a", once="k"))
    audit.append(Entry("x", "a", once="k"))
    audit.append(Entry("x", "a", once="other"))
    assert [row.once for row in audit.rows()] == ["k", "other"]
    assert audit.verify().ok


@pytest.mark.parametrize("sql", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
def test_rows_are_neither_changed_nor_deleted(audit, any_database, sql):
    fill(audit)
    with pytest.raises(StoreError, match="append-only"), any_database.write() as connection:
        connection.execute(sql)
    assert audit.verify().count == 5


def test_a_table_is_not_emptied_on_postgres(audit, any_database):
    fill(audit)
    if any_database.is_postgres:
        with pytest.raises(StoreError, match="append-only"), any_database.write() as connection:
            connection.execute("TRUNCATE audit")
    assert audit.verify().count == 5


COLUMNS = ["at", "actor", "action", "assets", "details", "once", "former", "hash"]


@pytest.mark.parametrize("column", COLUMNS)
def test_one_changed_byte_of_a_row_is_found(audit, any_database, column):
    fill(audit, 2)
    audit.append(Entry("declare", "alice", ["x"], {"n": 3}, once="a key"))
    fill(audit, 2)
    with any_database.read() as connection:
        [[text]] = connection.execute(f"SELECT {column} FROM audit WHERE number = 3")
    middle = len(text) // 2
    other = "0" if text[middle] != "0" else "1"
    spoilt = text[:middle] + other + text[middle + 1 :]
    tamper(any_database, f"UPDATE audit SET {column} = :text WHERE number = 3", text=spoilt)
    found = audit.verify()
    assert (found.ok, found.broken, found.count) == (False, 3, 2)
    assert "row 3" in found.reason
    assert len(audit.listed(limit=10)) == 5


def test_a_space_in_the_stored_json_is_found(audit, any_database):
    fill(audit)
    tamper(any_database, "UPDATE audit SET details = details || ' ' WHERE number = 2")
    assert audit.verify().broken == 2


@pytest.mark.parametrize(
    ("sql", "broken", "why"),
    [
        ("DELETE FROM audit WHERE number = 3", 3, "row 3 is missing"),
        ("DELETE FROM audit WHERE number = 1", 1, "row 1 is missing"),
        ("DELETE FROM audit WHERE number >= 4", 4, "rows 4 to 5 were cut off"),
        ("DELETE FROM audit WHERE number = 5", 5, "row 5 was cut off"),
        ("DELETE FROM audit", 1, "rows 1 to 5 were cut off"),
        ("UPDATE audit_head SET number = 4", 5, "row 4 is not the head"),
        ("DELETE FROM audit_head", 5, "the head of the log was taken away"),
    ],
)
def test_what_is_missing_is_found(audit, any_database, sql, broken, why):
    fill(audit)
    tamper(any_database, sql)
    found = audit.verify()
    assert (found.ok, found.broken) == (False, broken)
    assert found.reason.startswith(why)


def test_rows_added_after_a_cut_do_not_hide_it(audit, any_database):
    fill(audit)
    tamper(any_database, "DELETE FROM audit WHERE number >= 4")
    fill(audit, 3)
    assert audit.verify().reason == "row 4 is missing; row 6 comes next"


def test_rows_are_listed_by_what_they_are_about(audit, any_database):
    clock = Clock(NOW)
    moving = Audit(any_database, clock)
    for asset, action in (("a", "declare"), ("b", "declare"), ("a", "cancel"), ("a%", "cancel")):
        moving.append(Entry(action, "alice", [asset, "shared"]))
        clock.advance(hours=1)
    assert [r.number for r in moving.listed()] == [4, 3, 2, 1]
    assert [r.number for r in moving.listed(asset="a")] == [3, 1]
    assert [r.number for r in moving.listed(asset="a", action="cancel")] == [3]
    assert [r.number for r in moving.listed(since=NOW + timedelta(hours=2))] == [4, 3]
    assert [r.number for r in moving.listed(limit=2)] == [4, 3]
    assert moving.listed(asset="nosuch") == []


WRITER = """
import sys
from examlops_dagster.governance.audit import Audit, Entry
from examlops_dagster.store.engine import Database
database = Database(sys.argv[1])
audit = Audit(database)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    audit.append(Entry("declare", sys.argv[2], ["a"], {"n": number}))
database.close()
"""


def test_ten_processes_at_once_leave_a_chain_that_holds(any_database):
    each = 20
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, any_database.location, str(number), str(each)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(10)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=300)
            assert writer.returncode == 0
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.wait()
    audit = Audit(any_database)
    found = audit.verify()
    assert (found.ok, found.count) == (True, 10 * each)
    by_writer = {}
    for row in audit.rows():
        by_writer.setdefault(row.actor, []).append(row.details["n"])
    assert by_writer == {str(n): list(range(each)) for n in range(10)}
