"""What people read of rows as the API and ``--json`` have them; imports nothing of the package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def name_of(row: Row) -> str:
    """Give the name of a row's node, its partition in brackets."""
    return f"{row['name']}[{row['partition']}]" if row["partition"] else str(row["name"])


def summary_words(rows: Sequence[Row]) -> str:
    """Count the keys of a partitioned asset by state, in words."""
    counts = Counter(row["shown"] for row in rows)
    return ", ".join(f"{count} {shown}" for shown, count in counts.items()) or "no partitions"


def summary_why(rows: Sequence[Row]) -> list[str]:
    """Say why of a partitioned asset: of its first key that failed, else that is not in order."""
    first = next((row for row in rows if row["state"] == "failed"), None)
    first = first or next((row for row in rows if row["reasons"]), None)
    return [] if first is None else [f"{first['partition']}: {'; '.join(first['reasons'])}"]
