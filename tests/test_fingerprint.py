from __future__ import annotations

import functools
import importlib
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from pathlib import Path

import pytest

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.declared import declaration_of, declarations_of
from examlops_dagster.core.decorators import asset
from examlops_dagster.errors import DefinitionError
from examlops_dagster.fingerprint import (
    Fingerprints,
    code_version,
    loaded_code_is_older,
    outliner,
)

ASSET = "from examlops_dagster.core.decorators import asset, sink\n"


class Reader:
    """Writes modules into a new folder each time, imports them and gives their code versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = itertools.count()
        self.loaded: set[str] = set()

    def declare(self, **files: str) -> list[Declaration]:
        folder = self.folder / str(next(self.count))
        names = []
        for name, source in files.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
            names.append(name.partition("/")[0])
        self.forget(names)
        sys.path[:] = [str(folder), *(p for p in sys.path if not p.startswith(str(self.folder)))]
        importlib.invalidate_caches()
        self.loaded.update(names)
        return declarations_of(importlib.import_module("fp_assets"))

    def forget(self, names: list[str]) -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] in names:
                del sys.modules[name]

    def versions(self, **files: str) -> dict[str, str]:
        declarations = self.declare(
            **files | {"fp_assets": ASSET + textwrap.dedent(files["fp_assets"])}
        )
        fingerprints = Fingerprints()
        return {d.name: fingerprints.code_version(d) for d in declarations}

    def version(self, source: str, **files: str) -> str:
        (found,) = self.versions(fp_assets=source, **files).values()
        return found


@pytest.fixture
def read(tmp_path: Path):
    reader = Reader(tmp_path)
    before = list(sys.path)
    yield reader
    sys.path[:] = before
    reader.forget([*reader.loaded, "fp_assets"])


BODY = """
    @asset("x")
    def x():
        return 1 + 2
"""


def test_comments_docstrings_formatting_and_type_comments_do_not_count(read):
    other = '''
    # a comment

    @asset("x")
    def x(
    ):
        """A docstring."""
        "a string that does nothing"
        return (1
                + 2)  # type: ignore[int]
    '''
    assert read.version(BODY) == read.version(other)


def test_a_body_that_changes_changes_the_version(read):
    assert read.version(BODY) != read.version(BODY.replace("1 + 2", "1 + 3"))


def test_a_body_of_pass_equals_a_body_of_a_docstring(read):
    assert read.version('@asset("x")\ndef x(): pass') == read.version('@asset("x")\ndef x():\n "d"')


def test_a_source_that_python_warns_about_is_read(read):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (declaration,) = read.declare(fp_assets=ASSET + "@asset\ndef x(): return '\\d'  # one\n")
        (other,) = read.declare(fp_assets=ASSET + "@asset\ndef x(): return '\\d'\n")
    assert Fingerprints().code_version(declaration) == Fingerprints().code_version(other)


def test_a_number_and_the_same_text_differ(read):
    assert read.version('@asset("x")\ndef x(): return 1') != read.version(
        '@asset("x")\ndef x(): return "1"'
    )


def test_annotations_of_functions_and_variables_do_not_count(read):
    plain = '@asset("x")\ndef x(a=1):\n b = a\n return b'
    typed = '@asset("x")\ndef x(a: int = 1) -> "int":\n b: int = a\n return b'
    assert read.version(plain) == read.version(typed)


def test_annotations_of_fields_count(read):
    source = """
    class Row:
        size: {}
    @asset("x")
    def x(): return Row()
    """
    assert read.version(source.format("int")) != read.version(source.format("str"))


def test_defaults_count(read):
    source = '@asset("x")\ndef x(a={}): return a'
    assert read.version(source.format(1)) != read.version(source.format(2))


USING = """
    from fp_utils import clean
    @asset("x")
    def x(): return clean(1)
"""
UTILS = """
    FACTOR = 2
    def inner(v): return v * FACTOR
    def clean(v): return inner(v)
    def unused(v): return v
"""


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


def test_a_local_name_is_not_the_global_of_that_name(read):
    source = """
    rows = {}
    @asset("x")
    def x(rows=()): return [row for row in rows]
    """
    assert read.version(source.format(1)) == read.version(source.format(2))


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 1", "LIMIT = 2"),
        ("LIMIT = 1\nLIMIT += 1", "LIMIT = 1\nLIMIT += 2"),
        ("BASE = 1\nLIMIT = BASE", "BASE = 2\nLIMIT = BASE"),
        ("if True:\n LIMIT = 1\nelse:\n LIMIT = 2", "if True:\n LIMIT = 1\nelse:\n LIMIT = 3"),
        ("FAST = True\nLIMIT = 1\nif FAST:\n LIMIT = 2", "FAST = False\nLIMIT = 1\nif FAST:\n LIMIT = 2"),
        ("try:\n LIMIT = 1\nexcept OSError:\n LIMIT = 2", "try:\n LIMIT = 1\nexcept OSError:\n LIMIT = 3"),
        ("with open(__file__):\n LIMIT = 1", "with open(__file__):\n LIMIT = 2"),
        ("LIMIT, OTHER = 1, 2", "LIMIT, OTHER = 1, 3"),
        ("LIMIT: int = 1", "LIMIT: int = 2"),
        ("LIMIT = {}\nLIMIT['a'] = 1", "LIMIT = {}\nLIMIT['a'] = 2"),
        ("LIMIT = {}\nLIMIT.update(a=1)", "LIMIT = {}\nLIMIT.update(a=2)"),
        ("for LIMIT in (1, 2): pass", "for LIMIT in (1, 3): pass"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("imported", [False, True])
def test_a_constant_counts_wherever_it_is_assigned(read, before, after, imported):
    use = "@asset('x')\ndef x(): return LIMIT"
    if imported:
        source = f"from fp_consts import LIMIT\n{use}"
        assert read.version(source, fp_consts=before) != read.version(source, fp_consts=after)
    else:
        assert read.version(f"{before}\n{use}") != read.version(f"{after}\n{use}")


def test_of_two_imports_of_a_name_the_one_that_holds_counts(read):
    source = """
    try:
        from fp_missing import clean
    except ImportError:
        from fp_utils import clean
    import fp_other
    @asset("x")
    def x(): return clean(1)
    """
    edited = UTILS.replace("FACTOR = 2", "FACTOR = 3")
    first = read.version(source, fp_utils=UTILS, fp_other="")
    assert first != read.version(source, fp_utils=edited, fp_other="")


def test_what_only_the_type_checker_imports_does_not_count(read):
    source = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from fp_utils import clean
    class Row:
        held: "clean"
    @asset("x")
    def x(): return Row
    """
    edited = UTILS.replace("FACTOR = 2", "FACTOR = 3")
    assert read.version(source, fp_utils=UTILS) == read.version(source, fp_utils=edited)


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


def test_a_class_of_a_notebook_counts(monkeypatch):
    def version(rate: int, plus: int, text: str) -> str:
        module = types.ModuleType("fp_notebook")
        monkeypatch.setitem(sys.modules, "fp_notebook", module)
        module.asset = asset
        exec(
            f"""class Base:
    @staticmethod
    def plus(): return {plus}
class Tool(Base):
    rate = {rate}
    @property
    def run(self): return {text!r}
@asset('x')
def x(): return Tool().run""",
            vars(module),
        )
        return code_version(declaration_of(module.x))

    first = version(1, 1, "a")
    assert first == version(1, 1, "a")
    assert len({first, version(2, 1, "a"), version(1, 2, "a"), version(1, 1, "b")}) == 4


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


def test_a_list_that_holds_itself_ends(read):
    source = """
    def make(thing):
        @asset("x")
        def f(): return thing
    knot = [1]
    knot.extend([knot, knot])
    make(knot)
    """
    assert read.version(source) == read.version(source)


def test_threads_that_share_fingerprints_agree(read):
    ring = "".join(f"def f{i}(): return f{(i + 1) % 100}()\n" for i in range(100))
    assets = "".join(f"@asset\ndef a{i}(): return f{i}()\n" for i in range(100))
    declarations = read.declare(fp_assets=ASSET + ring + assets)
    fingerprints = Fingerprints()
    found: list[list[str]] = []
    threads = [
        threading.Thread(
            target=lambda: found.append([fingerprints.code_version(d) for d in declarations])
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4


def test_a_name_bound_in_a_class_still_refers_to_the_global_one(read):
    source = """
    def clean(v): return {}
    class Tool:
        clean = staticmethod(clean)
    @asset("x")
    def x(): return Tool.clean(1)
    """
    assert read.version(source.format(1)) != read.version(source.format(2))


def test_recursion_ends(read):
    source = """
    def even(n): return n == 0 or odd(n - 1)
    def odd(n): return n != 0 and even(n - {})
    @asset("x")
    def x(): return even(10) or x
    """
    assert read.version(source.format(1)) != read.version(source.format(2))


def test_modules_that_import_each_other_end(read):
    source = "from fp_utils import *\n@asset('x')\ndef x(): return clean(missing)"
    files = {"fp_utils": "from fp_other import *\nfrom fp_other import b\ndef a(): return b()\n"}
    other = "from fp_utils import *\ndef b(): return a()\ndef clean(v): return {}\n"
    first = read.version(source, fp_other=other.format(1), **files)
    assert first != read.version(source, fp_other=other.format(2), **files)


def test_a_chain_of_5000_functions_is_followed_to_its_end(read):
    chain = "".join(f"def f{i}(): return f{i + 1}()\n" for i in range(5000))
    source = "from fp_utils import f0\n@asset('x')\ndef x(): return f0()"
    first = read.version(source, fp_utils=chain + "def f5000(): return 1\n")
    assert first != read.version(source, fp_utils=chain + "def f5000(): return 2\n")


def test_an_expression_of_5000_terms_is_no_problem(read):
    terms = ", ".join(f"a{i}.b[{i}]" for i in range(5000))
    assert read.version(f"@asset('x')\ndef x(): return [{terms}]")


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


def test_of_two_functions_of_one_name_each_counts_itself(read):
    source = '@asset("a")\ndef _(): return {}\n@asset("b")\ndef _(): return {}\n'
    first, second = (
        read.versions(fp_assets=source.format(1, 1)),
        read.versions(fp_assets=source.format(1, 2)),
    )
    assert first["a"] == second["a"]
    assert first["b"] != second["b"]


def test_lambdas_count(read):
    source = 'f = asset("x")(lambda: {})'
    assert read.version(source.format(1)) != read.version(source.format(2))
    assert read.version(source.format(1)) == read.version(source.format(" 1  # one\n"))


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


def declared_by(source: str, **names: object) -> Declaration:
    space: dict[str, object] = {"asset": asset, **names}
    exec(source, space)
    found = declaration_of(space["x"])
    assert found is not None
    return found


def test_code_without_source_counts_by_its_bytecode():
    source = "@asset('x')\ndef x(): return {}"
    first = code_version(declared_by(source.format(1)))
    assert first == code_version(declared_by("\n\n" + source.format(1)))
    assert first != code_version(declared_by(source.format(2)))


def test_code_without_source_follows_its_live_names():
    source = "LIMIT = {}\ndef helper(): return LIMIT\n@asset('x')\ndef x(): return helper()"
    assert code_version(declared_by(source.format(1))) != code_version(
        declared_by(source.format(2))
    )


def test_a_notebook_counts_the_names_as_they_are_now():
    space: dict[str, object] = {"asset": asset}
    exec("def helper(): return 1\n@asset('x')\ndef x(): return helper()", space)
    declaration = declaration_of(space["x"])
    fingerprints = Fingerprints()
    first = fingerprints.code_version(declaration)
    exec("def helper(): return 2", space)
    assert fingerprints.code_version(declaration) != first


def test_a_cell_whose_text_is_known_counts_without_comments(monkeypatch):
    import linecache

    def cell(text: str) -> Declaration:
        name = f"<ipython-input-{next(cells)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        space: dict[str, object] = {"asset": asset}
        exec(compile(text, name, "exec"), space)
        return declaration_of(space["x"])

    cells = itertools.count()
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    first = code_version(cell("@asset('x')\ndef x():\n    return 1\n"))
    assert first == code_version(cell("# one\n@asset('x')\ndef x():\n    return 1  # 1\n"))
    assert first != code_version(cell("@asset('x')\ndef x():\n    return 2\n"))


def test_a_file_that_is_gone_falls_back_to_bytecode(read):
    (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(BODY))
    Path(declaration.function.__code__.co_filename).unlink()
    assert len(Fingerprints().code_version(declaration)) == 16


def test_a_file_that_no_longer_parses_falls_back_to_bytecode(read):
    (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(BODY))
    Path(declaration.function.__code__.co_filename).write_text("def (")
    assert len(Fingerprints().code_version(declaration)) == 16


def test_equal_sources_in_different_folders_have_equal_versions(read):
    source = f"import os\nHERE = os.path.dirname(__file__)\n{textwrap.dedent(USING)}"
    assert read.version(source, fp_utils=UTILS) == read.version(source, fp_utils=UTILS)


def test_an_installed_package_counts_the_rest_of_itself(read, tmp_path):
    def version(factor: int) -> str:
        read.forget(["fp_installed"])
        folder = tmp_path / str(factor) / "site-packages"
        package = folder / "fp_installed"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "utils.py").write_text(f"def clean(): return {factor}\n")
        (package / "a.py").write_text(
            f"{ASSET}from fp_installed.utils import clean\n@asset\ndef x(): return clean()\n"
        )
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        module = importlib.import_module("fp_installed.a")
        read.loaded.add("fp_installed")
        sys.path.remove(str(folder))
        return Fingerprints().code_version(declaration_of(module.x))

    assert version(1) != version(2)


def test_an_override_is_returned_unchanged():
    declaration = Declaration("x", code_version="v7", code_deps=("missing",))
    assert code_version(declaration) == "v7"


@pytest.fixture
def deps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def version(*code_deps: object, **more: object) -> str:
        declaration = Declaration("x", code_deps=code_deps, where="here.py:1", **more)
        return Fingerprints().code_version(declaration)

    return version


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_file_in_code_deps_counts(deps, tmp_path, as_path):
    (tmp_path / "query.sql").write_text("select 1")
    first = deps(as_path("query.sql"))
    (tmp_path / "query.sql").write_text("select 2")
    assert deps(as_path("query.sql")) != first


def test_a_folder_in_code_deps_counts_contents_and_names_but_not_its_place(deps, tmp_path):
    for folder, name, text in (("a", "q", "1"), ("b", "q", "1"), ("c", "r", "1"), ("d", "q", "2")):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / name).write_text(text)
    (tmp_path / "b" / "__pycache__").mkdir()
    (tmp_path / "b" / "__pycache__" / "x.pyc").write_text("")
    assert deps("a") == deps("b")
    assert len({deps(folder) for folder in "acd"}) == 3


def test_paths_in_code_deps_start_at_the_folder_of_the_function(read, tmp_path):
    source = f"{ASSET}@asset('x', code_deps='fp_query.sql')\ndef x(): return 1"
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "fp_query.sql").write_text("select 1")
    (declaration,) = read.declare(fp_assets=source)
    assert Fingerprints().code_version(declaration)


def test_a_module_in_code_deps_counts_as_a_whole_without_comments(deps, tmp_path):
    def version(text: str) -> str:
        (tmp_path / "whole.py").write_text(text)
        module = types.ModuleType("whole")
        module.__file__ = str(tmp_path / "whole.py")
        return deps(module)

    first = version("A = 1\ndef f(): return 1\n")
    assert first == version("A = 1  # one\n\n\ndef f(): return 1\n")
    assert first != version("A = 1\ndef f(): return 2\n")


def test_a_package_in_code_deps_counts_all_its_python_files(deps, tmp_path):
    package = types.ModuleType("pkg")
    package.__path__ = [str(tmp_path / "pkg")]
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("A = 1\n")
    first = deps(package)
    (tmp_path / "pkg" / "data.txt").write_text("not counted")
    assert deps(package) == first
    (tmp_path / "pkg" / "b.py").write_text("B = 1\n")
    assert deps(package) != first


def test_functions_and_classes_in_code_deps_count(read):
    source = """
    import textwrap
    def helper(): return {}
    class Tool:
        rate = {}
    @asset("x", code_deps=[helper, Tool, textwrap.dedent])
    def x(): return 1
    """
    first = read.version(source.format(1, 1))
    assert first != read.version(source.format(2, 1))
    assert first != read.version(source.format(1, 2))


def test_missing_paths_in_code_deps_are_all_reported(deps):
    with pytest.raises(DefinitionError) as caught:
        deps("missing.sql", Path("gone"))
    assert [p.where for p in caught.value.problems] == ["here.py:1", "here.py:1"]
    assert "'missing.sql'" in str(caught.value)
    assert all(p.remedy for p in caught.value.problems)


def test_a_command_counts_its_words_and_the_files_it_names_and_not_the_function(deps, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    command = (sys.executable, "train.py", "--lr", "0.1")
    first = deps(command=command)
    assert first == deps(command=command, function=lambda: 5)
    assert first != deps(command=(*command[:3], "0.2"))
    script.write_text("print(2)")
    assert first != deps(command=command)


def test_the_interpreter_of_a_command_does_not_count(deps, monkeypatch):
    first = deps(command=(sys.executable, "-c", "pass"))
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert deps(command=(sys.executable, "-c", "pass")) == first


def settled(path: str) -> None:
    os.utime(path, (1_600_000_000, 1_600_000_000))


@pytest.fixture
def cached(read, tmp_path):
    """Gives a declaration and a function that fingerprints it as a new process would."""
    (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(BODY))
    file = declaration.function.__code__.co_filename
    settled(file)
    folder = tmp_path / "cache"
    return file, folder, lambda: Fingerprints(folder).code_version(declaration)


def test_a_cached_outline_is_used_without_parsing(cached, monkeypatch):
    _, _, version = cached
    first = version()
    monkeypatch.setattr(outliner.ast, "parse", lambda _: pytest.fail("parsed"))
    assert version() == first


def test_a_changed_file_is_outlined_anew(cached):
    file, _, version = cached
    first = version()
    Path(file).write_text(Path(file).read_text().replace("1 + 2", "1 + 4"))
    assert version() != first


def test_a_file_that_was_just_written_is_not_cached(cached):
    file, folder, version = cached
    Path(file).touch()
    version()
    assert not folder.exists()


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"torn"])
def test_a_corrupt_cache_is_ignored_and_rewritten(cached, damage):
    _, folder, version = cached
    first = version()
    (kept,) = folder.iterdir()
    good = kept.read_bytes()
    kept.write_bytes(damage or good[:-3])
    assert version() == first
    assert kept.read_bytes() == good


def test_a_cache_folder_that_cannot_be_written_is_no_problem(cached):
    _, folder, version = cached
    folder.write_text("a file where a folder should be")
    assert len(version()) == 16


def test_a_version_is_the_same_in_another_process(read, tmp_path):
    source = """
    import pathlib
    def make(held):
        @asset("x")
        def x(): return held
    def one(): return 1
    def two(): return 2
    def three(): return 3
    make({"a", "b", "c", ("d", 1), pathlib.Path("e"), one, two, three})
    """
    here = read.version(source)
    script = (
        "import fp_assets; from examlops_dagster.fingerprint import code_version;"
        "from examlops_dagster.core.declared import declarations_of;"
        "print(code_version(declarations_of(fp_assets)[0]))"
    )
    path = os.pathsep.join((str(tmp_path / "0"), str(Path(__file__).parents[1])))
    for seed in "12":
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


def test_a_server_can_tell_that_a_file_was_edited_after_it_was_read(read):
    (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(BODY))
    assert not loaded_code_is_older(declaration)
    settled(declaration.function.__code__.co_filename)
    assert loaded_code_is_older(declaration)


def test_an_edited_file_counts_once_its_module_is_reloaded(read):
    (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(BODY))
    fingerprints = Fingerprints()
    first = fingerprints.code_version(declaration)
    file = Path(declaration.function.__code__.co_filename)
    file.write_text(file.read_text().replace("1 + 2", "1 + 400"))
    settled(str(file))
    assert fingerprints.code_version(declaration) == first
    module = importlib.reload(sys.modules["fp_assets"])
    assert fingerprints.code_version(declaration_of(module.x)) != first
