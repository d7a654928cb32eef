"""Outlines that are kept between processes."""

import os
import textwrap
import time
from pathlib import Path

import pytest
from source_reader import ASSET, BODY, settled

from examlops_dagster.fingerprint import Fingerprints, outliner


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
    soon = time.time() + 3600  # so that a slow machine does not take it for settled
    os.utime(file, (soon, soon))
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
    refused = version()
    folder.unlink()
    assert version() == refused
    assert folder.is_dir()
