"""How things are named in OpenLineage, the same by who makes them and who reads them.

A job is ``asset:<name>`` in the namespace of the platform; what it makes is ``<name>`` in
``<namespace>://dataset``, as ExaMLOps names them. A dataset that is known by its URI has the
physical name that other producers give it (OpenLineage's naming conventions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from examlops_dagster.settings import OPENLINEAGE_NAMESPACE

NAMESPACE = "examlops"
_TABLES = {"postgres": "postgres", "postgresql": "postgres", "mysql": "mysql", "trino": "trino"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Named(NamedTuple):
    """A dataset of OpenLineage."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Names:
    """Gives the names in one namespace.

    Attributes
    ----------
    namespace
        Of the jobs; that of the datasets begins with it.
    """

    namespace: str = NAMESPACE

    @staticmethod
    def of(environment: Mapping[str, str]) -> Names:
        """Take the namespace that the environment names, else the usual one."""
        return Names(environment.get(OPENLINEAGE_NAMESPACE) or NAMESPACE)

    def job(self, asset: str) -> str:
        """Give the name of the job that makes an asset."""
        return f"asset:{asset}"

    def dataset(self, name: str, *, is_alias: bool = False) -> Named:
        """Give the dataset that a declared name stands for.

        Parameters
        ----------
        name
            Of an asset, sensor, task, dataset or alias. A URI or an absolute path, which only a
            source can be called by, is a physical name.
        is_alias
            Whether it names an alias.
        """
        if not is_alias and (name.startswith("/") or _SCHEME.match(name)):
            return physical(name)
        room = "aliases" if is_alias else "dataset"
        joiner = "/" if "://" in self.namespace else "://"
        return Named(f"{self.namespace}{joiner}{room}", name)


def physical(uri: str) -> Named:
    """Give the name of what is at a URI or a path, without secrets that stand in it."""
    if not _SCHEME.match(uri):
        return Named("file", uri)
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    where = parts.netloc.rpartition("@")[2]
    path = unquote(parts.path)
    if scheme == "file":
        return Named("file", path or "/")
    if scheme in _TABLES:
        return Named(f"{_TABLES[scheme]}://{where}", path.strip("/").replace("/", "."))
    return Named(f"{scheme}://{where}", path.lstrip("/") or "/")
