"""`make` on a machine that lacks something says what, and how to get it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import lack

REPOSITORY = Path(__file__).parents[1]

if shutil.which("make") is None:
    lack("there is no make here")


def make(*arguments):
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def python(tmp_path):
    """Write an interpreter that is not quite one."""

    def write(script):
        path = tmp_path / "python3"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return [f"PYTHON={path}", f"VENV={tmp_path / 'venv'}"]

    return write


def test_make_alone_shows_the_targets():
    told = make().stdout
    assert all(f"make {target} " in told for target in ("demo", "dev", "test", "bench", "clean"))


def test_a_missing_ensurepip_names_the_package(python):
    without = python(f'case "$*" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"')
    done = make("venv", *without)
    version = "{}.{}".format(*sys.version_info)
    assert done.returncode == 2
    assert f"apt-get install python{version}-venv" in done.stderr


def test_a_python_that_is_too_old_is_told(python):
    done = make("venv", *python("echo 3.9"))
    assert done.returncode == 2
    assert "is Python 3.9, and this needs 3.10 to 3.13" in done.stderr


def test_a_python_that_does_not_exist_is_told(tmp_path):
    done = make("venv", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 2
    assert "there is no no-such-python here" in done.stderr
