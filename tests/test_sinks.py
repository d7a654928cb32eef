"""Values at the paths of sinks: formats, places, and that a file is there whole or not at all."""

import csv
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys

import fsspec
import pytest
from needs import library
from object_store import empty_store, s3_environment, s3_server

from examlops_dagster import asset, sink
from examlops_dagster.core.declarations import Sink
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.core.partitions import partitions
from examlops_dagster.core.records import Node
from examlops_dagster.core.sinks import format_of
from examlops_dagster.delivery import NO_VALUE, deliver
from examlops_dagster.errors import DefinitionError
from examlops_dagster.ledger.sinks import SinkWrites
from examlops_dagster.sinks import render, write_sink

ROWS = [{"name": "a,b", "value": 1}, {"name": 'x "y"', "more": None}]


def write(url, value, folder, partition="", serializer=None):
    return write_sink(Sink(url, serializer), value, folder, partition)


# Formats


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("a.json", "json"),
        ("a.JSON", "json"),
        ("s3://bucket/a.parquet", "parquet"),
        ("a.csv", "csv"),
        ("a.txt", "txt"),
        ("a.pkl", "pickle"),
        ("a.pickle", "pickle"),
        ("{key}.json", "json"),
    ],
)
def test_the_format_goes_by_the_suffix(url, form):
    assert format_of(Sink(url)) == form


def test_a_stated_format_wins_over_the_suffix(tmp_path):
    assert format_of(Sink("a.dat", "json")) == "json"
    write("a.dat", {"rows": 42}, tmp_path, serializer="json")
    assert json.loads((tmp_path / "a.dat").read_text()) == {"rows": 42}


@pytest.mark.parametrize("sink_", [Sink("a"), Sink("a.xlsx"), Sink("a.json", "yaml")])
def test_an_unknown_format_is_refused_and_the_known_ones_are_named(sink_):
    with pytest.raises(ValueError, match=r"\.parquet"):
        format_of(sink_)


def test_json_is_readable_and_keeps_what_is_not_ascii(tmp_path):
    write("a.json", {"city": "Jülich", "rows": [1, 2]}, tmp_path)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "Jülich" in text
    assert json.loads(text) == {"city": "Jülich", "rows": [1, 2]}


def test_json_takes_numbers_dates_and_frames():
    np, pd = library("numpy"), library("pandas")
    value = {"n": np.int64(3), "day": pd.Timestamp("2026-01-05"), "a": np.array([1.5])}
    assert json.loads(render(value, "json")) == {"n": 3, "day": "2026-01-05T00:00:00", "a": [1.5]}


def test_what_has_no_json_form_is_told_by_its_type():
    with pytest.raises(TypeError, match="a object has no JSON form"):
        render({"x": object()}, "json")


def test_csv_of_a_list_of_dicts_has_all_columns_and_quotes(tmp_path):
    write("a.csv", ROWS, tmp_path)
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"name": "a,b", "value": "1", "more": ""},
            {"name": 'x "y"', "value": "", "more": ""},
        ]


def test_csv_and_parquet_of_a_frame(tmp_path):
    pd = library("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    for name in ("f.csv", "f.parquet"):
        write(name, frame, tmp_path)
    assert pd.read_csv(tmp_path / "f.csv").equals(frame)
    assert pd.read_parquet(tmp_path / "f.parquet").to_dict("list") == frame.to_dict("list")


@pytest.mark.parametrize(("value", "form"), [({"a": 1}, "csv"), ([1, 2], "csv"), ([1], "parquet")])
def test_what_is_no_table_is_refused_as_one(value, form):
    with pytest.raises(TypeError, match="table"):
        render(value, form)


def test_text_and_pickle(tmp_path):
    write("a.txt", "Grüße", tmp_path)
    write("a.pkl", {1: (2, 3)}, tmp_path)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "Grüße"
    assert pickle.loads((tmp_path / "a.pkl").read_bytes()) == {1: (2, 3)}


# Places


def test_a_relative_path_starts_at_the_home_folder_and_folders_are_made(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    written = write("./reports/day/a.json", 1, tmp_path)
    assert written == str(tmp_path / "reports" / "day" / "a.json")
    assert (tmp_path / "reports/day/a.json").read_text() == "1"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_an_absolute_path_stays_where_it_is(tmp_path, scheme):
    path = tmp_path / "out" / "a.json"
    assert write(f"{scheme}{path}", 1, tmp_path / "home") == str(path)
    assert path.read_text() == "1"


def test_awkward_paths(awkward_path):
    write("a b;c.json", 1, awkward_path)
    assert (awkward_path / "a b;c.json").read_text() == "1"


def test_the_key_of_the_partition_takes_its_place_in_the_path(tmp_path):
    for key in ("2026-01-05", "2026-01-06"):
        write("days/{key}/a.json", key, tmp_path, key)
    assert json.loads((tmp_path / "days/2026-01-06/a.json").read_text()) == "2026-01-06"


@pytest.mark.parametrize("key", ["../../evil", "a/b", "2026-01-05|x", "..", "a:b c"])
def test_a_key_stays_one_part_of_the_path(tmp_path, key):
    folder = tmp_path / "home"
    written = write("days/{key}.json", 1, folder, key)
    [file] = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert file.parent == folder / "days"
    assert written == str(file)


def test_a_sink_of_a_partitioned_asset_needs_the_key_in_its_path():
    @asset(partitions={"k": partitions("ab")})
    @sink("a.json")
    @sink("a.nosuch")
    @sink("{key}.json")
    def parts(k): ...

    with pytest.raises(DefinitionError) as caught:
        build_graph({"parts": declaration_of(parts)})
    text = str(caught.value)
    assert "'a.json' would be written by every partition; name it with {key}" in text
    assert "'a.nosuch' has no known format" in text
    assert "'{key}.json'" not in text


def test_a_memory_file_system(tmp_path):
    assert write("memory://out/a.json", {"rows": 42}, tmp_path) == "memory://out/a.json"
    with fsspec.open("memory://out/a.json") as file:
        assert json.load(file) == {"rows": 42}


def test_an_unknown_protocol_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ValueError, match="nosuch"):
        write("nosuch://out/a.json", 1, tmp_path)


# Whole or not at all

KILLED = """\
import os, signal, sys
from pathlib import Path

import examlops_dagster.values as values
from examlops_dagster.core.declarations import Sink
from examlops_dagster.sinks import write_sink


def killed(*anything):
    os.kill(os.getpid(), signal.SIGKILL)


os.replace = killed
Path.replace = killed
write_sink(Sink("a.json"), {"new": "x" * 100_000}, Path(sys.argv[1]), "")
"""


def test_a_process_that_is_killed_before_the_rename_leaves_the_old_file(tmp_path):
    write("a.json", "old", tmp_path)
    argv = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(argv, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a.json").read_text() == '"old"'
    assert len(list(tmp_path.iterdir())) == 2  # the half written one beside it has another name


def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path):
    write("a.json", "old", tmp_path)
    with pytest.raises(TypeError):
        write("a.json", object(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == '"old"'


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        write("file/a.json", 1, tmp_path)


def test_others_may_read_the_file_as_the_umask_lets_them(tmp_path):
    before = os.umask(0o022)
    try:
        write("a.json", 1, tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


# A real S3 over HTTP


@pytest.fixture(scope="module")
def s3():
    """Give the address of moto's server, in a process of its own."""
    library("s3fs")
    library("moto")
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3, monkeypatch):
    """Give an empty bucket, with the settings that the environment gives to s3fs."""
    for name, value in s3_environment(s3).items():
        monkeypatch.setenv(name, value)
    empty_store(s3)
    import boto3
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="reports")
    yield client
    client.close()


def fetched(bucket, name):
    return bucket.get_object(Bucket="reports", Key=name)["Body"].read()


def test_a_sink_in_s3_is_an_object_there(bucket, tmp_path):
    assert write("s3://reports/2026/a.json", {"rows": 42}, tmp_path) == "s3://reports/2026/a.json"
    assert json.loads(fetched(bucket, "2026/a.json")) == {"rows": 42}
    assert list(tmp_path.iterdir()) == []


def test_a_sink_in_s3_takes_the_place_of_the_former_object(bucket, tmp_path):
    for value in ("old", "new"):
        write("s3://reports/a.txt", value, tmp_path)
    assert fetched(bucket, "a.txt") == b"new"


def test_an_empty_value_makes_an_empty_object(bucket, tmp_path):
    write("s3://reports/a.txt", "", tmp_path)
    assert fetched(bucket, "a.txt") == b""


def test_a_bucket_that_does_not_exist_is_a_failure_and_is_not_made(bucket, tmp_path):
    with pytest.raises(OSError):
        write("s3://nosuch/a.json", 1, tmp_path)
    assert [each["Name"] for each in bucket.list_buckets()["Buckets"]] == ["reports"]


def test_s3_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, "s3", raising=False)
    with pytest.raises(ImportError, match=r"examlops-dagster\[s3\]"):
        write("s3://reports/a.json", 1, tmp_path)


# All sinks of an asset


@sink("first.json")
@sink("second.parquet")
@sink("third.txt")
def report(): ...


@pytest.fixture
def writes(database):
    return SinkWrites(database)


def delivered(tmp_path, writes, value, data_version="d1"):
    declaration = declaration_of(asset(name="report")(report))
    return deliver(declaration, Node("report"), data_version, value, folder=tmp_path, writes=writes)


def test_a_sink_that_fails_does_not_stop_the_next_one(tmp_path, writes):
    ended = delivered(tmp_path, writes, {"rows": 42})
    assert [bool(write.error) for write in ended] == [False, True, False]
    assert "is not a table" in ended[1].error
    assert (tmp_path / "third.txt").exists()


def test_how_each_sink_ended_is_remembered_until_it_is_written_again(tmp_path, writes):
    delivered(tmp_path, writes, {"rows": 42})
    assert [w.number for w in writes.failed()] == [2]
    pd = library("pandas")
    delivered(tmp_path, writes, pd.DataFrame({"rows": [42]}), "d2")
    assert writes.failed() == []
    assert {w.data_version for w in writes.of(Node("report"))} == {"d2"}


def test_a_function_that_returned_nothing_has_nothing_to_write(tmp_path, writes):
    assert {write.error for write in delivered(tmp_path, writes, None)} == {
        f"ValueError: {NO_VALUE}"
    }
    assert list(tmp_path.glob("*.json")) == []
