"""Where the content of revisions is kept: where it lies, or under its hash in an S3 store."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol
from urllib.parse import quote

from examlops_dagster.catalog.content import CHUNK_BYTES, Content, File, Meter, Silent, file_path
from examlops_dagster.errors import DatasetError, UsageError
from examlops_dagster.settings import S3_BUCKET, S3_PREFIX

PART_BYTES = 16 << 20
MOST_PARTS = 10_000
"""Of one object; S3 allows no more (Amazon S3 User Guide, multipart upload limits)."""

AT_A_TIME = 4
"""Objects that are on their way at once; each holds a part in memory."""

TIMEOUT_SECONDS = 60


class Backend(Protocol):
    """Keeps the content of revisions.

    Attributes
    ----------
    name
        As ``--backend`` and the revisions name it.
    """

    name: str

    def check(self) -> None:
        """See that the place can be used, before hours of hashing.

        Raises
        ------
        UsageError, DatasetError
            If it cannot.
        """

    def keep(self, dataset: str, root: Path, content: Content, meter: Meter | None = None) -> str:
        """Keep a content, and give its URI; what is kept already is not sent again."""

    def fetch(
        self, dataset: str, revision: str, folder: Path, meter: Meter | None = None
    ) -> Content:
        """Write the files of a revision into a folder, and see that they have their hashes."""


class LocalBackend:
    """Leaves the files where they are, and keeps their hashes alone."""

    name = "local"

    def check(self) -> None:
        """See Backend."""

    def keep(self, dataset: str, root: Path, content: Content, meter: Meter | None = None) -> str:
        """See Backend."""
        del dataset, content, meter
        return str(root.resolve())

    def fetch(
        self, dataset: str, revision: str, folder: Path, meter: Meter | None = None
    ) -> Content:
        """See Backend; nothing was kept."""
        del folder, meter
        raise UsageError(
            f"{dataset}@{revision[:12]} is a local revision, of which only the hashes are kept "
            "→ exa data snapshot with --backend minio keeps the files"
        )


class MinioBackend:
    """Keeps files as objects under their hashes, once for all datasets, in any S3 store.

    ``PREFIX/objects/ab/<sha256>`` holds bytes, ``PREFIX/datasets/NAME/<revision>.json`` the names.
    The latter is written last, so a revision is there whole or not at all. Address and keys come
    from what every S3 client reads (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ...).

    Parameters
    ----------
    bucket, prefix
        Where in the store; by default ``EXAMLOPS_S3_BUCKET`` and ``EXAMLOPS_S3_PREFIX``.
    environment
        Gives the defaults.
    """

    name = "minio"

    def __init__(
        self,
        bucket: str | None = None,
        prefix: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        found = os.environ if environment is None else environment
        named = (bucket or found.get(S3_BUCKET, "")).removeprefix("s3://").strip("/")
        self._bucket, _, inner = named.partition("/")
        if not self._bucket:
            raise UsageError(f"no bucket is named → --bucket NAME, or {S3_BUCKET}")
        outer = prefix if prefix is not None else found.get(S3_PREFIX, "")
        self._root = "/".join(p for p in (self._bucket, inner, outer.strip("/")) if p)
        self._files: Any = None

    @classmethod
    def at(cls, uri: str) -> MinioBackend:
        """Give the backend that has kept a revision, by its URI."""
        return cls(uri.rpartition("/datasets/")[0], "")

    def check(self) -> None:
        """See Backend."""
        store = self._store()
        # not store.exists(), which takes a store that does not answer for a bucket that is missing
        if not _asked(lambda: _has_bucket(store, self._bucket), f"bucket {self._bucket}"):
            raise UsageError(f"there is no bucket {self._bucket} → make it; a snapshot makes none")

    def keep(self, dataset: str, root: Path, content: Content, meter: Meter | None = None) -> str:
        """See Backend."""
        meter = meter or Silent()
        manifest = self._manifest(dataset, content.revision)
        store = self._store()
        if _asked(lambda: store.exists(manifest), manifest):
            return f"s3://{manifest}"
        once = list({file.digest: file for file in content.files}.values())
        meter.begin("uploading", sum(file.size for file in once))
        _side_by_side(lambda file: self._send(file_path(root, file.name), file, meter), once)
        _asked(lambda: store.pipe_file(manifest, content.dump().encode("ascii")), manifest)
        return f"s3://{manifest}"

    def fetch(
        self, dataset: str, revision: str, folder: Path, meter: Meter | None = None
    ) -> Content:
        """See Backend."""
        meter = meter or Silent()
        manifest = self._manifest(dataset, revision)
        store = self._store()
        text = _asked(lambda: store.cat_file(manifest), f"s3://{manifest}")
        content = Content.load(text.decode("ascii"))
        if content.revision != revision:
            raise DatasetError(f"s3://{manifest} is the manifest of {content.revision}")
        places = {file.name: _inside(folder, file.name) for file in content.files}
        _see_free(folder, places)
        meter.begin("fetching", content.byte_count)
        _side_by_side(lambda file: self._receive(file, places[file.name], meter), content.files)
        return content

    def _send(self, path: Path, file: File, meter: Meter) -> None:
        store, key = self._store(), self._object(file)
        if _asked(lambda: _size(store, key), key) == file.size:
            meter.add(file.size)
            return
        block = max(PART_BYTES, -(-file.size // (MOST_PARTS - 1)))
        target: Any = None
        try:
            # nobody may find the object before its bytes have proved to be those of its name
            target = store.open(key, "wb", block_size=block, autocommit=False)
            with path.open("rb") as source, target:
                copied = _copy(source, target.write, meter)
            if copied != file.digest:
                target.discard()
                raise DatasetError(
                    f"{path} changed between hashing and upload → take the snapshot when nothing "
                    "writes there; what was uploaded so far is kept"
                )
            target.commit()
        except OSError as error:
            if target is not None:
                _give_up(target)
            raise DatasetError(f"{path} could not be put to s3://{key}: {error}") from error

    def _receive(self, file: File, place: Path, meter: Meter) -> None:
        if place.exists():
            with place.open("rb") as source:
                if _copy(source, lambda _: None, Silent()) == file.digest:
                    meter.add(file.size)
                    return
            raise DatasetError(f"{place} is there already, with another content")
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{secrets.token_hex(8)}.part")
        key = self._object(file)
        try:
            with (
                self._store().open(key, "rb", cache_type="readahead") as source,
                part.open("xb") as target,
            ):
                copied = _copy(source, target.write, meter)
                target.flush()
                os.fsync(target.fileno())
            if copied != file.digest:
                raise DatasetError(f"s3://{key} does not hold the bytes that its name says")
            part.replace(place)
        except OSError as error:
            raise DatasetError(f"{place} could not be fetched from s3://{key}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def _object(self, file: File) -> str:
        return f"{self._root}/objects/{file.digest[:2]}/{file.digest}"

    def _manifest(self, dataset: str, revision: str) -> str:
        return f"{self._root}/datasets/{quote(dataset, safe='')}/{revision}.json"

    def _store(self) -> Any:
        if self._files is None:
            try:
                import s3fs  # noqa: PLC0415 - half a second that only S3 should pay
            except ImportError as error:
                raise UsageError(
                    f"--backend minio needs s3fs ({error}) → pip install 'examlops-dagster[s3]'"
                ) from error
            self._files = s3fs.S3FileSystem(
                use_listings_cache=False,
                skip_instance_cache=True,
                config_kwargs={"connect_timeout": TIMEOUT_SECONDS, "read_timeout": TIMEOUT_SECONDS},
            )
        return self._files


BACKENDS = ("local", "minio")


def backend_named(
    name: str,
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Backend:
    """Give a backend by its name.

    Raises
    ------
    UsageError
        If there is none of that name, or it lacks a setting.
    """
    if name == "local":
        return LocalBackend()
    if name == "minio":
        return MinioBackend(bucket, prefix, environment)
    raise UsageError(f"--backend {name!r} is none of {', '.join(BACKENDS)}")


def _asked(question: Callable[[], Any], what: str) -> Any:
    """Ask the store; what its libraries raise is told in one line."""
    try:
        return question()
    except FileNotFoundError as error:
        raise DatasetError(f"{what} is not in the store") from error
    except Exception as error:  # botocore's own errors have no common root but Exception
        raise DatasetError(f"the S3 store did not answer about {what}: {error}") from error


def _has_bucket(store: Any, bucket: str) -> bool:
    try:
        store.call_s3("head_bucket", Bucket=bucket)
    except FileNotFoundError:
        return False
    except PermissionError:  # these keys may write objects without seeing the bucket
        return True
    return True


def _size(store: Any, key: str) -> int | None:
    try:
        return int(store.info(key)["size"])
    except FileNotFoundError:
        return None


def _copy(source: IO[bytes] | Any, write: Callable[[bytes], Any], meter: Meter) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        write(chunk)
        meter.add(len(chunk))
    return digest.hexdigest()


def _give_up(target: Any) -> None:
    try:
        target.discard()
    except Exception:  # noqa: BLE001 - the first error is the one to tell
        return


def _side_by_side(work: Callable[[File], None], files: Iterable[File]) -> None:
    """Do something for every file, a few at a time; the first error ends it."""
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for file in files:
            if len(running) >= AT_A_TIME:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            running.add(pool.submit(work, file))
        for future in running:
            future.result()


def _inside(folder: Path, name: str) -> Path:
    """Give the place of a file; a manifest that somebody forged may not lead out of the folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise DatasetError(f"the manifest names {name!r}, which is outside of the dataset's folder")
    return folder.joinpath(*parts)


def _see_free(folder: Path, places: Mapping[str, Path]) -> None:
    """See that a folder holds nothing but what a former, interrupted fetch has written there."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    expected = set(places.values())
    for path in folder.rglob("*"):
        left = path.suffix == ".part" and path.name.startswith(".")
        if path.is_symlink() or (path.is_file() and path not in expected and not left):
            raise UsageError(f"{folder} holds {path.name} already → name an empty folder")
