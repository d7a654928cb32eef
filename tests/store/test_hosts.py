"""SQLite on a network filesystem."""

import logging

import pytest

from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Database
from examlops_dagster.store.hosts import check_host, filesystem_of
from examlops_dagster.store.migrations import migrate


@pytest.fixture
def mounts(tmp_path):
    def write(kind, point):
        path = tmp_path / "mountinfo"
        path.write_text(
            "21 1 0:1 / / rw,relatime - ext4 /dev/a rw\n"
            f"36 21 0:32 / {str(point).replace(' ', chr(92) + '040')} rw shared:1 - {kind} srv:/x rw\n"
        )
        return path

    return write


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "a home" / "platform.db")
    migrate(database)
    yield database
    database.close()


def test_the_longest_mount_point_tells_the_filesystem(tmp_path, mounts):
    found = mounts("nfs4", tmp_path / "a home")
    assert filesystem_of(tmp_path / "a home" / "platform.db", found) == "nfs4"
    assert filesystem_of(tmp_path / "elsewhere", found) == "ext4"


def test_one_host_on_a_network_filesystem_is_warned(tmp_path, mounts, database, caplog):
    with caplog.at_level(logging.WARNING):
        check_host(database, mounts("lustre", tmp_path / "a home"), host="login1")
    assert "SQLite on lustre" in caplog.text
    assert "EXAMLOPS_DB_URL" in caplog.text


def test_a_second_host_is_refused(tmp_path, mounts, database):
    found = mounts("nfs4", tmp_path / "a home")
    check_host(database, found, host="login1")
    with pytest.raises(StoreError, match="host login1 writes to it too"):
        check_host(database, found, host="login2")


def test_any_number_of_hosts_may_use_a_local_disk(tmp_path, mounts, database, caplog):
    found = mounts("nfs4", tmp_path / "other")
    check_host(database, found, host="a")
    check_host(database, found, host="b")
    assert not caplog.records


def test_where_nothing_tells_it_is_taken_for_local(tmp_path):
    assert not filesystem_of(tmp_path, tmp_path / "nothing")
