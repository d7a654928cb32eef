"""Datasets known by URI, and aliases that are resolved into datasets while a node runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


class _Combined:
    """What can stand in a condition of several: ``a & b``, ``a | b``."""

    def __and__(self, other: Any) -> Condition:
        return Condition("all", (self, other))

    def __rand__(self, other: Any) -> Condition:
        return Condition("all", (other, self))

    def __or__(self, other: Any) -> Condition:
        return Condition("any", (self, other))

    def __ror__(self, other: Any) -> Condition:
        return Condition("any", (other, self))


@dataclass(frozen=True)
class Dataset(_Combined):
    """A concrete thing outside the platform that is known by its URI.

    Attributes
    ----------
    uri
        Any printable text, ``s3://bucket/key`` by custom.
    extra
        Facts about it, kept with its events.
    """

    uri: str
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def name(self) -> str:
        """The name under which the dataset stands in the graph: its URI."""
        return self.uri


@dataclass(frozen=True)
class DatasetAlias(_Combined):
    """A name that is resolved into datasets while a node runs.

    Attributes
    ----------
    name
        Stands in one name space with assets and datasets.
    match
        A glob pattern; datasets whose URI does not match it are refused. Empty: any.
    """

    name: str
    match: str = field(default="", compare=False)


Outlet: TypeAlias = Dataset | DatasetAlias
"""What a node writes to, or reads events of."""


@dataclass(frozen=True)
class Condition(_Combined):
    """Several upstreams of which all, or any, must have changed for a node to be stale.

    Attributes
    ----------
    mode
        ``all`` for ``&``, ``any`` for ``|``.
    members
        Whatever may stand in ``deps``, or further conditions; once declared, names.
    """

    mode: Literal["all", "any"]
    members: tuple[Any, ...]

    def leaves(self) -> Iterator[Any]:
        """Give the members that are no conditions, from left to right."""
        for member in self.members:
            if isinstance(member, Condition):
                yield from member.leaves()
            else:
                yield member

    def over(self, name_of: Callable[[Any], str]) -> Condition:
        """Give the same condition over the names of its members."""
        return Condition(
            self.mode,
            tuple(
                m.over(name_of) if isinstance(m, Condition) else name_of(m) for m in self.members
            ),
        )

    def holds(self, is_true: Callable[[Any], bool]) -> bool:
        """Say whether it holds, given what holds for each member."""
        found = (m.holds(is_true) if isinstance(m, Condition) else is_true(m) for m in self.members)
        return all(found) if self.mode == "all" else any(found)

    def lacks(self, in_the_way: Mapping[str, str | None]) -> str | None:
        """Say what keeps it from holding; None if nothing does.

        Parameters
        ----------
        in_the_way
            For each member by name what holds it up; None for nothing.
        """
        if self.holds(lambda name: in_the_way[name] is None):
            return None
        return next(filter(None, (in_the_way[name] for name in self.leaves())), None)

    def __str__(self) -> str:
        joiner = " & " if self.mode == "all" else " | "
        return joiner.join(f"({m})" if isinstance(m, Condition) else str(m) for m in self.members)


@dataclass(frozen=True)
class Metadata:
    """Yielded by a production function to add an event to an outlet.

    Attributes
    ----------
    dataset
        The dataset, or its URI, that was written.
    extra
        Facts about this event.
    alias
        Name of one alias or of several; empty for a dataset that is itself an outlet.
    partition
        Key, where the dataset is a declared source with partitions.
    """

    dataset: Dataset | str
    extra: Mapping[str, Any] | None = None
    alias: str | DatasetAlias | Sequence[str | DatasetAlias] = ()
    partition: str = ""

    @property
    def uri(self) -> str:
        """Of the dataset."""
        return self.dataset.uri if isinstance(self.dataset, Dataset) else self.dataset

    @property
    def aliases(self) -> tuple[str, ...]:
        """Names of the aliases."""
        several = (self.alias,) if isinstance(self.alias, (str, DatasetAlias)) else self.alias
        names = (a.name if isinstance(a, DatasetAlias) else a for a in several)
        return tuple(dict.fromkeys(name for name in names if name))
