"""Has anybody else written to Dagster's storage since we last read it? Without dagster.

Importing dagster and opening its instance costs about a second; five plain queries answer this
in a millisecond. Where the storage is not one that is known here, the answer is "perhaps", and
the caller takes the slow, sure way.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from examlops_dagster.store.engine import Connection, Database

OPEN_RUNS = ("QUEUED", "NOT_STARTED", "MANAGED", "STARTING", "STARTED", "CANCELING")
OPEN_BACKFILLS = ("REQUESTED", "CANCELING", "FAILING")

_NAME = "dagster"
_AMPLE = "-1 hour"
"""By how much events can be stored in another order than they were made in."""

_STORAGE_KEYS = frozenset(
    {"storage", "run_storage", "event_log_storage", "schedule_storage", "local_artifact_storage"}
)


@dataclass(frozen=True)
class Watermark:
    """How far Dagster's storage had been written.

    Attributes
    ----------
    event_id
        Highest id of an event about assets.
    events
        How many there are: a wiped asset and a deleted run take some away.
    wiped_at
        When an asset was last wiped, as the storage writes it; empty if none was.
    dead_runs
        Runs that are open for ever, since their process was killed.
    last_at
        When the event of the highest id was made, as the storage writes it: SQLite gives the id
        of a deleted event to the next one.
    """

    event_id: int = 0
    events: int = 0
    wiped_at: str = ""
    dead_runs: tuple[str, ...] = ()
    last_at: str = ""


def last_read(database: Database) -> Watermark:
    """Give the watermark of the last sync."""
    with database.read() as connection:
        return stored(connection)


def stored(connection: Connection) -> Watermark:
    """Give the watermark of the last sync, inside a transaction."""
    rows = connection.execute("SELECT mark FROM watermarks WHERE name = :name", name=_NAME)
    if not rows:
        return Watermark()
    mark = json.loads(rows[0][0])
    return Watermark(**{**mark, "dead_runs": tuple(mark["dead_runs"])})


def store(connection: Connection, mark: Watermark) -> None:
    """Keep the watermark of a sync, inside its transaction."""
    connection.execute(
        "INSERT INTO watermarks (name, mark) VALUES (:name, :mark) "
        "ON CONFLICT (name) DO UPDATE SET mark = excluded.mark",
        name=_NAME,
        mark=json.dumps(asdict(mark)),
    )


def nothing_new(home: Path, database: Database) -> bool:
    """Tell whether nobody wrote since the last sync, and nothing is in flight.

    False means "perhaps": the storage is not the default one, or cannot be read.
    """
    if not _is_default_storage(home):
        return False
    former = last_read(database)
    try:
        current = read(home)
        return (
            current is not None
            and replace(current, dead_runs=former.dead_runs) == former
            and not _open_work(home, former.dead_runs)
        )
    except sqlite3.Error:
        return False


def read(home: Path) -> Watermark | None:
    """Read how far Dagster's default storage has been written; None where there is another."""
    if not _is_default_storage(home):
        return None
    with _reading(home / "history" / "runs" / "index.db") as index:
        if index is None:
            return Watermark()
        last = index.execute("SELECT id, timestamp FROM event_logs ORDER BY id DESC LIMIT 1")
        event_id, last_at = last.fetchone() or (0, "")
        [(events,)] = index.execute("SELECT count(*) FROM event_logs")
        [(wiped_at,)] = index.execute("SELECT max(wipe_timestamp) FROM asset_keys")
    return Watermark(event_id, events, str(wiped_at or ""), last_at=str(last_at))


def read_until(home: Path, former: Watermark) -> int:
    """Give the id behind which every event lies that was stored after a watermark was read.

    That is its own event; where this was deleted, new events may have taken its id and those
    before it, back to the last event that is left. Of the events before it some are read twice.
    """
    with _reading(home / "history" / "runs" / "index.db") as index:
        if index is None:
            return 0
        left = index.execute(
            "SELECT 1 FROM event_logs WHERE id = ? AND timestamp = ?",
            (former.event_id, former.last_at),
        )
        if left.fetchone():
            return former.event_id
        [(event_id,)] = index.execute(
            "SELECT coalesce(max(id), 0) FROM event_logs WHERE timestamp < datetime(?, ?)",
            (former.last_at, _AMPLE),
        )
    return int(event_id)


def kinds_after(home: Path, event_id: int) -> frozenset[str] | None:
    """Give the types of the events behind one, as Dagster names them; None where unknown."""
    if not _is_default_storage(home):
        return None
    with _reading(home / "history" / "runs" / "index.db") as index:
        if index is None:
            return None
        kinds = index.execute(
            "SELECT DISTINCT dagster_event_type FROM event_logs WHERE id > ?", (event_id,)
        )
        return frozenset(str(kind) for (kind,) in kinds)


@contextmanager
def held_open(home: Path, run_id: str) -> Iterator[None]:
    """Keep a connection to each file of Dagster's default event storage while a run executes.

    Dagster opens a connection for each event and closes it again. The last one that SQLite sees
    closed copies the whole write-ahead log into the database and syncs both, a third of the cost
    of a step; with one more that stays open it does not.
    """
    with ExitStack() as stack:
        if _is_default_storage(home):
            for name in ("index", run_id):
                path = home / "history" / "runs" / f"{name}.db"
                if path.exists():
                    with suppress(sqlite3.Error):
                        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)
                        stack.enter_context(closing(connection))
                        connection.execute("SELECT 1 FROM event_logs LIMIT 1").fetchall()
        yield


def _open_work(home: Path, dead_runs: tuple[str, ...]) -> bool:
    with _reading(home / "history" / "runs.db") as runs:
        if runs is None:
            return False
        open_runs = {
            run_id
            for (run_id,) in runs.execute(
                f"SELECT run_id FROM runs WHERE status IN ({_slots(OPEN_RUNS)})",  # noqa: S608
                OPEN_RUNS,
            )
        }
        backfills = runs.execute(
            f"SELECT 1 FROM bulk_actions WHERE status IN ({_slots(OPEN_BACKFILLS)}) LIMIT 1",  # noqa: S608
            OPEN_BACKFILLS,
        ).fetchall()
    return bool(open_runs - set(dead_runs)) or bool(backfills)


def _slots(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    if not path.exists():
        yield None
        return
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)
    with closing(connection):
        yield connection


def _is_default_storage(home: Path) -> bool:
    path = home / "dagster.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return True
    stated = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if not any(key in line for line in stated for key in _STORAGE_KEYS):
        return True
    import yaml  # noqa: PLC0415 - only where the file may say something about storage

    try:
        settings: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return not (isinstance(settings, dict) and _STORAGE_KEYS & settings.keys())
