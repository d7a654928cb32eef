"""Which content has which revision, what is hashed again, and what is no content."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import library

from examlops_dagster.catalog.content import Content, File, read_content, scan
from examlops_dagster.catalog.hash_cache import HashCache
from examlops_dagster.errors import DatasetError

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "a b",
    "größe",
    "new\nline",
    "tab\t",
    "'\"",
    "$(x)",
    "-rf",
    " ",
    "%2F",
    "\\",
    b"\xff\xfe",
]


class Counting:
    """Counts the bytes that were really read."""

    def __init__(self):
        self.total = self.done = 0

    def begin(self, what, total):
        self.total = total

    def add(self, amount):
        self.done += amount


@pytest.fixture
def read(tmp_path):
    """Give a function that reads a dataset's folder with a cache that outlasts the call."""

    def read_(root, meter=None):
        return read_content(root, HashCache(tmp_path / "hashes", root), meter)

    return read_


def test_equal_files_are_one_revision_wherever_they_lie(read, files, tmp_path):
    first = read(files.all({"a.txt": "1", "x/b.txt": "2"}))
    other = tmp_path / "other"
    (other / "x").mkdir(parents=True)
    (other / "x" / "b.txt").write_text("2")
    (other / "a.txt").write_text("1")
    (other / "empty folder").mkdir()
    assert read(other).revision == first.revision
    assert [f.name for f in first.files] == ["a.txt", "x/b.txt"]


@pytest.mark.parametrize(
    "other",
    [
        {"a": "1", "b": "3"},
        {"a": "1"},
        {"a": "1", "b": "2", "c": ""},
        {"a": "2", "b": "1"},
        {"a": "1", "x/b": "2"},
        {"a": "12", "b": ""},
    ],
)
def test_another_name_size_or_byte_is_another_revision(read, files, tmp_path, other):
    first = read(files.all({"a": "1", "b": "2"}))
    folder = tmp_path / "other"
    for name, text in other.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert read(folder).revision != first.revision


def test_the_revision_of_given_files_never_changes():
    files = (File("a", 1, "0" * 64), File("b/c", 2, "f" * 64))
    form = b"examlops revision 1\n1:a,1,%s\n3:b/c,2,%s\n" % (b"0" * 64, b"f" * 64)
    assert Content(files).revision == hashlib.sha256(form).hexdigest()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=5), st.integers(0, 99), st.sampled_from("ab")),
        unique_by=lambda f: f[0],
    ),
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=5), st.integers(0, 99), st.sampled_from("ab")),
        unique_by=lambda f: f[0],
    ),
)
def test_no_two_lists_of_files_share_a_revision(one, two):
    first, second = (
        Content(tuple(File(os.fsdecode(n), s, d) for n, s, d in sorted(found)))
        for found in (one, two)
    )
    assert (first.revision == second.revision) == (sorted(one) == sorted(two))


def test_hostile_names_are_hashed_and_survive_the_manifest(read, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in HOSTILE:
        raw = name if isinstance(name, bytes) else name.encode()
        (folder / os.fsdecode(raw)).write_bytes(raw)
    found = read(folder)
    assert {os.fsencode(f.name) for f in found.files} == {os.fsencode(n) for n in HOSTILE}
    again = Content.load(found.dump())
    assert again.files == found.files
    assert again.revision == found.revision


def test_a_manifest_that_somebody_changed_is_refused(read, files):
    dumped = json.loads(read(files(a="1")).dump())
    dumped["files"][0][1] = 7
    with pytest.raises(DatasetError, match="it was changed after it was written"):
        Content.load(json.dumps(dumped))


@pytest.mark.parametrize("text", ["", "[]", '{"files": [1]}'])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(DatasetError, match="cannot be read"):
        Content.load(text)


def test_one_file_is_a_dataset_too(read, files):
    found = read(files(a="1") / "a")
    assert [(f.name, f.size) for f in found.files] == [("a", 1)]


def test_links_count_as_what_they_lead_to(read, files, tmp_path):
    folder = files.all({"a": "1", "x/b": "2"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("2")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "a").symlink_to(folder / "a")
    (linked / "x").symlink_to(outside)
    assert read(linked).revision == read(folder).revision


def test_links_in_a_circle_are_told(read, files):
    folder = files.all({"x/a": "1"})
    (folder / "x" / "again").symlink_to(folder)
    with pytest.raises(DatasetError, match="leads back to a folder above it"):
        read(folder)


def test_a_link_that_leads_nowhere_is_told(read, files):
    folder = files(a="1")
    (folder / "gone").symlink_to("nowhere")
    with pytest.raises(DatasetError, match="gone is a link that leads nowhere"):
        read(folder)


def test_a_pipe_is_no_content(read, files):
    folder = files(a="1")
    os.mkfifo(folder / "pipe")
    with pytest.raises(DatasetError, match="pipe is neither a file nor a folder"):
        read(folder)


@pytest.mark.parametrize("missing", [True, False])
def test_nothing_is_an_error_and_no_revision(read, tmp_path, missing):
    folder = tmp_path / "data"
    if not missing:
        (folder / "empty").mkdir(parents=True)
    with pytest.raises(DatasetError, match="does not exist" if missing else "holds no file"):
        read(folder)


# What was read before


def test_an_untouched_file_is_not_read_again(read, files):
    folder = files(a="1", b="22")
    first, second = Counting(), Counting()
    assert read(folder, first).revision == read(folder, second).revision
    assert (first.done, second.done) == (3, 0)


def test_a_file_that_was_touched_is_read_again(read, files):
    folder = files(a="1", b="2")
    first = read(folder)
    files(a="3")  # as large as before, and as old
    meter = Counting()
    assert read(folder, meter).revision != first.revision
    assert meter.done == 1


def test_a_file_that_was_just_written_is_not_trusted(read, files, monkeypatch):
    monkeypatch.setattr("examlops_dagster.catalog.content.RACY_SECONDS", 600)
    folder = files(a="1")
    os.utime(folder / "a")
    read(folder)
    meter = Counting()
    read(folder, meter)
    assert meter.done == 1


def test_a_cache_that_is_spoilt_costs_time_alone(read, files, tmp_path):
    folder = files(a="1", b="2")
    first = read(folder)
    [cache] = (tmp_path / "hashes").iterdir()
    cache.write_bytes(b'["a", [1, 2\xff' + cache.read_bytes()[:-5])
    meter = Counting()
    assert read(folder, meter).revision == first.revision
    assert meter.done >= 1
    last = Counting()
    read(folder, last)
    assert last.done == 0


def test_where_no_cache_can_be_kept_it_works_without(files, tmp_path):
    (tmp_path / "file").write_text("")
    folder = files(a="1")
    assert read_content(folder, HashCache(tmp_path / "file" / "hashes", folder)).files


def test_the_cache_forgets_files_that_are_gone(read, files, tmp_path):
    folder = files(a="1", b="2")
    read(folder)
    (folder / "b").unlink()
    read(folder)
    [cache] = (tmp_path / "hashes").iterdir()
    assert len(cache.read_text().splitlines()) == 1


PROGRAM = """\
import sys
from pathlib import Path
from examlops_dagster.catalog.content import read_content
from examlops_dagster.catalog.hash_cache import HashCache

class Slow:
    def begin(self, what, total): ...
    def add(self, amount):
        print(amount, flush=True)
        sys.stdin.readline()

root, cache = map(Path, sys.argv[1:])
print(read_content(root, HashCache(cache, root), Slow()).revision)
"""


def test_a_run_that_was_killed_continues_where_it_was(read, files, tmp_path):
    folder = files(**{f"f{n}": str(n) for n in range(6)})
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, folder, tmp_path / "hashes"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        for _ in range(4):  # at the fourth file, three are done
            assert process.stdout.readline() == "1\n"
            if _ < 3:
                process.stdin.write("go\n")
                process.stdin.flush()
        process.send_signal(signal.SIGKILL)
    meter = Counting()
    found = read(folder, meter)
    assert (meter.total, meter.done) == (6, 3)
    assert found.revision == read(folder).revision


# Files that change meanwhile


class Meddling(Counting):
    def __init__(self, action):
        super().__init__()
        self.action = action

    def add(self, amount):
        super().add(amount)
        action, self.action = self.action, None
        if action:
            action()


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("how", ["grows", "is replaced", "is removed"])
def test_a_file_that_changes_while_files_are_read_is_told(read, files, who, how):
    folder = files(a="1", b="2", c="3")

    def meddle():
        path = folder / who
        if how == "grows":
            path.write_text("more")
        elif how == "is replaced":
            new = folder.with_name("new")
            new.write_text(path.read_text())
            new.replace(path)
        else:
            path.unlink()

    with pytest.raises(DatasetError, match=f"{who} changed while it was read"):
        read(folder, Meddling(meddle))


def test_a_file_that_appears_meanwhile_is_told(read, files):
    folder = files(a="1", b="2")
    with pytest.raises(DatasetError, match="new changed while it was read"):
        read(folder, Meddling(lambda: (folder / "new").write_text("")))


def test_a_file_that_was_read_already_and_changes_then_is_told(read, files):
    folder = files(a="1", b="2")
    late = Meddling(None)
    late.begin = lambda what, total: None
    calls = []

    def add(amount):
        calls.append(amount)
        if len(calls) == 2:
            (folder / "a").write_text("other")

    late.add = add
    with pytest.raises(DatasetError, match="a changed while it was read"):
        read(folder, late)


# Size


def test_a_large_file_is_read_in_constant_memory(read, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with (folder / "large").open("wb") as file:
        file.truncate(256 << 20)  # a hole: it takes no disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_many_files_are_listed_in_the_order_of_their_bytes(files):
    names = ["b", "a/z", "a.b", "a", "é", "Z"]
    folder = files.all({name: "" for name in names if name != "a"})
    assert list(scan(folder)) == ["Z", "a.b", "a/z", "b", "é"]


# Parquet


def test_columns_and_rows_of_parquet_are_read(read, files):
    pa, pq = library("pyarrow"), library("pyarrow.parquet")
    folder = files(README="words")
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), folder / "one.parquet")
    pq.write_table(pa.table({"a": [1.5], "c": [True]}), folder / "two.PQ")
    found = read(folder)
    assert found.row_count == 3
    assert found.columns == {"a": "double | int64", "b": "string", "c": "bool"}
    assert len(found.schema_hash) == 64
    assert read(folder).columns == found.columns  # from the cache, or anew
    assert Content.load(found.dump()).schema_hash == found.schema_hash


def test_without_parquet_there_is_no_schema(read, files):
    found = read(files(a="1"))
    assert (found.columns, found.row_count, found.schema_hash, found.notes) == (
        None,
        None,
        None,
        (),
    )


def test_a_parquet_that_cannot_be_read_is_content_all_the_same_and_told(read, files):
    library("pyarrow")
    found = read(files(**{"a.parquet": "no parquet"}))
    assert found.row_count is None
    assert found.columns is None
    [note] = found.notes
    assert "a.parquet is no Parquet that can be read" in note


def test_without_pyarrow_the_revision_is_the_same_and_the_gap_is_told(
    read, files, monkeypatch, tmp_path
):
    pa, pq = library("pyarrow"), library("pyarrow.parquet")
    folder = files(a="1")
    pq.write_table(pa.table({"a": [1]}), folder / "one.parquet")
    first = read(folder)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = read_content(folder, HashCache(tmp_path / "other", folder))
    assert found.revision == first.revision
    assert "examlops-dagster[parquet]" in found.notes[0]
