"""Code without a source file: notebooks, ``exec``, a file that is gone."""

import itertools
import sys
import textwrap
import types
from pathlib import Path

import pytest
from source_reader import ASSET, BODY

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.declared import declaration_of
from examlops_dagster.core.decorators import asset
from examlops_dagster.fingerprint import Fingerprints, code_version


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


@pytest.mark.parametrize(
    "lose", [Path.unlink, lambda file: file.write_text("def (")], ids=["gone", "no longer parses"]
)
def test_a_file_that_cannot_be_read_again_falls_back_to_bytecode(read, lose):
    def version(body: str) -> str:
        (declaration,) = read.declare(fp_assets=ASSET + textwrap.dedent(body))
        lose(Path(declaration.function.__code__.co_filename))
        return Fingerprints().code_version(declaration)

    first = version(BODY)
    assert first == version("\n\n" + BODY)
    assert first != version(BODY.replace("1 + 2", "1 + 400"))
