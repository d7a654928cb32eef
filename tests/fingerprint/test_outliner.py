"""Which statements of a module belong to a name."""

import pytest
from source_reader import UTILS


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


def test_of_two_functions_of_one_name_each_counts_itself(read):
    source = '@asset("a")\ndef _(): return {}\n@asset("b")\ndef _(): return {}\n'
    first, second = (
        read.versions(fp_assets=source.format(1, 1)),
        read.versions(fp_assets=source.format(1, 2)),
    )
    assert first["a"] == second["a"]
    assert first["b"] != second["b"]
