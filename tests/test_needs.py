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


@pytest.mark.parametrize(("in_ci", "is_left_out"), [(False, True), (True, False)])
def test_what_reads_shared_data_is_left_out_without_it_but_in_ci(monkeypatch, in_ci, is_left_out):
    monkeypatch.setattr(needs, "IN_CI", in_ci)
    marked, left_out = needs.shared("no/such/data")
    assert marked.name == "shared"
    assert left_out.args == (is_left_out,)
    assert "no/such/data" in left_out.kwargs["reason"]


def test_what_is_there_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(needs, "SHARED", tmp_path)
    (tmp_path / "data").touch()
    assert needs.shared("data")[1].args == (False,)
