import pytest
from dagster import AssetKey, AssetSpec
from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster import asset, sensor, task
from examlops_dagster.core.declarations import Declaration, Upstream
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.graph import build_graph
from examlops_dagster.dagster_bridge.translator import NAME, Translator, slug


@asset(
    "ml/model",
    kind="model",
    deps=["PM100"],
    group="training",
    owners=["team:ml", "a@example.org"],
    tags={"tier": "gold"},
    metadata={"note": 7},
    description="The model.",
)
def train(**upstream):
    """Not shown: the description says it."""


@asset
def documented():
    """What it is."""


@sensor
def look():
    """New jobs?"""
    return True, 1


@task
def mail():
    """Tell everybody."""


def translated(*things, code_versions=None):
    declared = [t if isinstance(t, Declaration) else declaration_of(t) for t in things]
    graph = build_graph({d.name: d for d in declared})
    translator = Translator(graph, code_versions or {})
    return {d.name: translator.get_asset_spec(d) for d in declared}


def source(name, *deps, **more):
    return Declaration(
        name, upstreams=tuple(map(Upstream, deps)), where="command line", outside=True, **more
    )


def test_what_is_declared_is_shown():
    spec = translated(train, source("PM100"), code_versions={"ml/model": "abc"})["ml/model"]
    assert spec.key == AssetKey(["ml", "model"])
    assert spec.kinds == {"model"}
    assert spec.group_name == "training"
    assert set(spec.owners) == {"team:ml", "a@example.org"}
    assert spec.tags["tier"] == "gold"
    assert spec.code_version == "abc"
    assert spec.description == "The model."
    assert spec.metadata[NAME] == "ml/model"
    assert spec.metadata["note"] == 7


def test_the_description_is_the_docstring_where_none_is_given():
    assert translated(documented)["documented"].description == "What it is."


def test_a_sensor_and_a_task_say_in_their_description_what_they_are():
    specs = translated(look, mail)
    assert specs["look"].description.startswith("A sensor: ")
    assert specs["look"].description.endswith("New jobs?")
    assert specs["mail"].description.startswith("A task: ")
    assert specs["mail"].description.endswith("Tell everybody.")


def test_a_declaration_of_the_command_line_shows_what_it_is_made_from():
    specs = translated(source("a"), source("b", "a", description="b of a"))
    assert [dep.asset_key for dep in specs["b"].deps] == [AssetKey("a")]
    assert specs["b"].description == "b of a"
    assert specs["b"].kinds == {"dataset"}
    assert not list(specs["a"].deps)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("dataset:PM100", ["dataset:PM100"]),
        ("s3://bucket/jobs//2024/", ["s3", "bucket", "jobs", "2024"]),
        ("file:///data/x.csv", ["file", "data", "x.csv"]),
        ("Läufe von gestern", ["Läufe von gestern"]),
        ('it\'s "quoted"', ['it\'s "quoted"']),
        ("a/b", ["a", "b"]),
        ("/", ["/"]),
    ],
)
def test_a_source_may_have_any_printable_name(name, path):
    assert translated(source(name))[name].key == AssetKey(path)


def test_a_translator_of_the_user_changes_what_is_shown():
    class Grouped(Translator):
        def get_asset_spec(self, declaration):
            return super().get_asset_spec(declaration).replace_attributes(group_name="theirs")

    declared = declaration_of(documented)
    spec = Grouped(build_graph({declared.name: declared}), {}).get_asset_spec(declared)
    assert isinstance(spec, AssetSpec)
    assert spec.group_name == "theirs"


@pytest.mark.parametrize("name", ["prices", "PM100", "x_y", "a1"])
def test_a_name_that_dagster_takes_is_its_own_slug(name):
    assert slug(name) == name


@given(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=8, unique=True))
def test_slugs_are_different_and_dagster_takes_them(names):
    from dagster._core.definitions.utils import check_valid_name

    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    for made in slugs:
        assert check_valid_name(made) == made


ALIKE = [
    "x-y",
    "x_y",
    "x.y",
    "a/b",
    "a__b",
    "a_b",
    "input",
    "input__h",
    "type",
    "context",
    "result",
]


def test_names_that_are_alike_have_different_slugs():
    assert len({slug(name) for name in ALIKE}) == len(ALIKE)
    first = slug("x-y")
    assert slug(first) != first  # nobody can name an asset as the slug of another
