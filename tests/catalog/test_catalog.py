import pytest
from hypothesis import HealthCheck, given, settings
from strategies import printable
from worlds import NOW, built, graph_of, judged

from examlops_dagster.catalog.declarations import COMMAND_LINE, Catalog
from examlops_dagster.core.partitions import daily
from examlops_dagster.core.records import Node


@pytest.fixture
def catalog(any_database):
    return Catalog(any_database)


@pytest.fixture
def declare(catalog, clock):
    def declare_(name, **more):
        clock.advance(seconds=1)
        return catalog.declare(name, now=clock(), actor="me", **more)

    return declare_


def test_a_new_catalog_is_empty(catalog):
    assert catalog.all() == []


def test_a_declaration_is_kept_as_it_was_given(catalog, declare):
    given = declare(
        "jobs",
        kind="feature",
        deps=["PM100", "a b"],
        description="one\nline",
        partitions="day=daily:2024-01-01",
    )
    [kept] = catalog.all()
    assert kept == given
    assert (kept.name, kept.kind, kept.description) == ("jobs", "feature", "one\nline")
    assert [u.name for u in kept.upstreams] == ["PM100", "a b"]
    assert kept.partitions.dimensions == (("day", daily("2024-01-01")),)
    assert (kept.outside, kept.where, kept.function) == (True, COMMAND_LINE, None)


def test_what_nobody_stated_has_the_defaults(catalog, declare):
    declare("PM100")
    [kept] = catalog.all()
    assert kept.is_source
    assert (kept.kind, kept.description, kept.partitions) == ("dataset", None, None)


def test_a_second_declaration_takes_the_place_of_the_first(catalog, declare):
    declare("a", kind="model", deps=["b"], description="words", partitions="static:x")
    declare("a")
    [kept] = catalog.all()
    assert (kept.kind, kept.upstreams, kept.description, kept.partitions) == (
        "dataset",
        (),
        None,
        None,
    )


def test_declarations_come_in_the_order_in_which_they_were_made(catalog, declare):
    for name in ("c", "a", "b"):
        declare(name)
    assert [d.name for d in catalog.all()] == ["c", "a", "b"]


def test_what_is_undeclared_is_gone(catalog, declare):
    declare("a")
    declare("b")
    assert catalog.undeclare("a") is True
    assert [d.name for d in catalog.all()] == ["b"]


def test_undeclaring_what_nobody_declared_says_so(catalog):
    assert catalog.undeclare("a") is False


@pytest.mark.parametrize(
    "name", ["dataset:PM100", "s3://b//k?x=1", "it's", '"', "100%", "größe", "a, b", ";--", " a "]
)
def test_odd_names_survive(catalog, declare, name):
    declare(name, deps=[name + "!"])
    [kept] = catalog.all()
    assert (kept.name, kept.upstreams[0].name) == (name, name + "!")
    assert catalog.undeclare(name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=printable)
def test_any_printable_name_survives(database, name):
    catalog = Catalog(database)
    catalog.declare(name, now=NOW, actor="me")
    assert [d.name for d in catalog.all()] == [name]
    assert catalog.undeclare(name)


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ("daily", "are not of the form daily:2024-01-01"),
        ("daily:soon", "'soon' is not a date"),
        ("static:a,a", "a key stands there twice"),
    ],
)
def test_partitions_that_cannot_be_read_are_refused_and_not_kept(
    catalog, declare, partitions, words
):
    declare("a", kind="model")
    with pytest.raises(ValueError, match=words):
        declare("a", partitions=partitions)
    assert [(d.name, d.kind) for d in catalog.all()] == [("a", "model")]


def test_another_process_sees_the_declaration(any_database, declare):
    declare("a")
    any_database.close()
    assert [d.name for d in Catalog(any_database).all()] == ["a"]


def test_declarations_of_the_catalog_make_a_graph(catalog, declare):
    declare("b", deps=["a"])
    verdicts = judged([*catalog.all(), built("c", "b")])
    assert graph_of(*catalog.all()).undeclared == {"a"}
    assert verdicts[Node("c")].shown == "waiting for upstream"
