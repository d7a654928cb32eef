"""Connections of a Database: as many as there are transactions at one time, not as threads."""

import threading

import psutil

from examlops_dagster.store.engine import Database


def open_files(database):
    return [f for f in psutil.Process().open_files() if f.path == database.location]


def use(database):
    with database.write() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (n INTEGER)")
        connection.execute("INSERT INTO seen VALUES (1)")


def test_threads_that_wait_hold_no_connection(tmp_path):
    database = Database(tmp_path / "platform.db")
    used, waits = threading.Semaphore(0), threading.Event()

    def run():
        use(database)
        used.release()
        waits.wait(600)

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:  # one after the other
        thread.start()
        assert used.acquire(timeout=300)
    assert len(open_files(database)) == 1
    waits.set()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM seen") == [(20,)]
    database.close()
    assert open_files(database) == []


def test_a_connection_in_use_is_closed_at_the_end_of_its_transaction(tmp_path):
    database = Database(tmp_path / "platform.db")
    use(database)
    with database.read() as connection:
        database.close()
        assert connection.execute("SELECT count(*) FROM seen") == [(1,)]
    assert open_files(database) == []
    use(database)  # and it can be used again
    database.close()
