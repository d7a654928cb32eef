"""What a test needs and this machine may not have: it is skipped then, and in CI it fails."""

import importlib
import os
import warnings
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI") == "true"
SHARED = Path(__file__).parents[2] / "shared"
"""Data beside the checkout, which a clone has not."""


def lack(reason):
    """End a test, or leave out a module, that cannot be run here."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def shared(path):
    """Give the marks of tests that read a file or folder of ../shared; in CI they run in any case."""
    found = SHARED / path
    reason = f"no {path} in ../shared beside the checkout"
    return [
        pytest.mark.shared,
        pytest.mark.skipif(not found.exists() and not IN_CI, reason=reason),
    ]


def library(name):
    """Import a library of one of the extras."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own import, which is nothing of ours
            return importlib.import_module(name)
    except ImportError as error:
        lack(f"{name} cannot be imported: {error}")
