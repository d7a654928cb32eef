"""One code version wherever it is taken, and a new one once edited code is loaded."""

import importlib
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

from source_reader import ASSET, BODY, USING, UTILS, settled

from examlops_dagster.core.declared import declaration_of
from examlops_dagster.fingerprint import Fingerprints, loaded_code_is_older


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
        thread.join(300)
    assert found == [found[0]] * 4


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
    path = os.pathsep.join((str(tmp_path / "0"), str(Path(__file__).parents[2])))
    for seed in "12":
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
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
