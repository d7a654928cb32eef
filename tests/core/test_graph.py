import random
import time
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from strategies import pipelines
from worlds import NOW, built, graph_of, record, sensor_of, snapshot, source, task_of

from examlops_dagster.core.aliases import Dataset, DatasetAlias
from examlops_dagster.core.checks import RESOURCES
from examlops_dagster.core.declarations import NodeType, Upstream, closed_over, merge
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.decorators import asset, sensor, task
from examlops_dagster.core.freshness import Always, Schedule
from examlops_dagster.core.graph import Nodes, build_graph, key_path
from examlops_dagster.core.partitions import (
    TimeWindowSpace,
    all_keys,
    daily,
    dynamic,
    hourly,
    keys,
    partitions,
    same_key,
)
from examlops_dagster.core.plan import plan_targets
from examlops_dagster.core.seams import Node
from examlops_dagster.core.status import statuses
from examlops_dagster.errors import DefinitionError, Problem


def problems_of(*declarations):
    with pytest.raises(DefinitionError) as caught:
        graph_of(*declarations)
    return list(map(str, caught.value.problems))


def only_problem(*declarations):
    [problem] = problems_of(*declarations)
    return problem


def declared(decorator, function, **arguments):
    return declaration_of(decorator("x", **arguments)(function))


# structure


def test_the_order_has_upstreams_first():
    graph = graph_of(built("c", "b"), built("b", "a"), source("a"))
    assert list(graph.declarations) == ["a", "b", "c"]


def test_downstreams_are_the_names_that_read():
    graph = graph_of(source("a"), built("b", "a"), built("c", "a"))
    assert graph.downstreams == {"a": ("b", "c"), "b": (), "c": ()}


def test_a_dep_that_is_an_input_too_is_one_edge():
    graph = graph_of(source("a"), built("b", "a", Upstream("a", "value")))
    assert graph.downstreams["a"] == ("b",)


def test_ancestors_and_descendants_hold_the_names_themselves():
    graph = graph_of(source("a"), built("b", "a"), built("c", "b"), built("d", "a"))
    assert graph.ancestors(["c"]) == {"a", "b", "c"}
    assert graph.descendants(["b"]) == {"b", "c"}


@given(pipelines())
def test_the_order_is_topological(declarations):
    graph = graph_of(*declarations)
    position = {name: n for n, name in enumerate(graph.declarations)}
    assert len(position) == len(declarations)
    for declaration in declarations:
        for edge in declaration.upstreams:
            assert position[edge.name] < position[declaration.name]


@given(pipelines())
def test_ancestors_are_those_reached_one_step_at_a_time(declarations):
    graph = graph_of(*declarations)
    for d in declarations:
        one_by_one = {d.name}.union(*(graph.ancestors([u.name]) for u in d.upstreams))
        assert graph.ancestors([d.name]) == one_by_one


# nodes


def test_the_nodes_of_an_asset_are_its_partitions():
    graph = graph_of(built("a", space={"key": partitions(["x", "y"])}), built("b", "a"))
    nodes = Nodes(graph, snapshot())
    assert nodes.of("a") == [Node("a", "x"), Node("a", "y")]
    assert nodes.of("b") == [Node("b")]


def test_keys_of_a_dynamic_space_come_from_the_snapshot():
    graph = graph_of(built("a", space={"key": dynamic("regions")}))
    assert Nodes(graph, snapshot(dynamic={"regions": ["eu"]})).keys("a") == ["eu"]


def test_at_another_moment_the_keys_are_those_of_that_moment():
    declared_spaces = {
        "a": {"day": daily("2026-01-01", timezone="Asia/Kathmandu")},
        "b": {"region": dynamic("regions")},
        "c": {"hour": hourly("2026-01-01", timezone="Australia/Lord_Howe")},
    }
    graph = graph_of(*(built(name, space=space) for name, space in declared_spaces.items()))
    nodes = Nodes(graph, snapshot())
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in range(40):
        now = first + timedelta(minutes=7 * number, seconds=number)
        there = snapshot(now=now, dynamic={"regions": ["eu", "us"][: number % 3]})
        nodes = nodes.at(there)
        for name in declared_spaces:
            assert list(nodes.keys(name)) == list(Nodes(graph, there).keys(name))


def test_what_exists_is_listed_once_for_many_moments_of_a_quarter(monkeypatch):
    calls = []
    real = TimeWindowSpace.keys_at
    monkeypatch.setattr(
        TimeWindowSpace, "keys_at", lambda space, now: calls.append(now) or real(space, now)
    )
    nodes = Nodes(graph_of(built("a", space={"day": daily("2026-01-01")})), snapshot())
    for seconds in range(100):
        nodes = nodes.at(snapshot(now=NOW + timedelta(seconds=seconds)))
        nodes.keys("a")
    assert len(calls) == 1


def test_ancestors_of_a_partition_are_the_partitions_that_it_reads():
    graph = graph_of(
        built("a", space={"key": partitions(["x", "y"])}),
        built("b", "a", space={"key": partitions(["x", "y"])}),
    )
    found = Nodes(graph, snapshot()).ancestors([Node("b", "x")])
    assert found == {Node("b", "x"), Node("a", "x")}


def test_keys_that_were_never_built_can_be_skipped():
    space = {"key": partitions(["x", "y"])}
    edge = Upstream("a", None, all_keys("a", missing="skip"))
    graph = graph_of(built("a", space=space), built("b", edge))
    [(_, found)] = Nodes(graph, snapshot({Node("a", "y"): record()})).upstreams(Node("b"))
    assert found == ["y"]


def test_equal_spaces_are_one_object():
    spaces = [{"key": partitions(["x", "y"])} for _ in range(2)]
    graph = graph_of(built("a", space=spaces[0]), built("b", space=spaces[1]), built("c"))
    nodes = Nodes(graph, snapshot())
    assert nodes.space("a") is nodes.space("b")
    assert nodes.space("c") is None


def test_a_shared_dimension_is_read_by_its_key():
    day, region = daily("2026-01-03"), partitions(["eu", "us"])
    graph = graph_of(
        built("a", space={"day": day, "region": region}), built("b", "a", space={"day": day})
    )
    [(_, found)] = Nodes(graph, snapshot()).upstreams(Node("b", "2026-01-04"))
    assert found == ["2026-01-04|eu", "2026-01-04|us"]


# unknown upstreams


def test_an_unknown_upstream_is_told_with_place_nearest_names_and_remedy():
    problem = only_problem(source("PM100"), built("model", "PM10"))
    assert problem == (
        "pipeline.py:model: model: unknown upstream 'PM10' → did you mean PM100? or declare it: "
        "exa assets declare PM10"
    )


def test_an_unknown_upstream_with_nothing_near_names_the_command():
    problem = only_problem(built("model", "a file"))
    assert problem.endswith("unknown upstream 'a file' → declare it: exa assets declare 'a file'")


def test_an_upstream_name_with_a_control_character_is_told():
    assert "bad upstream name 'a\\n'" in only_problem(built("model", "a\n"))
    assert "bad upstream name ' '" in only_problem(built("model", " "))


def test_an_unknown_upstream_is_told_once_for_each_reader():
    assert len(problems_of(built("a", "x", Upstream("x", "y")), built("b", "x"))) == 2


def test_an_unknown_upstream_of_the_command_line_is_undeclared():
    graph = graph_of(source("model", upstreams=(Upstream("PM10"),)))
    assert graph.undeclared == {"PM10"}
    assert list(graph.declarations) == ["PM10", "model"]
    assert graph.downstreams["PM10"] == ("model",)


# cycles


def test_a_cycle_is_named_in_full():
    problem = only_problem(built("a", "c"), built("b", "a"), built("c", "b"))
    assert problem == ("pipeline.py:a: cycle: a ← c ← b ← a → remove one of these dependencies")


def test_a_self_loop_is_a_cycle():
    assert "cycle: a ← a →" in only_problem(built("a", "a"))


def test_two_disjoint_cycles_are_both_told():
    found = problems_of(built("a", "b"), built("b", "a"), built("c", "d"), built("d", "c"))
    assert ["cycle: a ← b ← a" in found[0], "cycle: c ← d ← c" in found[1]] == [True, True]


def test_a_cycle_is_told_though_another_one_is_met_first():
    found = problems_of(
        built("x", "d", "y"), built("y", "x"), built("d", "loop"), built("loop", "loop")
    )
    assert len(found) == 2
    assert "cycle: loop ← loop" in found[0]
    assert "cycle: x ← y ← x" in found[1]


def test_what_lies_below_a_cycle_is_no_part_of_it():
    problem = only_problem(built("below", "a"), built("a", "b"), built("b", "a", "s"), source("s"))
    assert "below" not in problem


def test_a_cycle_through_declarations_of_the_command_line_is_told():
    a = source("a", upstreams=(Upstream("b"),))
    b = source("b", upstreams=(Upstream("a"),))
    assert only_problem(a, b).startswith("command line: cycle: a ← b ← a")


@given(pipelines(max_size=7))
def test_an_edge_against_the_order_is_told_as_a_cycle_that_exists(declarations):
    by_name = {d.name: d for d in declarations if d.upstreams}
    if not by_name:
        return
    first = next(iter(by_name))
    root = min(build_graph({d.name: d for d in declarations}).ancestors([first]) - {first})
    above = next(d for d in declarations if d.name == root)
    looped = built(root, *above.upstreams, first)
    found = problems_of(*[d for d in declarations if d.name != root], looped)
    [cycle] = [p for p in found if "cycle: " in p]
    members = cycle.split("cycle: ")[1].split(" → ")[0].split(" ← ")
    edges = {(d.name, u.name) for d in [*declarations, looped] for u in d.upstreams}
    assert members[0] == members[-1]
    assert all(pair in edges for pair in pairwise(members))


# rules for one declaration


@pytest.mark.parametrize("name", ["a name", "a:b", "a//b", "/a", "a/", "ü", "a\n", ""])
def test_a_bad_name_with_a_function_is_told(name):
    assert any("the name may hold letters" in p for p in problems_of(built(name)))


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "a/b/c", "1"])
def test_a_good_name_is_accepted(name):
    assert name in graph_of(built(name)).declarations


@pytest.mark.parametrize("name", ["dataset:PM100", "a name", "größe", "s3://bucket//key"])
def test_a_source_may_have_any_printable_name(name):
    assert name in graph_of(source(name)).declarations


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[31m"])
def test_a_source_may_not_hide_its_name(name):
    assert "empty or holds a control character" in only_problem(source(name))


@pytest.mark.parametrize("kind", ["Model", "a model", "", None, 7])
def test_a_kind_that_is_no_lower_case_word_is_told(kind):
    assert f"kind {kind!r} is not a lower-case word" in only_problem(built("a", kind=kind))


def test_a_bad_cron_is_told_with_the_place_and_the_name():
    problem = only_problem(built("a", freshness=Schedule("61 * * * *")))
    assert problem == "pipeline.py:a: asset 'a': cron '61 * * * *' cannot be read"


def test_freshness_of_another_type_is_told():
    assert "freshness 'always' is not Always" in only_problem(built("a", freshness="always"))


def test_always_on_a_sensor_is_told_with_what_to_use():
    problem = only_problem(declared(sensor, lambda: (True, 1), freshness=Always))
    assert "sensor 'x': a sensor cannot be Always fresh" in problem
    assert problem.endswith("→ use Manual or Schedule(...)")


def test_an_input_that_the_function_does_not_take_is_told():
    problem = only_problem(source("a"), declared(asset, lambda b=1: 0, inputs={"value": "a"}))
    assert "the function takes no parameter 'value' for input 'value'" in problem


def test_a_partition_dimension_that_the_function_does_not_take_is_told():
    problem = only_problem(declared(asset, lambda: 0, partitions={"day": daily("2024-01-01")}))
    assert "the function takes no parameter 'day' for partition dimension 'day'" in problem


def test_a_parameter_that_is_an_input_and_a_dimension_is_told():
    found = declared(
        asset, lambda day: 0, inputs={"day": "a"}, partitions={"day": daily("2024-01-01")}
    )
    assert "'day' is an input and a partition dimension" in only_problem(source("a"), found)


@pytest.mark.parametrize("more", [{"deps": ["a"]}, {"inputs": {"a": "a"}}])
def test_a_parameter_that_cannot_be_given_by_keyword_is_told(more):
    problem = only_problem(source("a"), declared(asset, lambda a, /: 0, **more))
    assert "the function takes a by position only, and is called by keyword" in problem
    assert problem.endswith("→ take the '/' out of its parameters")


def test_a_positional_parameter_with_a_default_keeps_it():
    graph_of(source("a"), declared(asset, lambda a=1, /: 0, deps=["a"]))


def test_the_parameters_of_a_function_that_a_command_replaces_are_not_looked_at():
    graph_of(declared(asset, lambda a, /: 0, command=["true"]))


def space_edge(mapped, own, theirs):
    edge = Upstream("up", mapped=mapped)
    return built("up", space=theirs), built("down", edge, space=own)


DAYS = {"day": daily("2024-01-01")}
REGIONS = {"region": partitions(["eu", "us"])}


def test_the_same_key_of_a_space_that_cannot_have_it_is_told():
    problem = only_problem(*space_edge(same_key("up"), DAYS | REGIONS, DAYS))
    assert problem == (
        "pipeline.py:down: down: upstream 'up' is read by same_key between keys of day (daily) and "
        "region (eu, us) and those of day (daily), which do not match → use keys(x, "
        "function), all_keys(x) or no mapping"
    )


@pytest.mark.parametrize("own", [DAYS, None])
@pytest.mark.parametrize("mapped", [None, all_keys("up"), keys("up", list)])
def test_any_other_mapping_goes_between_any_two_spaces(mapped, own):
    graph_of(*space_edge(mapped, own, REGIONS))


@pytest.mark.parametrize(("own", "theirs"), [(DAYS, None), (None, DAYS), (DAYS, DAYS)])
def test_the_same_key_is_read_in_the_same_space_and_where_there_is_none(own, theirs):
    graph_of(*space_edge(same_key("up"), own, theirs))


def test_a_parameter_that_nothing_supplies_is_told():
    problem = only_problem(source("a"), declared(asset, lambda a, b, c: 0, deps=["a"]))
    assert "nothing supplies parameter b, c" in problem


def test_parameters_with_a_default_and_those_of_the_platform_need_nothing():
    def produce(ds, outlet_events, inlet_events, given=1): ...

    graph_of(declared(asset, produce))


def test_a_function_that_takes_no_dep_is_called_without():
    graph_of(source("a"), declared(asset, lambda: 0, deps=["a"]))


def test_a_command_takes_the_parameters_itself():
    graph_of(source("a"), declared(asset, lambda b: 0, inputs={"x": "a"}, command=["run.sh"]))


def test_a_task_as_upstream_of_an_asset_is_told():
    problem = only_problem(task_of("mail"), built("report", "mail"))
    assert problem == (
        "pipeline.py:report: asset 'report' has task 'mail' as upstream → a task always runs "
        "anew, so only another task may depend on it"
    )


def test_a_task_may_depend_on_a_task():
    graph_of(task_of("mail"), task_of("log", "mail"))


def test_an_unknown_resource_is_told_with_the_nearest():
    problem = only_problem(built("a", resources={"gpu": 1, "time": "1:00"}))
    assert "unknown resource 'gpu'; known: account, " in problem
    assert problem.endswith("→ did you mean gpus?")


def test_every_resource_of_the_vocabulary_is_known():
    graph_of(built("a", resources=dict.fromkeys(RESOURCES, 1)))


def test_an_unknown_orchestrator_is_told_with_the_known_ones():
    problem = only_problem(built("a", orchestrator="sheduler"))
    assert "unknown orchestrator 'sheduler'; known: local, prefect, scheduler" in problem
    assert problem.endswith("→ did you mean scheduler?")


def test_an_orchestrator_of_an_installed_package_is_known():
    declarations = {"a": built("a", orchestrator="theirs")}
    assert build_graph(declarations, orchestrators=["local", "theirs"]).undeclared == frozenset()


def test_an_unknown_serializer_is_told():
    assert "serializer 'yaml' is none of json, pickle" in only_problem(
        built("a", serializer="yaml")
    )


@pytest.mark.parametrize("owner", ["somebody", "team:", "team:a b", "a@b", 7])
def test_an_owner_that_dagster_refuses_is_told(owner):
    assert f"owner {owner!r} is neither an e-mail" in only_problem(built("a", owners=(owner,)))


def test_owners_that_dagster_takes_are_accepted():
    graph_of(built("a", owners=("team:ml-ops", "somebody@example.com")))


@pytest.mark.parametrize(
    "tags", [{"a b": "x"}, {"a/b/c": "x"}, {"": "x"}, {"a": "x y"}, {"a": 1}, {"a": "x" * 64}]
)
def test_a_tag_that_dagster_refuses_is_told(tags):
    assert "tag " in only_problem(built("a", tags=tags))


def test_tags_that_dagster_takes_are_accepted():
    graph_of(built("a", tags={"team/name": "ml", "x": ""}))


def test_a_group_that_dagster_refuses_is_told():
    assert "group 'a-b' may hold letters" in only_problem(built("a", group="a-b"))


@pytest.mark.parametrize("timeout", [0, -1, "300", True, float("nan")])
def test_a_timeout_that_is_no_number_above_0_is_told(timeout):
    problem = only_problem(built("a", timeout_seconds=timeout))
    assert f"timeout_seconds={timeout!r} is not a number above 0" in problem


@pytest.mark.parametrize("timeout", [None, 0.5, 86400])
def test_no_timeout_is_a_timeout_too(timeout):
    graph_of(built("a", timeout_seconds=timeout))


@pytest.mark.parametrize("retries", [-1, 1.5, True, "1"])
def test_retries_that_are_no_number_of_attempts_are_told(retries):
    assert f"retries={retries!r} is not" in only_problem(built("a", retries=retries))


@pytest.mark.parametrize("backoff", [-1, True, "1"])
def test_a_backoff_that_is_no_number_of_seconds_is_told(backoff):
    assert f"retry_backoff={backoff!r} is not" in only_problem(built("a", retry_backoff=backoff))


def test_a_bad_partition_space_is_told():
    problem = only_problem(built("a", space={"key": partitions(["x", "x"])}))
    assert "asset 'a': partition dimension 'key': a key stands there twice" in problem


def test_a_bad_upstream_is_told_with_the_declaration():
    assert "asset 'x': upstream 7 is neither" in only_problem(declared(asset, lambda: 0, deps=[7]))


def test_names_with_one_dagster_key_are_told():
    @asset(deps=[Dataset("s3://bucket/key")])
    def reader(): ...

    found, problems = merge(closed_over([declaration_of(reader), built("s3/bucket/key")]), ())
    assert problems == []
    problem = only_problem(*found.values())
    assert "have the same Dagster key s3/bucket/key" in problem


@pytest.mark.parametrize(
    ("declaration", "path"),
    [
        (built("a/b"), ("a", "b")),
        (source("s3://bucket//key/"), ("s3", "bucket", "key")),
        (source("dataset:PM100"), ("dataset:PM100",)),
        (source("///"), ("///",)),
        (source("x", node_type=NodeType.EXTERNAL, metadata={"path": ("a/b", "c")}), ("a/b", "c")),
    ],
)
def test_a_name_gives_the_parts_of_a_dagster_key(declaration, path):
    assert key_path(declaration) == path


# all at once


def test_every_problem_is_told_at_once_in_the_order_of_the_files():
    before = Problem("a.py:1", "found while merging", "rename it")
    declarations = [
        built("a", "b"),
        built("b", "a"),
        built("c", "nowhere", kind="Model", retries=-1),
        sensor_of("d", freshness=Schedule("bad")),
    ]
    with pytest.raises(DefinitionError) as caught:
        build_graph({d.name: d for d in declarations}, [before])
    text = str(caught.value)
    assert text.splitlines()[0] == "6 problems in the declarations:"
    assert text.splitlines()[1] == "  a.py:1: found while merging → rename it"
    for words in ("cycle", "nowhere", "kind", "retries", "cron"):
        assert words in text
    assert [p.where for p in caught.value.problems] == sorted(
        p.where for p in caught.value.problems
    )


def test_one_problem_is_told_in_the_singular():
    with pytest.raises(DefinitionError, match=r"^1 problem in the declarations:"):
        graph_of(built("a", "a"))


def test_a_problem_of_a_decorated_function_has_its_file_and_line():
    @task("x", retries=-1)
    def produce(): ...

    line = produce.__code__.co_firstlineno
    assert only_problem(declaration_of(produce)).startswith(f"{__file__}:{line}: task 'x': retries")


def test_datasets_and_aliases_need_no_declaration_of_their_own():
    @asset(deps=[Dataset("s3://x"), DatasetAlias("out")])
    def reader(): ...

    found, _ = merge(closed_over([declaration_of(reader)]), ())
    assert set(graph_of(*found.values()).declarations) == {"s3://x", "out", "reader"}


# scale


def chain(size):
    return [source("n0"), *(built(f"n{i}", f"n{i - 1}") for i in range(1, size))]


def wide(size):
    return [source("n0"), *(built(f"n{i}", "n0") for i in range(1, size - 1)),
            built("end", *(f"n{i}" for i in range(1, size - 1)))]  # fmt: skip


def ladder(size):
    found = [built("a0"), built("b0")]
    for n in range(1, size // 2):
        found += [built(f"{side}{n}", f"a{n - 1}", f"b{n - 1}") for side in "ab"]
    return found


SHAPES = pytest.mark.parametrize("shape", [chain, wide, ladder])


def look(declarations):
    """Do all that a plan of everything needs, and give the plan."""
    shuffled = list(declarations)
    random.Random(7).shuffle(shuffled)
    graph = graph_of(*shuffled)
    now = snapshot()
    nodes = Nodes(graph, now)
    last = declarations[-1].name
    assert graph.ancestors([last])
    return plan_targets(graph, nodes, statuses(graph, now, {}), [Node(last)])


@SHAPES
def test_ten_thousand_nodes_are_planned_in_order_without_recursion(shape):
    declarations = shape(10_000)
    position = {step.node.asset: n for n, step in enumerate(look(declarations).steps)}
    assert len(position) >= 9_999
    for declaration in declarations:
        for edge in declaration.upstreams:
            if declaration.name in position:
                assert position[edge.name] < position[declaration.name]


def partitioned(size):
    """A partitioned asset, one that shares a dimension with it, and one that reads it all."""
    keys_ = {"key": partitions(map(str, range(size // 3)))}
    both = keys_ | {"side": partitions(["x"])}
    return [built("a", space=keys_), built("b", "a", space=both), built("c", "a", "b")]


@pytest.mark.parametrize("shape", [chain, wide, ladder, partitioned])
def test_the_time_of_a_plan_is_linear_in_the_nodes(shape):
    def seconds(size):
        best = float("inf")
        declarations = shape(size)
        for _ in range(3):
            start = time.process_time()
            look(declarations)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4_000) < 12 * seconds(1_000)  # quadratic: 16 and more, exponential: never


def test_a_cycle_of_ten_thousand_is_told_without_recursion():
    problem = only_problem(built("n0", "n9999"), *chain(10_000)[1:])
    assert problem.count("←") == 10_000


def test_many_unknown_upstreams_are_told_in_good_time():
    declarations = [built(f"asset_{n}", f"elsewhere_{n}") for n in range(3_000)]
    start = time.process_time()
    assert len(problems_of(*declarations)) == 3_000
    assert time.process_time() - start < 20  # 80 s where each is compared with every name


def test_the_functions_of_a_mapping_are_called_for_each_key_alone():
    asked = []
    edge = Upstream("a", None, keys("a", lambda key: asked.append(key) or [key]))
    space = {"key": partitions(["x", "y"])}
    nodes = Nodes(graph_of(built("a", space=space), built("b", edge, space=space)), snapshot())
    nodes.upstreams(Node("b", "x"))
    assert asked == ["x"]


def test_a_thing_without_a_code_object_has_a_place_too():
    @asset("x", retries=-1)
    class Callable:
        def __call__(self): ...

    assert only_problem(declaration_of(Callable)).startswith("test_graph:")
