"""Code that leads back to itself, or very far, comes to an end."""


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
    def version(last: int) -> str:
        terms = ", ".join(f"a{i}.b[{i}]" for i in (*range(5000), last))
        return read.version(f"@asset('x')\ndef x(): return [{terms}]")

    assert version(1) != version(2)
