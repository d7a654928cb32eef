import pickle

import pytest

from examlops_dagster.errors import (
    AssetBuildError,
    BuildTimeoutError,
    DefinitionError,
    ExamlopsError,
    LaunchError,
    Problem,
    ResultError,
    StoreError,
    UnknownAssetError,
    UsageError,
)


@pytest.mark.parametrize(
    "kind", [DefinitionError, UsageError, AssetBuildError, LaunchError, StoreError]
)
def test_every_error_is_one_of_this_package(kind):
    assert issubclass(kind, ExamlopsError)


def test_an_unknown_name_is_told_with_the_nearest():
    error = UnknownAssetError("jpcp_modle", ["jpcp_model", "jpcp_features", "PM100"])
    assert error.nearest[0] == "jpcp_model"
    assert str(error).startswith("No asset named 'jpcp_modle' is declared. Did you mean jpcp_model")


def test_an_unknown_name_with_nothing_near_is_told_where_to_look():
    assert "`exa assets list` shows the declared names" in str(UnknownAssetError("x", ["PM100"]))


def test_problems_are_told_once_and_in_order():
    one, two = Problem("a.py:1", "bad", "mend it"), Problem("b.py:1", "worse")
    error = DefinitionError([two, one, two])
    assert error.problems == (one, two)
    assert str(error).splitlines() == [
        "2 problems in the declarations:",
        "  a.py:1: bad → mend it",
        "  b.py:1: worse",
    ]


@pytest.mark.parametrize("kind", [AssetBuildError, BuildTimeoutError, ResultError])
def test_a_build_error_crosses_a_process_whole(kind):
    error = pickle.loads(pickle.dumps(kind("a", "no luck", partition="x", details="traceback")))
    assert type(error) is kind
    assert (error.asset, error.reason, error.partition, error.details) == (
        "a",
        "no luck",
        "x",
        "traceback",
    )
    assert str(error) == "a[x]: no luck"


def test_a_launch_error_is_final_unless_it_says_otherwise():
    assert not LaunchError("no").transient
    assert LaunchError("busy", transient=True).transient
