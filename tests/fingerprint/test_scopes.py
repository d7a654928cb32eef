"""Which names are local to a function, and which are those of its module."""

import pytest


def test_a_local_name_is_not_the_global_of_that_name(read):
    source = """
    rows = {}
    @asset("x")
    def x(rows=()): return [row for row in rows]
    """
    assert read.version(source.format(1)) == read.version(source.format(2))


@pytest.mark.parametrize(
    "binds",
    [
        "for v in (): pass",
        "with open(0) as v: pass",
        "import os as v",
        "v: int",
        "def v(): pass",
        "class v: pass",
        "del v",
        "[(v := w) for w in ()]",
        "try: pass\n    except OSError as v: pass",
        "match 0:\n        case [*v]: pass",
        "match 0:\n        case {'a': v}: pass",
        "match 0:\n        case {'a': 1, **v}: pass",
        "w = [v for v in ()], {v for v in ()}, {v: v for v in ()}; v = w",
    ],
)
def test_every_way_to_bind_a_name_makes_it_local(read, binds):
    source = f"v = NUMBER\n@asset('x')\ndef x():\n    {binds}\n    return v\n"
    assert read.version(source.replace("NUMBER", "1")) == read.version(
        source.replace("NUMBER", "2")
    )


def test_a_name_declared_global_is_the_global_one(read):
    source = """
    v = {}
    @asset("x")
    def x():
        global v
        v = v + 1
        def inner():
            return [v for _ in range(v)]
        return inner()
    """
    assert read.version(source.format(1)) != read.version(source.format(2))


def test_the_outer_name_of_a_comprehension_over_itself_counts(read):
    source = "v = {}\n@asset('x')\ndef x(): return [v for v in v]"
    assert read.version(source.format([1])) != read.version(source.format([2]))


def test_a_name_bound_in_a_class_still_refers_to_the_global_one(read):
    source = """
    def clean(v): return {}
    class Tool:
        clean = staticmethod(clean)
    @asset("x")
    def x(): return Tool.clean(1)
    """
    assert read.version(source.format(1)) != read.version(source.format(2))
