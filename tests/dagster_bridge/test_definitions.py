import pytest
from dagster import AssetKey, AssetSpec, Definitions
from dagster import asset as plain_asset
from homes import names_of

from examlops_dagster.dagster_bridge.definitions import build_definitions
from examlops_dagster.dagster_bridge.translator import NAME, Translator
from examlops_dagster.errors import DefinitionError

ODD = """\
from examlops_dagster import asset, sensor, task

UPSTREAMS = [
    "dataset:PM100", "s3://bucket/jobs/2024", "Läufe von gestern", "it's \\"quoted\\"", "a b", "up_x",
]


@asset("x-y", deps=UPSTREAMS, timeout_seconds=None)
def one(**upstream):
    return sorted(upstream)


@asset("x_y", deps=["x-y"], timeout_seconds=None)
def two(**upstream):
    return upstream["x-y"]


@asset("a/b", deps=["x_y", "x-y"], timeout_seconds=None)
def three(**upstream):
    return 3


@asset("a__b", inputs={"value": "a/b"}, timeout_seconds=None)
def four(value):
    return value


@asset("input", deps=["a__b"], timeout_seconds=None)
def five():
    return 5


@asset("type", inputs={"input": "input"}, timeout_seconds=None)
def six(input):
    return input + 1


@asset("context", inputs={"type": "type"}, timeout_seconds=None)
def seven(type):
    return type + 1


@asset("result", inputs={"context": "context"}, timeout_seconds=None)
def eight(context):
    return context + 1


@asset("a.b", inputs={"result": "result"}, timeout_seconds=None)
def nine(result):
    return result + 1
"""
ODD_NAMES = ["x-y", "x_y", "a/b", "a__b", "input", "type", "context", "result", "a.b"]


@pytest.fixture
def odd(home):
    declared = ("dataset:PM100", "s3://bucket/jobs/2024", "Läufe von gestern", "a b", "up_x")
    for name in (*declared, 'it\'s "quoted"'):
        home.declare(name)
    return home.module(ODD)


def specs_of(definitions):
    repository = definitions.get_repository_def()
    return {
        key: repository.asset_graph.get(key) for key in repository.asset_graph.get_all_asset_keys()
    }


def test_odd_names_resolve(home, odd):
    nodes = specs_of(home.definitions(odd))
    assert nodes[AssetKey("x-y")].parent_keys == {
        AssetKey("dataset:PM100"), AssetKey(["s3", "bucket", "jobs", "2024"]),
        AssetKey("Läufe von gestern"), AssetKey('it\'s "quoted"'), AssetKey("a b"),
        AssetKey("up_x"),
    }  # fmt: skip
    assert nodes[AssetKey(["s3", "bucket", "jobs", "2024"])].metadata[NAME] == (
        "s3://bucket/jobs/2024"
    )


def test_an_upstream_that_nobody_declared_is_external(home, chain):
    home.declare("late", deps=["never declared"])
    nodes = specs_of(home.definitions(chain))
    assert nodes[AssetKey("never declared")].is_external
    assert nodes[AssetKey("late")].parent_keys == {AssetKey("never declared")}


def test_odd_names_are_built_from_the_command_line_and_by_a_click(home, odd):
    report = home.exa(odd, "a.b")
    assert not report.failed
    assert names_of(report.rebuilt)[-len(ODD_NAMES) :] == ODD_NAMES
    assert {n: v for n, v in home.states(odd).items() if n in ODD_NAMES} == dict.fromkeys(
        ODD_NAMES, "fresh"
    )
    assert home.click(odd, *ODD_NAMES).success
    assert {v for n, v in home.versions(odd).items() if n in ODD_NAMES} == {1}
    assert [len(home.builds(name)) for name in ODD_NAMES] == [2] * len(ODD_NAMES)


def test_the_same_definitions_resolve_again(home, odd):
    definitions = home.definitions(odd)
    assert specs_of(definitions).keys() == specs_of(definitions).keys()
    assert specs_of(home.definitions(odd)).keys() == specs_of(definitions).keys()


def test_sources_are_external_and_assets_run(home, chain):
    nodes = specs_of(home.definitions(chain))
    assert nodes[AssetKey("PM100")].is_external
    assert not nodes[AssetKey("PM100")].is_executable
    assert nodes[AssetKey("model")].is_materializable
    assert nodes[AssetKey("model")].parent_keys == {AssetKey("features")}


def test_the_code_version_is_the_fingerprint(home, chain):
    nodes = specs_of(home.definitions(chain))
    project = home.project(chain)
    assert nodes[AssetKey("model")].code_version == project.code_versions["model"]


@pytest.mark.parametrize("theirs", [AssetSpec("PM100", group_name="theirs"), "asset"])
def test_a_key_of_the_user_replaces_our_external_one(home, chain, theirs):
    if theirs == "asset":

        @plain_asset(name="PM100", group_name="theirs")
        def theirs(): ...

    definitions = home.definitions(chain, into=Definitions([theirs]))
    assert specs_of(definitions)[AssetKey("PM100")].group_name == "theirs"
    assert specs_of(definitions)[AssetKey("features")].parent_keys == {AssetKey("PM100")}


def test_nothing_of_the_users_is_brought_unless_it_is_asked_for(home, chain):
    definitions = home.definitions(chain)
    assert definitions.executor is None
    assert "io_manager" not in (definitions.resources or {})
    assert list(definitions.resources) == ["examlops_io"]


def test_a_resource_under_our_key_replaces_our_io_manager(home, chain):
    from dagster import mem_io_manager

    definitions = home.definitions(chain, resources={"examlops_io": mem_io_manager})
    assert definitions.resources["examlops_io"] is mem_io_manager
    into = Definitions(resources={"examlops_io": mem_io_manager})
    assert home.definitions(chain, into=into).resources["examlops_io"] is mem_io_manager


def test_a_translator_is_used_for_every_declaration(home, chain):
    class Grouped(Translator):
        def get_asset_spec(self, declaration):
            spec = super().get_asset_spec(declaration)
            return spec.replace_attributes(group_name=f"of_{declaration.kind}")

    nodes = specs_of(home.definitions(chain, translator=Grouped))
    assert {node.group_name for node in nodes.values()} == {"of_dataset"}


def test_one_module_needs_no_list(home, chain):
    assert AssetKey("model") in specs_of(build_definitions(chain))
    assert AssetKey("model") in specs_of(build_definitions(chain.__name__))


def test_declarations_that_cannot_work_are_all_named(home):
    module = home.module(
        """\
        from examlops_dagster import asset


        @asset(deps=["nobody"])
        def first(): ...


        @asset("bad name")
        def second(): ...
        """
    )
    with pytest.raises(DefinitionError) as caught:
        home.definitions(module)
    assert len(caught.value.problems) == 2


def test_building_definitions_warns_of_nothing(home, chain, recwarn):
    home.definitions(chain).get_repository_def()
    assert [str(w.message) for w in recwarn] == []
