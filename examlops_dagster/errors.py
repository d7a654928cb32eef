"""The errors that a user can meet, as one tree.

::

    ExamlopsError
    ├── DefinitionError         declarations that cannot work, every problem at once
    ├── UsageError              a request that cannot be carried out as it was written
    │   └── UnknownAssetError   a name that nobody declared, with the nearest ones
    ├── AssetBuildError         a production function did not produce
    │   ├── BuildTimeoutError   it ran longer than its limit and was ended
    │   ├── BuildCancelledError somebody ended it
    │   └── ResultError         what it returned cannot be kept
    ├── LaunchError             an orchestrator could not start a build (``transient`` says more)
    ├── StoreError              platform.db or Dagster's storage cannot be used
    ├── DatasetError            a dataset's content cannot be read, kept or fetched
    └── PolicyError             policy forbids it, or somebody has to approve it first
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class ExamlopsError(Exception):
    """Root of every error of this package; its text is written for the user."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a declaration.

    Attributes
    ----------
    where
        ``file:line`` of the declaration, or where it was made (``command line``).
    message
        What is wrong, the value, what is allowed.
    remedy
        What to do next; may be empty.
    """

    where: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text} → {self.remedy}" if self.remedy else text


class DefinitionError(ExamlopsError):
    """Declarations cannot work; ``problems`` holds all that was found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=_place))
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__(
            "\n".join([f"{head} in the declarations:", *(f"  {p}" for p in self.problems)])
        )


def _place(problem: Problem) -> tuple[str, int, str]:
    """Order by file, and there by line."""
    file, _, line = problem.where.rpartition(":")
    place = (file, int(line)) if line.isdecimal() else (problem.where, 0)
    return (*place, problem.message)


class UsageError(ExamlopsError):
    """A request that cannot be carried out as it was written; the message says how it can."""


class UnknownAssetError(UsageError):
    """A name that nobody declared.

    Parameters
    ----------
    name
        The name that was asked for.
    known
        The declared names, from which the nearest are named.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.nearest = tuple(difflib.get_close_matches(name, list(known), n=3, cutoff=0.6))
        hint = (
            f" Did you mean {', '.join(self.nearest)}?"
            if self.nearest
            else " `exa assets list` shows the declared names; -m MODULE loads more."
        )
        super().__init__(f"No asset named {name!r} is declared.{hint}")


class AssetBuildError(ExamlopsError):
    """A production function did not produce; no version is recorded.

    Parameters
    ----------
    asset
        Name of the asset.
    reason
        Last line of the error, as ``exa assets status`` shows it.
    partition
        The partition's key; empty for an asset without partitions.
    details
        The full traceback or the last lines of the logs.
    """

    def __init__(self, asset: str, reason: str, *, partition: str = "", details: str = "") -> None:
        self.asset = asset
        self.partition = partition
        self.reason = reason
        self.details = details
        where = f"{asset}[{partition}]" if partition else asset
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.asset, self.reason, self.partition, self.details))


def _rebuild(
    kind: type[AssetBuildError], asset: str, reason: str, partition: str, details: str
) -> AssetBuildError:
    return kind(asset, reason, partition=partition, details=details)


class BuildTimeoutError(AssetBuildError):
    """The attempt ran longer than its limit and was ended, its children too."""


class BuildCancelledError(AssetBuildError):
    """Somebody ended the build: Ctrl-C, Terminate in the UI, a cancel on the cluster."""


class ResultError(AssetBuildError):
    """What the function returned cannot be kept; the message names the way out."""


class LaunchError(ExamlopsError):
    """An orchestrator could not start a build; the production function did not run.

    Parameters
    ----------
    message
        What failed and what to do.
    transient
        True when the same request may succeed later (a busy controller, a lost connection).
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


class StoreError(ExamlopsError):
    """platform.db or Dagster's storage cannot be opened, read or written."""


class DatasetError(ExamlopsError):
    """A dataset's content cannot be read, kept or fetched; no revision is recorded of it."""


class PolicyError(ExamlopsError):
    """Policy forbids what was asked for, or wants somebody's approval first; nothing was done."""
