"""platform.db for those who only look: what they write is never kept.

To know what exists, what others wrote to Dagster's storage has to be taken over into platform.db.
Whoever builds keeps that. A page only wants to see it: it takes the same steps in one transaction
over the one database, reads the outcome there, and rolls it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from examlops_dagster.store.engine import Connection, Database


class Untouched(Database):
    """As `Database`, but what is written inside `looking` is seen there alone.

    Parameters
    ----------
    location
        Path of the SQLite file, or ``postgresql://...``.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._look = threading.local()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Let this thread write, and take it all back at the end."""
        look = self._look
        look.is_open, look.transaction, look.connection = True, None, None
        try:
            yield
        finally:
            transaction: AbstractContextManager[Connection] | None = look.transaction
            look.is_open, look.transaction, look.connection = False, None, None
            if transaction is not None:
                with suppress(_UndoError):
                    transaction.__exit__(_UndoError, _UndoError(), None)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See `Database`; inside `looking`, with what was written there."""
        written: Connection | None = getattr(self._look, "connection", None)
        if written is not None:
            yield written
            return
        with super().read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Write, until the end of `looking`.

        Raises
        ------
        RuntimeError
            Outside of `looking`.
        """
        look = self._look
        if not getattr(look, "is_open", False):
            raise RuntimeError("a page must not write to platform.db")
        if look.connection is None:
            transaction = super().write()
            look.connection = transaction.__enter__()
            look.transaction = transaction
        yield look.connection


class _UndoError(Exception):
    """What makes a transaction roll back that nothing is wrong with."""
