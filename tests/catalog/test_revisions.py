"""Revisions as rows: what is new, how one is named, and what the row still owes its asset."""

import pytest

from examlops_dagster.catalog.content import Content, File
from examlops_dagster.catalog.declarations import Catalog
from examlops_dagster.catalog.differences import difference
from examlops_dagster.catalog.revisions import Facts, Revisions
from examlops_dagster.core.records import Node, Record
from examlops_dagster.errors import DatasetError, UsageError
from examlops_dagster.ledger.builds import set_head


@pytest.fixture
def revisions(any_database):
    return Revisions(any_database)


@pytest.fixture
def record(revisions, clock):
    def record_(revision, dataset="PM100", **more):
        clock.advance(seconds=1)
        settings = {"backend": "local", "uri": "/data", **more}
        return revisions.record(dataset, revision, now=clock(), actor="me", **settings)

    return record_


@pytest.fixture
def advanced(any_database, revisions, clock):
    """Give a function that makes a revision its asset's content."""

    def advance(revision, version):
        head = Record(version, revision.revision, None, {}, clock())
        with any_database.write() as connection:
            set_head(connection, Node(revision.dataset), head)
        revisions.advanced(revision, version)

    return advance


def content(**by_name):
    return Content(tuple(File(n, len(t), t.ljust(64, "0")) for n, t in by_name.items()))


def test_a_revision_is_kept_as_it_was_given(revisions, record, clock):
    facts = Facts(3, 5 << 40, 7, "s")
    given, new = record("r1", facts=facts)
    assert new
    assert revisions.of("PM100") == [given]
    assert (given.revision, given.backend, given.uri, given.actor) == ("r1", "local", "/data", "me")
    assert (given.facts, given.recorded_at, given.version) == (facts, clock(), None)


def test_the_files_of_a_revision_can_be_read_again(revisions, record):
    given, _ = record("r1")
    with pytest.raises(UsageError, match="were not recorded"):
        revisions.content(given)
    whole = content(a="1", b="22")
    given, _ = record(whole.revision, content=whole)
    assert given.facts == Facts(2, 3)
    assert revisions.content(given) == whole


def test_the_same_again_is_not_new(revisions, record, advanced):
    first, _ = record("r1")
    assert record("r1") == (first, False)  # also before the asset has advanced
    advanced(first, 1)
    assert record("r1")[1] is False
    assert len(revisions.of()) == 1


def test_an_earlier_content_is_new_again(revisions, record, advanced):
    for version, name in enumerate(["A", "B", "A"], 1):
        revision, new = record(name)
        assert new
        advanced(revision, version)
    assert [r.revision for r in revisions.of("PM100")] == ["A", "B", "A"]


def test_the_same_is_new_where_the_asset_became_something_else(
    record, advanced, any_database, clock
):
    first, _ = record("A")
    advanced(first, 1)
    with any_database.write() as connection:
        set_head(connection, Node("PM100"), Record(2, "a token", None, {}, clock()))
    assert record("A")[1] is True


def test_another_place_is_another_row(record):
    record("A")
    assert record("A", backend="minio", uri="s3://b")[1] is True


def test_the_first_revision_declares_and_later_ones_leave_the_declaration(any_database, record):
    catalog = Catalog(any_database)
    record("A", declare=True)
    [declared] = catalog.all()
    assert (declared.name, declared.kind) == ("PM100", "dataset")
    record("B", "described", declare=False)
    assert [d.name for d in catalog.all()] == ["PM100"]


def test_a_declaration_that_came_meanwhile_stays(any_database, record, clock):
    Catalog(any_database).declare("PM100", now=clock(), actor="me", description="words")
    record("A", declare=True)
    [declared] = Catalog(any_database).all()
    assert declared.description == "words"


def test_what_has_no_version_yet_waits_in_its_order(revisions, record):
    first, _ = record("A")
    second, _ = record("B")
    record("A", "other")
    assert revisions.waiting("PM100") == [first, second]
    assert len(revisions.waiting()) == 3
    revisions.advanced(first, 1)
    assert revisions.waiting("PM100") == [second]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("abc1", "PM100@abc1"),
        ("PM100@abc2", "PM100@abc2"),
        ("PM100", "PM100@abc2"),
        ("a@b", "a@b@x1"),
        ("a@b@x", "a@b@x1"),
        ("x", "a@b@x1"),
    ],
)
def test_a_revision_is_named_by_its_beginning_or_its_dataset(revisions, record, text, found):
    record("abc1")
    record("abc2")
    record("x1", "a@b")
    assert str(revisions.find(text)) == found


def test_of_one_content_that_came_back_the_last_is_meant(revisions, record, advanced):
    first, _ = record("A")
    advanced(first, 1)
    second, _ = record("B")
    advanced(second, 2)
    third, _ = record("A")
    assert revisions.find("A") == third


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("abc", "names 2 revisions: PM100@abc1, PM100@abc2"),
        ("nosuch", "no revision is called 'nosuch'.*datasets with revisions: PM100, other"),
        ("", "no revision is called ''"),
        ("PM100@zz", "no revision is called"),
        ("same", "names 2 revisions: PM100@same, other@same"),
    ],
)
def test_what_names_none_or_several_is_refused(revisions, record, text, told):
    for name in ("abc1", "abc2", "same"):
        record(name)
    record("same", "other")
    with pytest.raises(UsageError, match=told):
        revisions.find(text)


def test_the_last_two_contents_differ(revisions, record):
    record("A")
    record("B")
    record("B", uri="/moved")
    assert [r.revision for r in revisions.last_two("PM100")] == ["A", "B"]


def test_a_dataset_with_one_content_has_nothing_to_compare(revisions, record):
    record("A")
    with pytest.raises(UsageError, match="had no other content before"):
        revisions.last_two("PM100")


@pytest.mark.parametrize("name", ["it's", "größe", "100%", ":name", "a@b", "a/b", ";--"])
def test_odd_names_of_datasets_survive(revisions, record, name):
    record("A", name)
    assert revisions.find(name).dataset == name
    assert revisions.datasets() == [name]


def test_a_manifest_that_was_changed_in_the_database_is_found(revisions, record, any_database):
    whole = content(a="1")
    given, _ = record(whole.revision, content=whole)
    with any_database.write() as connection:
        connection.execute("UPDATE contents SET manifest = replace(manifest, '\"a\"', '\"b\"')")
    with pytest.raises(DatasetError, match="changed after it was written"):
        revisions.content(given)


def test_a_difference_is_told_by_files_columns_and_rows():
    old = Content(
        (File("a", 1, "x"), File("b", 2, "y"), File("c", 3, "z")), {"p": "int64", "q": "bool"}, 3
    )
    new = Content(
        (File("a", 1, "x"), File("b", 5, "w"), File("d", 3, "z")), {"p": "double", "r": "bool"}, 9
    )
    found = difference(old, new)
    assert (dict(found.added), dict(found.removed), dict(found.changed)) == (
        {"d": 3},
        {"c": 3},
        {"b": (2, 5)},
    )
    assert found.columns_added == {"r": "bool"}
    assert found.columns_removed == {"q": "bool"}
    assert found.columns_changed == {"p": ("int64", "double")}
    assert found.rows == (3, 9)
    assert not found.is_empty
    assert difference(old, old).is_empty


def test_columns_that_nobody_has_read_are_no_difference():
    old, new = Content((File("a", 1, "x"),)), Content((File("a", 1, "x"),), {"p": "int64"}, 1)
    assert not difference(old, new).columns_added
