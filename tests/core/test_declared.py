import functools
import importlib
import sys
import textwrap
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from examlops_dagster import asset
from examlops_dagster.core.declarations import closed_over, merge
from examlops_dagster.core.declared import declaration_of, declarations_of


def names_of(declarations):
    return [d.name for d in declarations]


def test_declarations_of_a_module_come_in_the_order_of_the_file(module):
    found = module("""
        @asset
        def second(): ...
        @sensor
        def first(): ...
        """)
    assert names_of(declarations_of(found)) == ["second", "first"]


def test_declarations_made_in_a_loop_are_found(module):
    found = module("""
        for n in range(3):
            @asset(f"part_{n}")
            def part(): ...
        """)
    assert names_of(declarations_of(found)) == ["part_0", "part_1", "part_2"]


def test_declarations_made_in_a_factory_that_keeps_nothing_are_found(module):
    module(
        """
        def factory(name):
            @asset(name)
            def part(): ...
        """,
        "users_factory",
    )
    found = module("""
        from users_factory import factory
        factory("one")
        """)
    assert names_of(declarations_of(found)) == ["one"]
    assert names_of(declarations_of(sys.modules["users_factory"])) == []


def test_declarations_of_imported_functions_are_found_and_once(module):
    module("@asset\ndef shared(): ...\n", "users_library")
    found = module("""
        from users_library import shared
        from users_library import shared as again
        @asset(deps=shared)
        def own(): ...
        """)
    assert sorted(names_of(declarations_of(found))) == ["own", "shared"]


def test_a_reloaded_module_does_not_double_its_declarations(module):
    found = module("""
        for n in range(2):
            @asset(f"part_{n}")
            def part(): ...
        @asset
        def whole(): ...
        """)
    before = names_of(declarations_of(found))
    found = importlib.reload(found)
    assert names_of(declarations_of(found)) == before == ["part_0", "part_1", "whole"]
    assert merge(closed_over(declarations_of(found)), ())[1] == []


def test_objects_that_answer_to_any_name_are_no_declarations(module):
    found = module("from unittest.mock import call, MagicMock\nmock = MagicMock()\n")
    assert declarations_of(found) == []


def test_nothing_is_found_in_a_module_that_declares_nothing():
    assert declarations_of(textwrap) == []


# wrappers


def test_a_wrapper_around_an_asset_is_no_asset():
    @asset
    def produce(): ...

    @functools.wraps(produce)
    def wrapper(): ...

    assert declaration_of(produce) is not None
    assert declaration_of(wrapper) is None
    assert names_of(declarations_of(SimpleNamespace(wrapper=wrapper))) == []


def test_a_wrapper_can_be_an_asset_of_its_own():
    @asset("inner")
    def produce(): ...

    @asset("outer")
    @functools.wraps(produce)
    def wrapper(): ...

    assert names_of(declarations_of(SimpleNamespace(wrapper=wrapper))) == ["outer"]
    assert names_of(declarations_of(SimpleNamespace(produce=produce))) == ["inner"]


# notebooks


class Notebook:
    """Runs cells as ipykernel does: in one ``__main__``, each with a file name of its own."""

    def __init__(self, name="__main__", code_name="<module>", **namespace):
        self.module = ModuleType(name)
        vars(self.module).update(namespace)
        self.code_name = code_name

    def run(self, cell, number=567):
        source = f"from examlops_dagster import asset\n{textwrap.dedent(cell)}"
        code = compile(source, f"/tmp/ipykernel_1234/{number}.py", "exec")
        exec(code.replace(co_name=self.code_name), vars(self.module))

    def declared(self):
        found, problems = merge(closed_over(declarations_of(self.module)), ())
        assert problems == []
        return found


@pytest.fixture(
    params=[
        {},
        {"code_name": "<cell line: 2>"},
        {"get_ipython": lambda: None, "__file__": "run_with_%run.py"},
    ],
    ids=["ipykernel", "IPython 8.0", "%run"],
)
def notebook(request):
    return Notebook(**request.param)


def test_a_cell_that_is_run_again_replaces_its_declaration(notebook):
    notebook.run("@asset\ndef x(): return 1")
    notebook.run("@asset\ndef x(): return 2", 568)
    assert list(notebook.declared()) == ["x"]
    assert notebook.declared()["x"].function() == 2


def test_a_cell_with_a_loop_that_is_run_again_replaces_all_of_it(notebook):
    cell = "for n in range(2):\n    @asset(f'part_{n}')\n    def part(): ..."
    notebook.run(cell)
    notebook.run(cell)
    assert list(notebook.declared()) == ["part_0", "part_1"]


def test_a_cell_whose_function_was_renamed_replaces_its_declaration(notebook):
    notebook.run("@asset('x')\ndef one(): ...")
    notebook.run("@asset('x')\ndef two(): ...")
    assert notebook.declared()["x"].function.__name__ == "two"


def test_a_cell_that_calls_a_factory_of_a_module_again_replaces_its_declaration(notebook, module):
    module("def factory(name):\n    @asset(name)\n    def part(): ...\n", "users_factory")
    for _ in range(2):
        notebook.run("from users_factory import factory\nfactory('x')")
    assert list(notebook.declared()) == ["x"]


def test_a_cell_that_declares_the_name_of_an_imported_asset_clashes_with_it(notebook, module):
    module("@asset\ndef x(): ...\n", "users_library")
    notebook.run("from users_library import x as theirs\n@asset\ndef x(): ...")
    _, [problem] = merge(closed_over(declarations_of(notebook.module)), ())
    assert "'x' is also declared at" in str(problem)


@pytest.mark.parametrize(
    "of_script",
    [
        {"__file__": "script.py"},
        {"__spec__": ModuleSpec("script", None)},
        {"name": "pipeline"},
    ],
    ids=["python x.py", "python -m x", "module"],
)
def test_a_script_that_declares_a_name_twice_clashes_with_itself(of_script):
    script = Notebook(**of_script)
    script.run("@asset('x')\ndef one(): ...\n@asset('x')\ndef two(): ...")
    _, [problem] = merge(closed_over(declarations_of(script.module)), ())
    assert "'x' is also declared at" in str(problem)
