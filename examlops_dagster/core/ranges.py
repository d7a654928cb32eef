"""Which keys of a partition space a selection, or a range, names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from examlops_dagster.core.partitions import MULTI_SEPARATOR, PartitionSpace

RANGE = "..."
"""Between the first and the last key of a range, as in Dagster's own commands."""


def select_keys(space: PartitionSpace, existing: Sequence[str], text: str) -> list[str]:
    """Give the keys that a selection names.

    Parameters
    ----------
    space
        Its dimensions can be named.
    existing
        The keys that exist, in order.
    text
        One key, a range ``FIRST...LAST``, or ``DIMENSION=KEY,...`` in any order, where a
        dimension that is not named takes all of its keys and a key may be a range.

    Raises
    ------
    ValueError
        When a key or a dimension does not exist.
    """
    if text in existing:
        return [text]
    names = [name for name, _ in space.dimensions]
    if "=" not in text:
        first, last = _ends(list(existing), text)
        return _not_empty(text, keys_between(space, existing, first, last))
    wanted: dict[str, set[str]] = {}
    for part in text.split(","):
        name, _, key = part.partition("=")
        if name.strip() not in names:
            raise ValueError(f"there is no dimension {name.strip()!r}, only {', '.join(names)}")
        keys_there = list(dict.fromkeys(space.split(k)[name.strip()] for k in existing))
        first, last = _ends(keys_there, key.strip())
        found = keys_there[keys_there.index(first) : keys_there.index(last) + 1]
        wanted[name.strip()] = set(_not_empty(key.strip(), found))
    return [
        key
        for key in existing
        if all(space.split(key)[name] in chosen for name, chosen in wanted.items())
    ]


def keys_between(
    space: PartitionSpace, existing: Sequence[str], first: str, last: str
) -> list[str]:
    """Give the keys from ``first`` to ``last``; with two dimensions those between in each.

    So Dagster reads a range: from ``2024-01-01|x`` to ``2024-01-03|x`` lies nothing of ``y``.
    """
    if len(space.dimensions) == 1:
        return list(existing[existing.index(first) : existing.index(last) + 1])
    parts = {key: space.split(key) for key in existing}
    between: dict[str, set[str]] = {}
    for name, _ in space.dimensions:
        there = list(dict.fromkeys(part[name] for part in parts.values()))
        start, end = there.index(parts[first][name]), there.index(parts[last][name])
        between[name] = set(there[start : end + 1])
    return [k for k, part in parts.items() if all(part[n] in keys for n, keys in between.items())]


def corners(space: PartitionSpace, existing: Sequence[str], keys: Iterable[str]) -> tuple[str, str]:
    """Give the ends of the smallest range, as `keys_between` reads one, that holds ``keys``."""
    wanted = set(keys)
    there = [key for key in existing if key in wanted]
    if len(space.dimensions) == 1:
        return there[0], there[-1]
    ends: tuple[list[str], list[str]] = ([], [])
    for name, _ in space.dimensions:
        position = {
            k: n for n, k in enumerate(dict.fromkeys(space.split(k)[name] for k in existing))
        }
        own = sorted((space.split(key)[name] for key in there), key=position.__getitem__)
        ends[0].append(own[0])
        ends[1].append(own[-1])
    return MULTI_SEPARATOR.join(ends[0]), MULTI_SEPARATOR.join(ends[1])


def _ends(existing: list[str], text: str) -> tuple[str, str]:
    first, dots, last = text.partition(RANGE)
    for key in (first, last) if dots else (text,):
        if key not in existing:
            nearest = difflib.get_close_matches(key, existing, n=3)
            if nearest:
                hint = f"did you mean {', '.join(nearest)}?"
            elif len(existing) > 1:
                hint = f"they go from {existing[0]} to {existing[-1]}"
            else:
                hint = f"there is only {existing[0]}" if existing else "there is none yet"
            raise ValueError(f"there is no partition {key!r} → {hint}")
    return (first, last) if dots else (text, text)


def _not_empty(text: str, found: list[str]) -> list[str]:
    if not found:
        raise ValueError(f"the range {text} is empty: its end comes before its start")
    return found
