"""What a test needs and this machine may not have: it is skipped then, and in CI it fails."""

import importlib
import os
import warnings

import pytest

IN_CI = os.environ.get("CI") == "true"


def lack(reason):
    """End a test, or leave out a module, that cannot be run here."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def library(name):
    """Import a library of one of the extras."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own import, which is nothing of ours
            return importlib.import_module(name)
    except ImportError as error:
        lack(f"{name} cannot be imported: {error}")
