import os

import pytest
from object_store import empty_store, s3_environment, s3_server


@pytest.fixture
def files(tmp_path):
    """Give a function that writes files, by name, into a dataset's folder."""
    folder = tmp_path / "data"

    def write(**by_name):
        return write_all(by_name)

    def write_all(by_name):
        for name, content in by_name.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            os.utime(path, (1_700_000_000, 1_700_000_000))  # long ago, so that hashes are kept
        return folder

    write.all = write_all
    write.folder = folder
    return write


@pytest.fixture(scope="session")
def s3_address():
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3_address, monkeypatch):
    """Give a client for an empty bucket called data, with the settings in the environment."""
    for name, value in s3_environment(s3_address).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EXAMLOPS_S3_BUCKET", "data")
    empty_store(s3_address)
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    yield client
    client.close()
