"""Feature views as rows."""

from dataclasses import replace

import pytest

from examlops_dagster.catalog.views import FeatureView, FeatureViews

VIEW = FeatureView("jobs 'x'", "job_id", ["power", "größe"], "PM100")


@pytest.fixture
def views(any_database):
    return FeatureViews(any_database)


@pytest.mark.parametrize("view", [VIEW, replace(VIEW, source=None)])
def test_a_view_is_kept_as_it_was_given(views, view, clock):
    assert views.put(view, now=clock(), actor="me")
    assert views.all() == views.waiting() == [view]
    views.declared(view)
    assert (views.all(), views.waiting()) == ([view], [])
    assert not views.put(view, now=clock(), actor="me")
    assert views.waiting() == []


@pytest.mark.parametrize(
    "other",
    [
        replace(VIEW, entity="user"),
        replace(VIEW, features=["power"]),
        replace(VIEW, source="x"),
        replace(VIEW, source=None),
    ],
)
def test_a_view_that_differs_takes_the_place_of_the_former(views, clock, other):
    views.put(VIEW, now=clock(), actor="me")
    views.declared(VIEW)
    assert views.put(other, now=clock(), actor="me")
    assert views.waiting() == views.all() == [other]
    views.declared(VIEW)  # by a process that had the former
    assert views.waiting() == [other]
