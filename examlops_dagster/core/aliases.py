"""Datasets known by URI, and aliases that are resolved into datasets while a node runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Dataset:
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
class DatasetAlias:
    """A name that is resolved into datasets while a node runs.

    Attributes
    ----------
    name
        Stands in one name space with assets and datasets.
    match
        A glob pattern; datasets whose URI does not match it are refused. Empty: any.
    """

    name: str
    match: str = ""


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
    """

    dataset: Dataset | str
    extra: Mapping[str, Any] = field(default_factory=dict)
    alias: str | DatasetAlias | Sequence[str | DatasetAlias] = ()
