"""Closure cells and defaults count by the live objects that they hold."""

import pytest


def test_a_class_made_by_a_factory_counts_with_its_cells(read):
    source = """
    def make(n):
        class Tool:
            def run(self): return n, {}
        @asset("x")
        def x(): return Tool().run()
    make({})
    """
    first = read.version(source.format(1, 1))
    assert first == read.version(source.format(1, 1))
    assert first != read.version(source.format(2, 1))
    assert first != read.version(source.format(1, 2))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("datetime.date(2024, 1, 1)", "datetime.date(2024, 1, 2)"),
        ("decimal.Decimal(1)", "decimal.Decimal(2)"),
        ("re.compile('a')", "re.compile('b')"),
        ("Color.RED", "Color.BLUE"),
        ("Row(1)", "Row(2)"),
        ("Text('a')", "Text('b')"),
        ("b'a'", "b'b'"),
        ("(1,)", "[1]"),
        ("1", "True"),
        ("10**5000", "10**5001"),
        ("[[]]", "[[], []]"),
        ("math", "cmath"),
        ("math.floor", "math.ceil"),
    ],
)
def test_simple_values_in_closure_cells_differ(read, one, two):
    source = """
    import cmath, dataclasses, datetime, decimal, enum, math, re
    class Color(enum.Enum): RED, BLUE = 1, 2
    class Text(str): pass
    @dataclasses.dataclass
    class Row: size: int
    def make(thing):
        @asset("x")
        def f(): return thing
    make({})
    """
    assert read.version(source.format(one)) == read.version(source.format(one))
    assert read.version(source.format(one)) != read.version(source.format(two))


def test_values_of_closure_cells_count(read):
    source = """
    import enum, pathlib, datetime
    def make(name, n):
        @asset(name)
        def f(): return n
        return f
    make("a", 1), make("b", 2), make("c", (1, {{"k": {{3, 4}}}}, pathlib.Path("p"))), make("d", {})
    """
    first, second = (
        read.versions(fp_assets=source.format(1)),
        read.versions(fp_assets=source.format(5)),
    )
    assert len({*first.values()}) == 3  # a and d hold the same
    assert {n for n in first if first[n] != second[n]} == {"d"}


def test_functions_and_classes_in_closure_cells_are_followed(read):
    source = """
    def make(inner):
        @asset("x")
        def f(): return inner()
    class Two:
        def __init__(self): self.two = {two}
    def one(): return {one}
    make({inner})
    """
    for inner in ("one", "Two", "[one, Two][0]", "{'k': Two}.get"):
        same = {"one": 1, "two": 2, "inner": inner}
        edited = same | ({"two": 3} if "Two" in inner and "one" not in inner else {"one": 3})
        changes = read.version(source.format(**same)) != read.version(source.format(**edited))
        assert changes is (inner != "{'k': Two}.get")  # a method of a builtin says nothing


def test_the_order_of_functions_in_a_cell_counts(read):
    source = """
    def one(v): return v
    def two(v): return v
    def make(*steps):
        @asset("x")
        def f(): return [step(1) for step in steps]
    make({})
    """
    assert read.version(source.format("one, two")) != read.version(source.format("two, one"))


def test_a_function_inside_a_factory_counts_without_the_rest_of_the_factory(read):
    source = """
    def make():
        scale = {}
        unrelated = {}
        @asset("x")
        def f(): return scale
    make()
    """
    assert read.version(source.format(1, 1)) == read.version(source.format(1, 2))
    assert read.version(source.format(1, 1)) != read.version(source.format(2, 1))


def test_an_object_without_a_stable_text_counts_by_its_type(read):
    source = """
    import threading
    class Mine: pass
    class Proxy:
        def __getattr__(self, name): return Proxy()
        def __call__(self): pass
    class Hostile:
        def __getattr__(self, name): raise RuntimeError(name)
        def __call__(self): pass
    def make(thing):
        @asset("x")
        def f(): return thing
    make({})
    """
    assert read.version(source.format("object()")) == read.version(source.format("object()"))
    assert read.version(source.format("object()")) != read.version(
        source.format("threading.Lock()")
    )
    for made in ("Mine()", "Proxy()", "Hostile()"):
        assert read.version(source.format(made)) == read.version(source.format(made))


def test_assets_of_a_loop_count_their_plain_defaults_and_not_the_list(read):
    source = """
    for day in {}:
        @asset(f"load_{{day}}")
        def load(day=day): return day
    """
    first = read.versions(fp_assets=source.format(["mon", "tue"]))
    second = read.versions(fp_assets=source.format(["mon", "tue", "wed"]))
    assert first["load_mon"] != first["load_tue"]
    assert {n: second[n] for n in first} == first
