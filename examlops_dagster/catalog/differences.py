"""What changed between two contents of a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from examlops_dagster.catalog.content import Content


@dataclass(frozen=True)
class Difference:
    """From an old content to a new one.

    Attributes
    ----------
    added, removed
        Sizes in bytes by name.
    changed
        Old and new size in bytes by name.
    columns_added, columns_removed
        Types by name.
    columns_changed
        Old and new type by name.
    rows
        Old and new row count; None where one is not known.
    """

    added: Mapping[str, int]
    removed: Mapping[str, int]
    changed: Mapping[str, tuple[int, int]]
    columns_added: Mapping[str, str]
    columns_removed: Mapping[str, str]
    columns_changed: Mapping[str, tuple[str, str]]
    rows: tuple[int | None, int | None]

    @property
    def is_empty(self) -> bool:
        """Whether no file differs."""
        return not (self.added or self.removed or self.changed)


def difference(old: Content, new: Content) -> Difference:
    """Compare two contents, file by file and column by column."""
    before, after = ({f.name: f for f in content.files} for content in (old, new))
    columns_before, columns_after = old.columns, new.columns
    if columns_before is None or columns_after is None:  # one of them nobody has read
        columns_before = columns_after = {}
    both = sorted(before.keys() & after.keys(), key=os.fsencode)
    return Difference(
        added={n: f.size for n, f in after.items() if n not in before},
        removed={n: f.size for n, f in before.items() if n not in after},
        changed={
            n: (before[n].size, after[n].size) for n in both if before[n].digest != after[n].digest
        },
        columns_added={n: t for n, t in columns_after.items() if n not in columns_before},
        columns_removed={n: t for n, t in columns_before.items() if n not in columns_after},
        columns_changed={
            n: (columns_before[n], t)
            for n, t in columns_after.items()
            if n in columns_before and columns_before[n] != t
        },
        rows=(old.row_count, new.row_count),
    )
