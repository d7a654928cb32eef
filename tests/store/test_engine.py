import sqlite3
import threading

import pytest
from needs import library
from waiting import wait_until

from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Database


@pytest.fixture
def table(any_database):
    with any_database.write() as connection:
        connection.execute("CREATE TABLE t (id {id}, name TEXT, amount REAL)")
    return any_database


def add(database, name):
    with database.write() as connection:
        connection.execute("INSERT INTO t (name) VALUES (:name)", name=name)


def names(database):
    with database.read() as connection:
        return [row[0] for row in connection.execute("SELECT name FROM t ORDER BY id")]


def test_what_was_written_is_read(table):
    add(table, "a")
    add(table, "b")
    assert names(table) == ["a", "b"]


def test_a_statement_without_rows_gives_none(table):
    with table.write() as connection:
        assert connection.execute("DELETE FROM t") == []


@pytest.mark.parametrize(
    "text", ["it's", '"', "100%", "%s", ":name", "a\nb", "größe", ";--", "{id}"]
)
def test_values_survive_quoting(table, text):
    add(table, text)
    assert names(table) == [text]


@pytest.mark.parametrize("literal", ["100%", "a::b", "%(name)s"])
def test_text_in_a_statement_is_left_alone(table, literal):
    with table.read() as connection:
        assert connection.execute(f"SELECT '{literal}' WHERE 1 = :one", one=1) == [(literal,)]


def test_numbers_keep_their_digits(table):
    with table.write() as connection:
        connection.execute("INSERT INTO t (amount) VALUES (:amount)", amount=1767614400.123456)
        [[amount]] = connection.execute("SELECT amount FROM t")
    assert amount == 1767614400.123456


def test_many_rows_are_written_at_once(table):
    with table.write() as connection:
        connection.execute_many("INSERT INTO t (name) VALUES (:name)", ({"name": n} for n in "abc"))
        connection.execute_many("INSERT INTO t (name) VALUES (:name)", [])
    assert names(table) == ["a", "b", "c"]


def test_a_transaction_that_raises_writes_nothing(table):
    def interrupted():
        with table.write() as connection:
            connection.execute("INSERT INTO t (name) VALUES ('lost')")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(table) == []
    add(table, "kept")
    assert names(table) == ["kept"]


def test_bad_sql_is_a_store_error_that_names_the_place_and_the_cause(table):
    with pytest.raises(StoreError, match="nowhere") as caught, table.write() as connection:
        connection.execute("INSERT INTO nowhere (name) VALUES ('a')")
    assert table.location in str(caught.value)
    add(table, "still works")
    assert names(table) == ["still works"]


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found


def test_a_read_sees_one_state_whatever_others_write_in_between(table):
    add(table, "before")
    with table.read() as connection:
        first = connection.execute("SELECT name FROM t")
        in_thread(lambda: add(table, "meanwhile"))
        assert connection.execute("SELECT name FROM t") == first == [("before",)]
    assert names(table) == ["before", "meanwhile"]


def test_writers_take_turns(table):
    order = []

    def write():
        with table.write() as connection:
            order.append("theirs begins")
            connection.execute("INSERT INTO t (name) VALUES ('theirs')")

    thread = threading.Thread(target=write)
    with table.write() as connection:
        thread.start()
        connection.execute("INSERT INTO t (name) VALUES ('ours')")
        thread.join(timeout=0.2)
        order.append("ours ends")
    thread.join()
    assert order == ["ours ends", "theirs begins"]
    assert names(table) == ["ours", "theirs"]


def test_readers_do_not_wait_for_a_writer(table):
    with table.write() as connection:
        connection.execute("INSERT INTO t (name) VALUES ('unseen')")
        assert in_thread(lambda: names(table)) == [[]]


def test_a_closed_database_opens_again(table):
    add(table, "a")
    table.close()
    assert names(table) == ["a"]


def backends(database):
    with database.read() as connection:
        return [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity")]


def test_a_lost_connection_to_postgres_is_opened_anew(postgres_url):
    ours, other = Database(postgres_url), Database(postgres_url)
    with ours.read() as connection:
        [[pid]] = connection.execute("SELECT pg_backend_pid()")
    with other.write() as connection:
        connection.execute("SELECT pg_terminate_backend(:pid)", pid=pid)
    wait_until(lambda: pid not in backends(other))
    with pytest.raises(StoreError), ours.read():
        pass
    with ours.read() as connection:
        assert connection.execute("SELECT 1") == [(1,)]
    ours.close()
    other.close()


def test_a_path_may_hold_anything(awkward_path):
    database = Database(awkward_path / "new folder" / "platform.db")
    assert not database.exists
    with database.read() as connection:
        assert connection.execute("SELECT 1") == [(1,)]
    assert database.exists
    database.close()


def test_a_place_where_nothing_can_be_written_is_told_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    database = Database(tmp_path / "file" / "platform.db")
    with pytest.raises(StoreError, match="→ PLATFORM_DB names another place"), database.read():
        pass


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "platform.db").write_text("not a database at all " * 100)
    database = Database(tmp_path / "platform.db")
    with pytest.raises(StoreError, match=r"platform\.db: file is not a database"), database.read():
        pass


def test_a_postgres_that_does_not_answer_is_told():
    library("psycopg")
    database = Database("postgresql://127.0.0.1:1/nowhere")
    with pytest.raises(StoreError, match="cannot reach Postgres"), database.read():
        pass


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_url_is_postgres_and_is_taken_to_exist(scheme):
    database = Database(f"{scheme}://host/name")
    assert (database.is_postgres, database.exists) == (True, True)


def test_other_programs_can_read_the_file_while_it_is_open(database):
    with database.write() as connection:
        connection.execute("INSERT INTO watermarks (name, mark) VALUES ('a', 'b')")
    theirs = sqlite3.connect(database.location)
    assert theirs.execute("SELECT mark FROM watermarks").fetchall() == [("b",)]
    theirs.close()
