"""Names are followed to what they mean: helpers, constants and classes, in whatever module."""

import textwrap

import pytest
from source_reader import BODY, USING, UTILS


def test_a_used_helper_of_another_module_counts(read):
    edited = UTILS.replace("return inner(v)", "return inner(v) + 1")
    assert read.version(USING, fp_utils=UTILS) != read.version(USING, fp_utils=edited)


def test_a_helper_of_a_helper_counts(read):
    edited = UTILS.replace("v * FACTOR", "v + FACTOR")
    assert read.version(USING, fp_utils=UTILS) != read.version(USING, fp_utils=edited)


def test_a_constant_of_a_helper_counts(read):
    edited = UTILS.replace("FACTOR = 2", "FACTOR = 3")
    assert read.version(USING, fp_utils=UTILS) != read.version(USING, fp_utils=edited)


def test_an_unused_helper_of_another_module_does_not_count(read):
    edited = UTILS.replace("def unused(v): return v", "def unused(w): return w + 1")
    assert read.version(USING, fp_utils=UTILS) == read.version(USING, fp_utils=edited)


def test_an_unused_function_of_the_same_module_does_not_count(read):
    assert read.version(BODY) == read.version(
        "def other(): return 5\nNEW = 1\n" + textwrap.dedent(BODY)
    )


@pytest.mark.parametrize(
    "source",
    [
        "import fp_utils\n@asset('x')\ndef x(): return fp_utils.clean(1)",
        "import fp_utils as u\n@asset('x')\ndef x(): return u.clean(1)",
        "from fp_utils import clean as c\n@asset('x')\ndef x(): return c(1)",
        "from fp_utils import *\n@asset('x')\ndef x(): return clean(1)",
        "@asset('x')\ndef x():\n import fp_utils\n return fp_utils.clean(1)",
        "@asset('x')\ndef x():\n from fp_utils import clean\n return clean(1)",
        "from fp_utils import clean\ntwice = lambda v: clean(clean(v))\n@asset('x')\ndef x(): return twice(1)",
        "import functools\nfrom fp_utils import clean\nsure = functools.lru_cache(clean)\n@asset('x')\ndef x(): return sure(1)",
        "import fp_utils\n@asset('x')\ndef x(): return getattr(fp_utils, 'clean')(1)",
    ],
)  # fmt: skip
def test_a_helper_counts_however_it_is_imported(read, source):
    edited = UTILS.replace("v * FACTOR", "v + FACTOR")
    assert read.version(source, fp_utils=UTILS) != read.version(source, fp_utils=edited)


@pytest.mark.parametrize("used", ["fp_pkg.clean(1)", "fp_pkg.tools.clean(1)"])
def test_a_helper_counts_through_the_init_of_a_package(read, used):
    source = f"import fp_pkg\n@asset('x')\ndef x(): return {used}"
    files = {"fp_pkg/__init__": "from .tools import clean\nfrom . import tools\n"}
    first = read.version(source, **{"fp_pkg/tools": UTILS}, **files)
    edited = UTILS.replace("v * FACTOR", "v + FACTOR")
    unused = UTILS.replace("unused(v): return v", "unused(v): return 0")
    assert first != read.version(source, **{"fp_pkg/tools": edited}, **files)
    assert first == read.version(source, **{"fp_pkg/tools": unused}, **files)


def test_a_star_import_in_an_init_is_followed(read):
    source = "from fp_pkg import clean\n@asset('x')\ndef x(): return clean(1)"
    files = {"fp_pkg/__init__": "from fp_pkg.tools import *\n"}
    edited = UTILS.replace("FACTOR = 2", "FACTOR = 3")
    first = read.version(source, **{"fp_pkg/tools": UTILS}, **files)
    assert first != read.version(source, **{"fp_pkg/tools": edited}, **files)


def test_a_module_that_only_the_body_imports_counts_the_same_once_it_is_loaded(read):
    lazy = "@asset('x')\ndef x():\n from fp_utils import clean\n return clean(1)"
    first = read.version(lazy, fp_utils=UTILS)
    second = read.version(f"import fp_utils\n{lazy}", fp_utils=UTILS)
    assert first == second


def test_swapping_two_imported_helpers_changes_the_version(read):
    source = "from fp_utils import {}\n@asset('x')\ndef x(): return a(1) - b(1)"
    utils = "def one(v): return 1\ndef two(v): return 2\n"
    first = read.version(source.format("one as a, two as b"), fp_utils=utils)
    assert first != read.version(source.format("two as a, one as b"), fp_utils=utils)


def test_importing_another_installed_function_under_the_same_name_counts(read):
    source = "from math import {} as f\n@asset('x')\ndef x(): return f(1.5)"
    assert read.version(source.format("floor")) != read.version(source.format("ceil"))


CLASSES = """
    def helper(): return 1
    class Base:
        def run(self): return helper()
    class Model(Base):
        rate = 1
        def fit(self): return self.run()
    @asset("x")
    def x(): return Model().fit()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("rate = 1", "rate = 2"), ("return helper()", "return 2"), ("helper(): return 1", "helper(): return 2")],
)  # fmt: skip
def test_a_used_class_counts_with_its_bases_and_what_its_methods_use(read, old, new):
    assert read.version(CLASSES) != read.version(CLASSES.replace(old, new))


def test_an_upstream_that_is_only_referred_to_does_not_count(read):
    source = """
    @asset("up")
    def up(): return {}
    @asset("x", inputs={{"v": up}}, deps=[up])
    def x(v): return v
    """
    first, second = (
        read.versions(fp_assets=source.format(1)),
        read.versions(fp_assets=source.format(2)),
    )
    assert first["up"] != second["up"]
    assert first["x"] == second["x"]


def test_an_asset_that_is_called_counts_without_its_declaration(read):
    source = """
    @asset("up", retries={})
    def up(): return {}
    @asset("x")
    def x(): return up()
    """
    first = read.versions(fp_assets=source.format(1, 1))
    assert first == read.versions(fp_assets=source.format(2, 1))
    assert first["x"] != read.versions(fp_assets=source.format(1, 2))["x"]
