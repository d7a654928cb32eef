"""Decorators, ours and foreign ones, and callables that are no plain functions."""

import functools

import pytest
from source_reader import ASSET

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.fingerprint import Fingerprints


def test_arguments_of_our_decorators_do_not_count(read):
    plain = '@asset("x")\ndef x(): return 1'
    full = """
    from examlops_dagster.core.freshness import Manual
    def up(): return 3
    @asset("x", freshness=Manual, tags={"a": "b"}, retries=3, deps=["y"], metadata={"u": up()})
    @sink("./x.json")
    def x(): return 1
    """
    assert read.version(plain) == read.version(full)


@pytest.mark.parametrize(
    "source",
    [
        'import examlops_dagster.core.decorators as d\n@d.asset("x")\ndef x(): return 1',
        'from fp_utils import asset as a\n@a("x")\ndef x(): return 1',
        'import fp_utils as u\n@u.asset("x")\ndef x(): return 1',
        "@asset\ndef x(): return 1",
    ],
)  # fmt: skip
def test_our_decorators_are_known_under_any_name(read, source):
    plain = '@asset("x")\ndef x(): return 1'
    assert read.version(source, fp_utils=ASSET) == read.version(plain)


FOREIGN = """
    import functools
    def retry(times):
        def decorate(function):
            {wraps}
            def wrapper(*a):
                for _ in range(times): return function(*a) + {plus}
            return wrapper
        return decorate
    @asset("x")
    @retry({times})
    def x(): return {body}
"""


@pytest.mark.parametrize("wraps", ["@functools.wraps(function)", ""])
def test_a_foreign_decorator_counts_with_its_arguments_and_what_it_wraps(read, wraps):
    same = {"wraps": wraps, "plus": 1, "times": 1, "body": 1}
    versions = {
        read.version(FOREIGN.format(**same | edit))
        for edit in ({}, {"plus": 2}, {"times": 2}, {"body": 2})
    }
    assert len(versions) == 4


@pytest.mark.parametrize(
    "made",
    [
        "functools.partial(work, {n})",
        "functools.partial(work, v={n})",
        "functools.lru_cache(work{n})",
        "Tool({n}).run",
        "Tool({n})",
        "Tool.make{n}",
        "functools.wraps(work)(lambda: {n})",
    ],
)
def test_callables_of_other_kinds_count(read, made):
    source = """
    import functools
    def work(v): return v
    def work1(v): return v
    def work2(v): return v + 1
    class Tool:
        def __init__(self, n): self.n = n
        def __call__(self): return {call}
        def run(self): return self.n
        @classmethod
        def make1(cls): return 1
        @classmethod
        def make2(cls): return 2
    def declare(f):
        @asset("x")
        def x(): return f()
    declare({made})
    """
    first = read.version(source.format(made=made.format(n=1), call=1))
    assert first == read.version(source.format(made=made.format(n=1), call=1))
    assert first != read.version(source.format(made=made.format(n=2), call=1))
    if made == "Tool({n})":
        assert first != read.version(source.format(made=made.format(n=1), call=2))


def test_a_partial_can_be_the_production_function():
    def work(v):
        return v

    versions = {
        Fingerprints().code_version(Declaration("x", function=functools.partial(work, n)))
        for n in (1, 2)
    }
    assert len(versions) == 2
