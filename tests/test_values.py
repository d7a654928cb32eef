import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from examlops_dagster.core.seams import Value
from examlops_dagster.values import KEPT, FileValues, make_durable, write_atomically


def value(text, format_="json"):
    return Value(format_, text.encode())


@pytest.fixture
def values(tmp_path):
    return FileValues(tmp_path / "values")


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_value_is_read_by_its_data_version(values):
    values.keep(("a",), "", "v1", value("1"))
    values.keep(("a",), "", "v2", value("2"))
    assert values.load(("a",), "", "v1") == value("1")
    assert values.load(("a",), "", "v2") == value("2")


def test_the_newest_value_is_read_without_a_data_version(values):
    for number in ("1", "2", "1"):
        path = values.keep(("a",), "", f"v{number}", value(number))
        age(path, -10 if number == "1" else -20)
    assert values.load(("a",), "", None) == value("1")


@pytest.fixture
def synced(monkeypatch):
    """Give the files that were brought to the disk."""
    found = []
    real = os.fsync

    def fsync(handle):
        found.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_value_is_on_the_disk_once_it_is_kept(values, synced):
    assert synced == [values.keep(("a",), "", "v1", value("1")).stat().st_ino]


def test_values_can_be_brought_to_the_disk_together(values, synced):
    paths = [values.keep(("a",), k, "v1", value("1"), durable=False) for k in ("x", "y", "z")]
    assert synced == []
    make_durable(paths)
    assert sorted(synced) == sorted(path.stat().st_ino for path in paths)


def test_a_value_that_is_written_over_is_on_the_disk_at_once(values, synced):
    values.keep(("a",), "", "v1", value("1"), durable=False)
    path = values.keep(("a",), "", "v1", value("1"), durable=False)
    assert synced == [path.stat().st_ino]


def test_a_value_that_is_gone_needs_not_be_brought_to_the_disk(values):
    gone = values.keep(("a",), "", "v1", value("1"), durable=False)
    gone.unlink()
    make_durable([gone])


def age(path, seconds):
    now = time.time()
    os.utime(path, (now + seconds, now + seconds))


@pytest.mark.parametrize("data_version", [None, "v1"])
def test_nothing_is_read_where_nothing_was_kept(values, data_version):
    assert values.load(("a",), "", data_version) is None
    values.keep(("a",), "", "v2", value("2"))
    assert values.load(("a",), "", "v1") is None
    assert values.load(("a",), "key", data_version) is None
    assert values.load(("a", "b"), "", data_version) is None


def test_two_versions_are_kept(values):
    for number in range(5):
        age(values.keep(("a",), "", f"v{number}", value(str(number))), number - 100)
    assert len(files(values.root)) == KEPT == 2
    assert values.load(("a",), "", "v3") == value("3")
    assert values.load(("a",), "", "v4") == value("4")


def test_another_format_of_a_version_replaces_nothing(values):
    values.keep(("a",), "", "v1", value("1"))
    values.keep(("a",), "", "v2", value("2", "pickle"))
    assert values.load(("a",), "", "v2") == value("2", "pickle")


def test_partitions_and_assets_below_a_name_do_not_count_as_its_versions(values):
    """`a`, its partitions and `a/b` share a folder."""
    first = values.keep(("a",), "", "v1", value("1"))
    age(first, -100)
    values.keep(("a",), "key", "v1", value("of a key"))
    values.keep(("a", "b"), "", "v1", value("of a/b"))
    values.keep(("a",), "", "v2", value("2"))
    assert values.load(("a",), "", "v1") == value("1")
    assert values.load(("a",), "key", "v1") == value("of a key")
    assert values.load(("a", "b"), "", "v1") == value("of a/b")


def test_what_a_killed_process_has_left_is_no_version_and_is_taken_away(values):
    first = values.keep(("a",), "", "v1", value("1"))
    age(first, -100)
    left = first.with_name(".abc.part")
    left.write_bytes(b"half")
    values.keep(("a",), "", "v2", value("2"))
    assert values.load(("a",), "", "v1") == value("1")
    age(left, -2 * 86_400)
    values.keep(("a",), "", "v3", value("3"))
    assert not left.exists()


AWKWARD = [
    "..", ".", "...", "../../x", "/etc/passwd", "a/b", "a\\b", "key with space", "ключ", "a\nb",
    "%2E%2E", "@", "*", "[a]", "~", "$HOME", "a|b", "2024-01-01T00:00", "'\"", "x" * 300,
    "день" * 80, "CON",
]  # fmt: skip


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: ascii(text)[:20])
def test_awkward_keys_stay_below_the_root_and_apart(values, text):
    values.keep(("other",), "", "v", value("other"))
    values.keep((text,), "", "v", value("name"))
    values.keep(("a",), text, "v", value("partition"))
    values.keep(("a", text), "", "v", value("part"))
    assert values.load((text,), "", "v") == value("name")
    assert values.load(("a",), text, "v") == value("partition")
    assert values.load(("a", text), "", "v") == value("part")
    assert values.load(("other",), "", "v") == value("other")
    assert len(files(values.root.parent)) == len(files(values.root)) == 4


NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3)


@given(NAMES, st.text(max_size=12), NAMES, st.text(max_size=12))
def test_a_node_has_a_folder_of_its_own_below_the_root(key, partition, other, theirs):
    root = Path("/top/of/values")
    folder = FileValues(root).folder(key, partition)
    assert folder != root
    assert Path(os.path.normpath(folder)) == folder
    assert root in folder.parents
    assert all(len(os.fsencode(part)) <= 255 for part in folder.parts)
    if (key, partition) != (other, theirs):
        assert folder != FileValues(root).folder(other, theirs)


def test_a_value_is_there_whole_or_not_at_all(tmp_path):
    """A process is killed while it writes, at many moments."""
    path = tmp_path / "value"
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from examlops_dagster.values import write_atomically

        print(flush=True)
        for number in range(10**9):
            write_atomically(Path(sys.argv[1]), bytes([number % 256]) * 1_000_000)
        """
    )
    for pause in (0.0, 0.01, 0.03, 0.07):
        process = subprocess.Popen(
            [sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        process.stdout.readline()
        if pause:
            wait_until(path.exists)
        time.sleep(pause)
        process.kill()
        process.communicate()
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 1_000_000
            assert len(set(content)) == 1
    assert path.exists()


def test_a_failed_write_leaves_the_former_value_and_no_other_file(tmp_path):
    path = tmp_path / "value"
    write_atomically(path, b"former")
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")
    assert path.read_bytes() == b"former"
    assert files(tmp_path) == ["value"]


def test_files_are_named_for_their_data_version(values):
    path = values.keep(("a",), "", "../../any text / ключ", value("1"))
    assert re.fullmatch(r"[0-9a-f]{16}\.json", path.name)
