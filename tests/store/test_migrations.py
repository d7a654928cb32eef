import subprocess
import sys
from pathlib import Path

import pytest
from needs import library

from examlops_dagster.errors import StoreError
from examlops_dagster.store import migrations
from examlops_dagster.store.engine import Connection, Database
from examlops_dagster.store.migrations import migrate
from examlops_dagster.store.tables import MIGRATIONS

ROOT = Path(__file__).parents[2]
TABLES = {"builds", "versions", "heads", "holds", "claims", "first_seen", "declarations",
          "watermarks", "hosts"}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request, tmp_path):
    place = tmp_path / "platform.db"
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_url")
    database = Database(place)
    yield database
    database.close()


def numbers(database):
    with database.read() as connection:
        return [n for (n,) in connection.execute("SELECT number FROM migrations ORDER BY number")]


def test_an_empty_database_gets_every_table(empty):
    migrate(empty)
    with empty.read() as connection:
        for table in TABLES:
            assert connection.execute(f"SELECT * FROM {table}") == []
    assert numbers(empty) == list(range(1, len(MIGRATIONS) + 1))


def test_a_second_time_changes_nothing(empty):
    migrate(empty)
    with empty.write() as connection:
        connection.execute("INSERT INTO hosts (host, seen_at) VALUES ('a', 1)")
    migrate(empty)
    assert numbers(empty) == list(range(1, len(MIGRATIONS) + 1))
    with empty.read() as connection:
        assert connection.execute("SELECT host FROM hosts") == [("a",)]


def test_a_second_time_only_reads(empty, monkeypatch):
    migrate(empty)
    asked = []
    execute = Connection.execute
    monkeypatch.setattr(
        Connection,
        "execute",
        lambda self, sql, /, **more: asked.append(sql) or execute(self, sql, **more),
    )
    migrate(empty)
    assert len(asked) <= 2
    assert all(sql.startswith("SELECT") for sql in asked)


def test_a_later_step_is_added_to_what_is_there(empty, monkeypatch):
    migrate(empty)
    later = (*MIGRATIONS, ("CREATE TABLE later (name TEXT)",))
    monkeypatch.setattr(migrations, "MIGRATIONS", later)
    migrate(empty)
    assert numbers(empty) == list(range(1, len(later) + 1))
    with empty.read() as connection:
        assert connection.execute("SELECT * FROM later") == []


def test_a_step_that_fails_leaves_nothing_behind(empty, monkeypatch):
    migrate(empty)
    broken = (*MIGRATIONS, ("CREATE TABLE later (name TEXT)", "CREATE TABLE later (name TEXT)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", broken)
    with pytest.raises(StoreError):
        migrate(empty)
    assert numbers(empty) == list(range(1, len(MIGRATIONS) + 1))
    with pytest.raises(StoreError), empty.read() as connection:
        connection.execute("SELECT * FROM later")


def test_a_newer_database_is_refused(empty):
    migrate(empty)
    with empty.write() as connection:
        connection.execute("INSERT INTO migrations (number) VALUES (999)")
    with pytest.raises(
        StoreError, match=r"newer examlops-dagster \(999, this one knows \d+\) → up"
    ):
        migrate(empty)


def test_the_tables_of_another_schema_are_not_taken_for_ours(postgres_url):
    psycopg = library("psycopg")
    schema = f"other_{postgres_url[-32:]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.migrations (number INTEGER)")
        database = Database(postgres_url)
        migrate(database)
        database.close()
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


SCRIPT = """
import sys
from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate
print("ready", flush=True)
sys.stdin.readline()
database = Database(sys.argv[1])
migrate(database)
database.close()
"""


def test_many_processes_may_create_it_at_once(empty):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, empty.location],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [(p.communicate(timeout=120)[1], p.returncode) for p in processes]
    assert ends == [("", 0)] * 4
    assert numbers(empty) == list(range(1, len(MIGRATIONS) + 1))
