"""Tells names that look like a setting and are none: what they say would be ignored in silence."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from examlops_dagster.settings import OF_EXAMLOPS, SETTINGS, TOLD_TO_PROGRAMS

PREFIX = "EXAMLOPS_"
TOLD_VARIABLE = "_EXAMLOPS_MISSPELT_TOLD"
"""What was told already, between semicolons: the processes that a command starts inherit it, and neither
they nor the code servers of a server tell it again."""

TABLE = "examlops"
KEYS = ("modules",)
"""What ``[tool.examlops]`` in pyproject.toml says."""

_LIKE_OUR_TABLE = (TABLE, "examlops-dagster", "examlops_dagster")
_KNOWN = SETTINGS | TOLD_TO_PROGRAMS | OF_EXAMLOPS
_LIKE_A_PREFIX = 0.85
_LIKE_A_NAME = 0.8
"""ExaMLOps has a hundred variables more; those that are as near as this are in OF_EXAMLOPS."""

logger = logging.getLogger(__name__)


def tell_misspelt_variables(file: Path | None = None) -> None:
    """Say of each variable of this process that is no setting which one was probably meant, once.

    It is logged as a warning, and stops nothing: ExaMLOps and others have variables of that prefix.

    Parameters
    ----------
    file
        The ``.env`` that was read into the environment; named where it states one.
    """
    meant = {name: near for name in os.environ if (near := _meant(name))}
    new = _not_told(meant)
    stated = _stated_in(file) if new else ()
    for name in new:
        where = f" (in {file})" if name in stated else ""
        logger.warning("%s%s is no setting → did you mean %s?", name, where, meant[name])


def tell_misspelt_keys(tables: Mapping[str, object], file: Path) -> None:
    """Say the same of the tables ``[tool.*]`` of a pyproject.toml, and of the keys in ours.

    Parameters
    ----------
    tables
        What stands below ``tool``.
    file
        Where they stand.
    """
    ours = tables.get(TABLE)
    meant: dict[str, str] = {}
    if isinstance(ours, Mapping):
        wrong = [key for key in ours if key not in KEYS]
        meant = {f"[tool.{TABLE}] {key}": near for key in wrong if (near := _nearest(key, KEYS))}
    elif ours is None:
        wrong = [name for name in tables if _nearest(name.lower(), _LIKE_OUR_TABLE)]
        meant = {f"[tool.{name}]": f"[tool.{TABLE}]" for name in wrong}
    told = {f"{what} in {file}": what for what in meant}
    for where in _not_told(told):
        logger.warning("%s is no setting → did you mean %s?", where, meant[told[where]])


def _nearest(name: str, known: Iterable[str]) -> str:
    """Give the known name that was probably meant; empty where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is not known

    return next(iter(get_close_matches(name, list(known), 1, _LIKE_A_NAME)), "")


def _meant(name: str) -> str:
    """Give the setting that a variable seems to name; empty if it is one, or resembles none."""
    if name[:3].upper() != PREFIX[:3] or name in _KNOWN:
        return ""
    head, _, rest = name.upper().partition("_")
    if not rest or not _is_like_our_prefix(head):
        return ""
    found = _nearest(rest, [known.removeprefix(PREFIX) for known in SETTINGS])
    return f"{PREFIX}{found}" if found else ""


def _is_like_our_prefix(head: str) -> bool:
    from difflib import SequenceMatcher  # noqa: PLC0415 - only where a name is not known

    ours = PREFIX.rstrip("_")
    return head == ours or SequenceMatcher(None, head, ours).ratio() >= _LIKE_A_PREFIX


def _not_told(names: Iterable[str]) -> list[str]:
    """Give those that nobody was told yet, sorted; now somebody is."""
    told = set(filter(None, os.environ.get(TOLD_VARIABLE, "").split(";")))
    new = sorted(set(names) - told)
    if new:
        os.environ[TOLD_VARIABLE] = ";".join(sorted(told.union(new)))
    return new


def _stated_in(file: Path | None) -> Collection[str]:
    if file is None or not file.is_file():
        return ()
    from dotenv import dotenv_values  # noqa: PLC0415 - only where there is something to tell

    return dotenv_values(file)
