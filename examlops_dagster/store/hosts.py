"""SQLite on a network filesystem: told for one host, refused when a second one is seen.

Its locks do not hold between hosts there, and the database is corrupted sooner or later
(https://www.sqlite.org/faq.html#q5; dagster issue 2440).
"""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path

from examlops_dagster.errors import StoreError
from examlops_dagster.store.engine import Database

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "panfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "pvfs2", "orangefs"}
)  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")

logger = logging.getLogger(__name__)


def check_host(database: Database, mounts: Path = MOUNTS, host: str | None = None) -> None:
    """Note that this host writes to a database on a network filesystem.

    Raises
    ------
    StoreError
        If another host has written to it.
    """
    if database.is_postgres:
        return
    kind = filesystem_of(Path(database.location), mounts)
    if kind not in NETWORK_FILESYSTEMS:
        return
    own = host or socket.gethostname()
    with database.write() as connection:
        others = connection.execute("SELECT host FROM hosts WHERE host <> :own", own=own)
        connection.execute(
            "INSERT INTO hosts (host, seen_at) VALUES (:own, :now) "
            "ON CONFLICT (host) DO UPDATE SET seen_at = excluded.seen_at",
            own=own,
            now=time.time(),
        )
    remedy = "put it on a local disk (PLATFORM_DB), or on Postgres (EXAMLOPS_DB_URL)"
    if others:
        raise StoreError(
            f"{database.location} is SQLite on {kind}, and host {others[0][0]} writes to it too; "
            f"that corrupts it → {remedy}"
        )
    logger.warning(
        "%s is SQLite on %s: only one host may use it → %s", database.location, kind, remedy
    )


def filesystem_of(path: Path, mounts: Path = MOUNTS) -> str:
    """Give the type of the filesystem that holds a path; empty where nothing tells."""
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    path = path.resolve()
    best, found = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or not kinds:  # noqa: PLR2004 - the mount point is the fifth field
            continue
        point = Path(fields[4].replace("\\040", " "))
        if (path == point or point in path.parents) and len(point.parts) >= best:
            best, found = len(point.parts), kinds[0]
    return found
