"""Content under its hash in a real S3 over HTTP, and back."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examlops_dagster.catalog.backends import LocalBackend, MinioBackend, backend_named
from examlops_dagster.catalog.content import read_content
from examlops_dagster.catalog.hash_cache import HashCache
from examlops_dagster.errors import DatasetError, UsageError

ROOT = Path(__file__).parents[2]


class Counting:
    def __init__(self):
        self.done = 0

    def begin(self, what, total):
        self.done = 0

    def add(self, amount):
        self.done += amount


@pytest.fixture
def read(tmp_path):
    return lambda root: read_content(root, HashCache(tmp_path / "hashes", root))


@pytest.fixture
def minio(bucket):
    backend = MinioBackend()
    backend.check()
    return backend


def keys(bucket):
    return [o["Key"] for o in bucket.list_objects_v2(Bucket="data").get("Contents", [])]


def fetched(folder):
    return {
        os.fsencode(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_content_comes_back_as_it_went(minio, bucket, files, read, tmp_path):
    folder = files.all({"a": "1", "x/b c.txt": "2", "empty": "", "same": "1"})
    (folder / os.fsdecode(b"odd\xff\n")).write_bytes(b"odd")
    content = read(folder)
    uri = minio.keep("PM 100/x", folder, content)
    assert uri == f"s3://data/datasets/PM%20100%2Fx/{content.revision}.json"
    again = MinioBackend.at(uri).fetch("PM 100/x", content.revision, tmp_path / "out")
    assert again.files == content.files
    assert fetched(tmp_path / "out") == fetched(folder)
    assert len(keys(bucket)) == 5  # four contents, for two files are equal, and the names


def test_a_prefix_keeps_projects_apart(bucket, files, read):
    folder = files(a="1")
    uri = MinioBackend("s3://data/team/", "one").keep("d", folder, read(folder))
    assert uri.startswith("s3://data/team/one/datasets/d/")
    assert all(key.startswith("team/one/") for key in keys(bucket))


def test_what_is_there_is_not_sent_again(minio, files, read):
    folder = files(a="1" * 10)
    minio.keep("d", folder, read(folder))
    files(b="2")
    (folder / "a").chmod(0)  # so that it could not be read, even if someone tried
    content = read_content_known(folder)
    (folder / "a").unlink()
    minio.keep("d", folder, content)


def read_content_known(folder):
    """Give the content by what the test knows."""
    import hashlib

    from examlops_dagster.catalog.content import Content, File

    def file(name, text):
        return File(name, len(text), hashlib.sha256(text).hexdigest())

    return Content((file("a", b"1" * 10), file("b", b"2")))


def test_the_manifest_comes_last(minio, bucket, files, read):
    folder = files(a="1", b="2")
    content = read(folder)
    (folder / "b").write_text("3")
    with pytest.raises(DatasetError, match="b changed between hashing and upload"):
        minio.keep("d", folder, content)
    assert [key for key in keys(bucket) if key.startswith("datasets/")] == []
    wrong = [f.digest for f in content.files if f.name == "b"]
    assert not [key for key in keys(bucket) if key.endswith(wrong[0])]


def test_a_large_file_goes_in_parts_and_a_changed_one_is_given_up(
    minio, bucket, files, read, tmp_path
):
    folder = files.all({"large": os.urandom(20 << 20)})
    content = read(folder)
    with (folder / "large").open("r+b") as file:
        file.seek(19 << 20)
        file.write(b"changed")
    with pytest.raises(DatasetError, match="changed between"):
        minio.keep("d", folder, content)
    assert keys(bucket) == []
    assert bucket.list_multipart_uploads(Bucket="data").get("Uploads", []) == []
    files.all({"large": os.urandom(20 << 20)})
    content = read(folder)
    minio.keep("d", folder, content)
    minio.fetch("d", content.revision, tmp_path / "out")
    assert fetched(tmp_path / "out") == fetched(folder)


def test_an_object_that_was_cut_off_is_sent_again(minio, bucket, files, read, tmp_path):
    folder = files(a="whole")
    content = read(folder)
    digest = content.files[0].digest
    bucket.put_object(Bucket="data", Key=f"objects/{digest[:2]}/{digest}", Body=b"wh")
    minio.keep("d", folder, content)
    minio.fetch("d", content.revision, tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "whole"


PROGRAM = """\
import os, signal, sys
from pathlib import Path
from examlops_dagster.catalog import backends
from examlops_dagster.catalog.content import read_content
from examlops_dagster.catalog.hash_cache import HashCache

backends.AT_A_TIME = 1

class Killing:
    def begin(self, what, total):
        self.left = int(sys.argv[3]) if what == "uploading" else 10**9
    def add(self, amount):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

root, cache = Path(sys.argv[1]), Path(sys.argv[2])
backend = backends.MinioBackend()
backend.keep("d", root, read_content(root, HashCache(cache, root)), Killing())
"""


def test_an_upload_that_was_killed_goes_on_and_there_was_no_half_revision(
    minio, bucket, files, read, tmp_path
):
    folder = files(**{f"f{n}": f"content {n}" for n in range(6)})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, tmp_path / "hashes", "4"],
        cwd=ROOT, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    content = read(folder)
    left = keys(bucket)
    assert len(left) == 3
    with pytest.raises(DatasetError, match="is not in the store"):
        minio.fetch("d", content.revision, tmp_path / "out")
    before = {
        o["Key"]: o["LastModified"] for o in bucket.list_objects_v2(Bucket="data")["Contents"]
    }
    minio.keep("d", folder, content)
    after = {o["Key"]: o["LastModified"] for o in bucket.list_objects_v2(Bucket="data")["Contents"]}
    assert len(after) == 7
    assert {key: after[key] for key in before} == before


# Checkout


@pytest.fixture
def kept(minio, files, read):
    folder = files.all({"a": "1", "x/b": "2"})
    content = read(folder)
    minio.keep("d", folder, content)
    return content


def test_a_checkout_that_was_interrupted_goes_on(minio, kept, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_text("1")
    (out / ".0123.part").write_text("left by a kill")
    before = (out / "a").stat()
    minio.fetch("d", kept.revision, out)
    assert (out / "a").stat().st_ino == before.st_ino
    assert (out / "x" / "b").read_text() == "2"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [("other", "1", "holds other already"), ("a", "9", "is there already, with another content")],
)
def test_a_checkout_writes_over_nothing(minio, kept, tmp_path, name, text, told):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text(text)
    with pytest.raises((UsageError, DatasetError), match=told):
        minio.fetch("d", kept.revision, out)
    assert (out / name).read_text() == text


def test_an_object_that_was_spoilt_is_found(minio, bucket, kept, tmp_path):
    digest = kept.files[0].digest
    bucket.put_object(Bucket="data", Key=f"objects/{digest[:2]}/{digest}", Body=b"2")
    with pytest.raises(DatasetError, match="does not hold the bytes that its name says"):
        minio.fetch("d", kept.revision, tmp_path / "out")
    assert not (tmp_path / "out" / "a").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "x/../../outside"])
def test_a_forged_manifest_leads_nowhere_else(minio, bucket, kept, tmp_path, name):
    from examlops_dagster.catalog.content import Content, File

    forged = Content((File(name, 1, kept.files[0].digest),))
    bucket.put_object(
        Bucket="data", Key=f"datasets/d/{forged.revision}.json", Body=forged.dump().encode()
    )
    with pytest.raises(DatasetError, match="outside of the dataset's folder"):
        minio.fetch("d", forged.revision, tmp_path / "out")


def test_a_manifest_of_another_revision_is_refused(minio, bucket, kept, tmp_path):
    text = kept.dump()
    other = "0" * 64
    bucket.put_object(Bucket="data", Key=f"datasets/d/{other}.json", Body=text.encode())
    with pytest.raises(DatasetError, match="is the manifest of"):
        minio.fetch("d", other, tmp_path / "out")
    assert json.loads(text)["revision"] == kept.revision


# What cannot be used


def test_a_bucket_that_does_not_exist_is_told_before_any_hashing(bucket):
    with pytest.raises(UsageError, match="there is no bucket nosuch"):
        MinioBackend("nosuch").check()
    assert [b["Name"] for b in bucket.list_buckets()["Buckets"]] == ["data"]


def test_a_store_that_does_not_answer_is_told(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(DatasetError, match="the S3 store did not answer about bucket data"):
        MinioBackend().check()


def test_no_bucket_is_told_with_the_ways_to_name_one():
    with pytest.raises(UsageError, match="--bucket NAME, or EXAMLOPS_S3_BUCKET"):
        backend_named("minio", environment={})


def test_an_unknown_backend_is_told_with_the_known_ones():
    with pytest.raises(UsageError, match="'ftp' is none of local, minio"):
        backend_named("ftp")


def test_s3_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match=r"examlops-dagster\[s3\]"):
        MinioBackend("data").check()


def test_a_local_revision_cannot_be_fetched(tmp_path):
    with pytest.raises(UsageError, match="only the hashes are kept"):
        LocalBackend().fetch("d", "0" * 64, tmp_path)
