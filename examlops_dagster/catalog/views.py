"""Feature views: what is served of a feature asset, and which source it is made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from examlops_dagster.errors import UsageError
from examlops_dagster.store.engine import Database

VIEW_KIND = "feature"


@dataclass(frozen=True)
class FeatureView:
    """A named set of features of an entity.

    Attributes
    ----------
    name
        Of the view, and of its asset.
    entity
        What a row is about, such as ``job_id``.
    features
        Names of the columns.
    source
        Name of the asset that it is made from; None for none.
    """

    name: str
    entity: str
    features: Sequence[str]
    source: str | None = None

    def __post_init__(self) -> None:
        features = (self.features,) if isinstance(self.features, str) else tuple(self.features)
        object.__setattr__(self, "features", features)
        if not self.name or not self.entity:
            raise UsageError(f"a feature view needs a name and an entity: {self!r}")
        if not features or len(set(features)) != len(features) or not all(features):
            raise UsageError(f"a feature view needs features, each once: {self!r}")


class FeatureViews:
    """Reads and writes the feature views of platform.db.

    Parameters
    ----------
    database
        An open platform.db with its tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, view: FeatureView, *, now: datetime, actor: str) -> bool:
        """Register a view, in place of a former one; its asset is still to be declared then.

        Parameters
        ----------
        now
            Aware UTC datetime.

        Returns
        -------
        bool
            False when exactly that view was registered and declared already.
        """
        with self._database.write() as connection:
            former = connection.execute(
                "SELECT name, entity, features, source FROM feature_views "
                "WHERE name = :name AND declared = 1",
                name=view.name,
            )
            if former and _view(*former[0]) == view:
                return False
            connection.execute(
                "INSERT INTO feature_views (name, entity, features, source, actor, applied_at, "
                "declared) VALUES (:name, :entity, :features, :source, :actor, :now, 0) "
                "ON CONFLICT (name) DO UPDATE SET entity = excluded.entity, "
                "features = excluded.features, source = excluded.source, actor = excluded.actor, "
                "applied_at = excluded.applied_at, declared = 0",
                name=view.name,
                entity=view.entity,
                features=json.dumps(list(view.features)),
                source=view.source,
                actor=actor,
                now=now.timestamp(),
            )
        return True

    def declared(self, view: FeatureView) -> None:
        """Note that the asset of a view is declared, unless the view was changed meanwhile."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE feature_views SET declared = 1 WHERE name = :name "
                "AND entity = :entity AND features = :features "
                "AND coalesce(source, '') = :source",
                name=view.name,
                entity=view.entity,
                features=json.dumps(list(view.features)),
                source=view.source or "",
            )

    def all(self) -> list[FeatureView]:
        """Give every view, by name."""
        return self._select("")

    def waiting(self) -> list[FeatureView]:
        """Give the views whose assets are not declared yet."""
        return self._select("WHERE declared = 0 ")

    def _select(self, where: str) -> list[FeatureView]:
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT name, entity, features, source FROM feature_views {where}ORDER BY name"  # noqa: S608
            )
        return [_view(*row) for row in rows]


def _view(name: str, entity: str, features: str, source: str | None) -> FeatureView:
    return FeatureView(name, entity, json.loads(features), source)
