"""Attempts that fail and their budget, on a real instance."""

import sys
from pathlib import Path

import pytest
from dagster import in_process_executor
from homes import CHAIN, names_of, run_program


def test_a_click_lifts_a_hold(home):
    module = home.module(FAILS.format(retries=0))
    assert home.exa(module, "fails").failed
    assert home.states(module)["fails"] == "failed"
    (home.folder / "mended").touch()
    assert home.click(module, "fails").success
    assert home.states(module)["fails"] == "fresh"


FAILS = """\
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset(retries={retries}, retry_backoff=0.01, timeout_seconds=None)
def fails():
    if (HERE / "mended").exists():
        return 1
    raise ValueError("last line")


@asset(deps=[fails], timeout_seconds=None)
def below():
    return 2
"""


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_failing_build_is_tried_as_often_as_its_budget_allows(home, retries):
    module = home.module(FAILS.format(retries=retries))
    report = home.exa(module, "below")
    assert [(str(f.node), f.reason) for f in report.failed] == [("fails", "ValueError: last line")]
    assert home.endings("fails") == ["failed"] * (1 + retries)
    verdict = home.status(module)["fails"]
    assert (verdict.version, verdict.shown) == (0, "failed")
    assert verdict.why[-1] == "ValueError: last line"
    assert home.builds("below") == []


def test_a_click_has_the_same_budget(home):
    module = home.module(FAILS.format(retries=2))
    assert not home.click(module, "fails").success
    assert home.endings("fails") == ["failed"] * 3
    assert not home.click(module, "fails").success
    assert home.endings("fails") == ["failed"] * 6


def test_the_whole_error_is_in_a_file_that_the_report_names(home):
    module = home.module(FAILS.format(retries=0))
    [failed] = home.exa(module, "fails").failed
    text = Path(failed.log).read_text()
    assert "Traceback" in text
    assert "raise ValueError" in text


def test_a_retry_that_succeeds_is_a_success(home):
    module = home.module(
        """\
        from pathlib import Path

        from examlops_dagster import asset

        HERE = Path(__file__).parent


        @asset(retries=2, timeout_seconds=None)
        def third_time():
            with (HERE / "tries").open("a") as file:
                file.write("x")
            if len((HERE / "tries").read_text()) < 3:
                raise ValueError("not yet")
            return 1
        """
    )
    report = home.exa(module, "third_time")
    assert report.ok
    assert names_of(report.rebuilt) == ["third_time"]
    assert home.endings("third_time") == ["failed", "failed", "succeeded"]
    assert home.states(module)["third_time"] == "fresh"


@pytest.mark.parametrize("executor", [None, in_process_executor], ids=["default", "in process"])
def test_dagsters_own_command_builds_under_an_executor_that_is_not_ours(home, executor):
    """The default one starts a process for each step."""
    home.write("shared.py", CHAIN + FAILS.format(retries=1))
    named = "executor=in_process_executor" if executor else ""
    home.write(
        "their_defs.py",
        f"""\
        from dagster import in_process_executor

        import shared
        from examlops_dagster.dagster_bridge.definitions import build_definitions

        defs = build_definitions(shared, automation="off", {named})
        """,
    )
    home.declare("PM100")
    done = run_program(
        home.folder, "dagster", "asset", "materialize", "-m", "their_defs", "--select", "*",
        code=1, DAGSTER_HOME=str(home.folder), PYTHONWARNINGS="ignore",
    )  # fmt: skip
    import shared

    assert home.endings("features") == ["succeeded"], done
    assert home.endings("model") == ["succeeded"]
    assert home.endings("fails") == ["failed"] * 2
    assert home.builds("below") == []
    states = home.states(shared)
    assert states["model"] == "fresh"
    assert states["fails"] == "failed"
    del sys.modules["shared"]
