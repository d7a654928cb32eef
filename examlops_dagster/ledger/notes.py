"""What is known of a build, a run or an asset beyond the row in ``builds``; lineage tells it.

Written in the transaction that the row is written in, so that nothing of it is lost with a process
that is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from examlops_dagster.ledger.rows import MOST_NAMES, listed, slots
from examlops_dagster.store.engine import Connection

About: TypeAlias = Literal["asset", "run", "begun", "ended"]
"""What a note is about: an asset, a run, or the begin or the end of an attempt."""


class Note(NamedTuple):
    """Facts about one thing, as JSON; a later note takes the place of a former one.

    Attributes
    ----------
    name
        Of the asset; the run's id; or the attempt's token.
    """

    about: About
    name: str
    facts: str


def note(about: About, name: str, facts: Mapping[str, Any]) -> Note:
    """Write facts down; what JSON does not know becomes text."""
    text = json.dumps(facts, separators=(",", ":"), default=str, sort_keys=True)
    return Note(about, name, text.replace("\\u0000", ""))


def write_notes(connection: Connection, notes: Iterable[Note]) -> None:
    """Write notes inside a write transaction."""
    connection.execute_many(
        "INSERT INTO notes (about, name, facts) VALUES (:about, :name, :facts) "
        "ON CONFLICT (about, name) DO UPDATE SET facts = excluded.facts",
        [each._asdict() for each in notes],
    )


def read_notes(
    connection: Connection, about: About, names: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Give the facts that are noted, by name."""
    wanted = sorted(set(names))
    found: dict[str, dict[str, Any]] = {}
    for first in range(0, len(wanted), MOST_NAMES):
        named = slots(wanted[first : first + MOST_NAMES])
        rows = connection.execute(
            "SELECT name, facts FROM notes WHERE about = :about "  # noqa: S608 - slots are ours
            f"AND name IN ({listed(named)})",
            about=about,
            **named,
        )
        found.update({row[0]: json.loads(row[1]) for row in rows})
    return found
