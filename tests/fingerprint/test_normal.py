"""What of the text of a function counts, and what does not."""

import warnings

from source_reader import ASSET, BODY

from examlops_dagster.fingerprint import Fingerprints


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


def test_lambdas_count(read):
    source = 'f = asset("x")(lambda: {})'
    assert read.version(source.format(1)) != read.version(source.format(2))
    assert read.version(source.format(1)) == read.version(source.format(" 1  # one\n"))
