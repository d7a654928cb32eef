"""What happens to a test that cannot be run here."""

import needs
import pytest


def test_a_library_that_is_there_is_imported():
    assert needs.library("json").dumps({}) == "{}"


def test_without_a_library_a_test_is_skipped(monkeypatch):
    monkeypatch.setattr(needs, "IN_CI", False)
    with pytest.raises(pytest.skip.Exception, match="no_such_library cannot be imported"):
        needs.library("no_such_library")


def test_in_ci_it_fails(monkeypatch):
    monkeypatch.setattr(needs, "IN_CI", True)
    with pytest.raises(pytest.fail.Exception, match="no_such_library cannot be imported"):
        needs.library("no_such_library")
