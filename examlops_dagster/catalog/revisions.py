"""Revisions of datasets: which content was there when, and which version the asset got for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examlops_dagster.catalog.content import Content
from examlops_dagster.catalog.declarations import insert_declaration
from examlops_dagster.errors import UsageError
from examlops_dagster.ledger.rows import from_epoch
from examlops_dagster.store.engine import Connection, Database

SHOWN = 12
"""Characters of a revision that people see."""

_COLUMNS = (
    "id, dataset, revision, backend, uri, file_count, byte_count, row_count, schema_hash, actor, "
    "recorded_at, version"
)


@dataclass(frozen=True)
class Facts:
    """What is known of a revision's content.

    Attributes
    ----------
    file_count, byte_count, row_count, schema_hash
        None where nobody knows.
    """

    file_count: int | None = None
    byte_count: int | None = None
    row_count: int | None = None
    schema_hash: str | None = None

    @staticmethod
    def of(content: Content) -> Facts:
        """Take them from a content."""
        return Facts(len(content.files), content.byte_count, content.row_count, content.schema_hash)


@dataclass(frozen=True)
class Revision:
    """A content that a dataset had from a moment on; the row is the durable fact.

    Attributes
    ----------
    number
        Orders the revisions of all datasets.
    dataset
        Name of the asset.
    revision
        Identifies the content: its hash, or what who recorded it calls it.
    backend
        Where the content is kept: local, minio, or external.
    uri
        The place.
    facts
        What is known of the content.
    actor
        Who recorded it.
    recorded_at
        Aware UTC datetime.
    version
        That the asset got for it; None until it was advanced.
    """

    number: int
    dataset: str
    revision: str
    backend: str
    uri: str
    facts: Facts
    actor: str
    recorded_at: datetime
    version: int | None

    @property
    def shown(self) -> str:
        """The revision as people see it."""
        return self.revision[:SHOWN]

    def __str__(self) -> str:
        return f"{self.dataset}@{self.shown}"


class Revisions:
    """Reads and writes the revisions of platform.db.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        dataset: str,
        revision: str,
        *,
        backend: str,
        uri: str,
        now: datetime,
        actor: str,
        facts: Facts | None = None,
        content: Content | None = None,
        declare: bool = False,
    ) -> tuple[Revision, bool]:
        """Write down that a dataset has a content now, in one transaction with its declaration.

        It is new unless it is the dataset's latest revision, at the same place, and the asset has
        not become something else since (it went A, B, A: three revisions).

        Parameters
        ----------
        now
            Aware UTC datetime.
        facts
            Of a content that is not given.
        content
            Its files, for later comparisons.
        declare
            Whether nobody has declared the dataset yet.

        Returns
        -------
        tuple
            The revision, and whether it is new.
        """
        known = Facts.of(content) if content is not None else facts or Facts()
        with self._database.write() as connection:
            if declare:
                insert_declaration(connection, dataset, now=now, actor=actor, former="kept")
            latest = _latest(connection, dataset)
            if latest is not None and _is_current(connection, latest, revision, backend, uri):
                return latest, False
            if content is not None:
                connection.execute(
                    "INSERT INTO contents (revision, manifest) VALUES (:revision, :manifest) "
                    "ON CONFLICT (revision) DO UPDATE SET manifest = excluded.manifest",
                    revision=revision,
                    manifest=content.dump(),
                )
            [row] = connection.execute(
                "INSERT INTO revisions (dataset, revision, backend, uri, file_count, byte_count, "  # noqa: S608
                "row_count, schema_hash, actor, recorded_at) VALUES (:dataset, :revision, "
                ":backend, :uri, :file_count, :byte_count, :row_count, :schema_hash, :actor, "
                f":now) RETURNING {_COLUMNS}",
                dataset=dataset,
                revision=revision,
                backend=backend,
                uri=uri,
                file_count=known.file_count,
                byte_count=known.byte_count,
                row_count=known.row_count,
                schema_hash=known.schema_hash,
                actor=actor,
                now=now.timestamp(),
            )
        return _revision(row), True

    def of(self, dataset: str | None = None) -> list[Revision]:
        """Give the revisions of a dataset, or of all, oldest first."""
        where = "" if dataset is None else "WHERE dataset = :dataset "
        named = {} if dataset is None else {"dataset": dataset}
        return self._select(f"{where}ORDER BY id", **named)

    def datasets(self) -> list[str]:
        """Name the datasets that have a revision."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT DISTINCT dataset FROM revisions ORDER BY dataset")
        return [name for (name,) in rows]

    def waiting(self, dataset: str | None = None) -> list[Revision]:
        """Give the revisions for which the asset was not advanced yet, oldest first."""
        where = "" if dataset is None else "AND dataset = :dataset "
        named = {} if dataset is None else {"dataset": dataset}
        return self._select(f"WHERE version IS NULL {where}ORDER BY id", **named)

    def advanced(self, revision: Revision, version: int) -> None:
        """Note the version that the asset got for a revision."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE revisions SET version = :version WHERE id = :id",
                version=version,
                id=revision.number,
            )

    def find(self, text: str) -> Revision:
        """Give the revision that a text names: its beginning, ``DATASET@REV`` or ``DATASET``.

        Of one content that a dataset had several times it is the last.

        Raises
        ------
        UsageError
            If it names none, or several contents or datasets.
        """
        revisions = self.of()
        whole = [r for r in revisions if r.dataset == text]
        if whole:
            return whole[-1]
        found = [r for r in revisions if r.revision.startswith(text)] if text else []
        dataset, at, prefix = text.rpartition("@")
        if at:
            found += [
                r for r in revisions if r.dataset == dataset and r.revision.startswith(prefix)
            ]
        several = sorted({str(r) for r in found})
        if not several:
            known = ", ".join(sorted({r.dataset for r in revisions})) or "none"
            raise UsageError(
                f"no revision is called {text!r} → `exa data list` shows them; "
                f"datasets with revisions: {known}"
            )
        if len({(r.dataset, r.revision) for r in found}) > 1:
            raise UsageError(
                f"{text!r} names {len(several)} revisions: {', '.join(several)} "
                "→ write more of it, or DATASET@REVISION"
            )
        return found[-1]

    def last_two(self, dataset: str) -> tuple[Revision, Revision]:
        """Give the last two contents of a dataset, the older one first.

        Raises
        ------
        UsageError
            If it had only one.
        """
        last = self.find(dataset)
        former = [r for r in self.of(last.dataset) if r.number < last.number]
        other = next((r for r in reversed(former) if r.revision != last.revision), None)
        if other is None:
            raise UsageError(
                f"{last.dataset} had no other content before {last.shown} "
                "→ name two revisions; `exa data list` shows them"
            )
        return other, last

    def content(self, revision: Revision) -> Content:
        """Give the files of a revision.

        Raises
        ------
        UsageError
            If they were not recorded.
        DatasetError
            If what was recorded was changed since.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT manifest FROM contents WHERE revision = :revision",
                revision=revision.revision,
            )
        if not rows:
            raise UsageError(
                f"the files of {revision} were not recorded: it is {revision.backend}, "
                "and `exa data snapshot` did not make it"
            )
        return Content.load(rows[0][0])

    def _select(self, rest: str, **named: str) -> list[Revision]:
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM revisions {rest}", **named)  # noqa: S608
        return [_revision(row) for row in rows]


def _latest(connection: Connection, dataset: str) -> Revision | None:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM revisions WHERE dataset = :dataset ORDER BY id DESC LIMIT 1",  # noqa: S608
        dataset=dataset,
    )
    return _revision(rows[0]) if rows else None


def _is_current(
    connection: Connection, latest: Revision, revision: str, backend: str, uri: str
) -> bool:
    if (latest.revision, latest.backend, latest.uri) != (revision, backend, uri):
        return False
    if latest.version is None:
        return True
    heads = connection.execute(
        "SELECT data_version FROM heads WHERE asset = :dataset AND partition = ''",
        dataset=latest.dataset,
    )
    return heads == [(revision,)]


def _revision(row: Sequence[Any]) -> Revision:
    number, dataset, revision, backend, uri, files, size, rows, schema, actor, at, version = row
    facts = Facts(files, size, rows, schema)
    at = from_epoch(at)
    return Revision(number, dataset, revision, backend, uri, facts, actor, at, version)
