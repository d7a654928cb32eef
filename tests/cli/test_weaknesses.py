"""The weaknesses W1 to W9, W26 and W29 of the system that this replaces, one test each."""

import resource

import pytest

PLANT = """\
import json
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


def log(name, line):
    with (HERE / name).open("a") as file:
        file.write(line + chr(10))


@asset
def prices():
    return {"gold": 7}


@asset(deps=["trace"], inputs={"prices": prices})
def w4(prices, **versions):
    log("w4.log", json.dumps([prices, versions], sort_keys=True))


@asset
def w4_outside(**versions):
    log("w4.log", json.dumps(versions, sort_keys=True))


@asset(deps=["trace"])
def w5_features(**versions):
    return 1


@asset(deps=[w5_features])
def w5_model(**versions):
    log("w5.log", "model")


@asset(deps=["trace", w5_features])
def w5_other(**versions):
    log("w5.log", "other")


@asset(deps=["weather"])
def w6_same(**versions):
    log("w6.log", "same")
    return {"always": "equal"}


@asset(inputs={"same": w6_same})
def w6_reader(same):
    log("w6.log", "reader")
"""

W7 = """\
from examlops_dagster import asset

LIMIT = 10


def helper(number):
    return number + LIMIT


@asset(deps=["trace", "weather"])
def w7(**versions):
    return helper(1)
"""


@pytest.fixture(scope="module")
def plant(shared):
    shared.write("plant.py", PLANT)
    shared.write("seven.py", W7)
    shared.write("pyproject.toml", '[tool.examlops]\nmodules = ["plant", "seven"]\n')
    for source in ("trace", "weather", "extra"):
        shared("assets", "declare", source)
    # what the code leaves out, the command line fills
    shared("assets", "declare", "w4_outside", "--deps", "trace,prices,extra")
    targets = ("w4", "w4_outside", "w5_model", "w5_other", "w6_reader", "w7")
    shared("assets", "materialize", *targets)
    return shared


def test_w1_an_upstream_that_moves_during_a_build_leaves_the_result_stale(exa):
    exa("assets", "declare", "PM100")
    exa.write(
        "moving.py",
        """\
        import subprocess
        import sys

        from examlops_dagster import asset

        @asset(deps=["PM100"])
        def model(**upstream):
            print("read", upstream)
            command = [sys.executable, "-m", "examlops_dagster.cli", "assets", "source-changed"]
            subprocess.run([*command, "PM100"], check=True)
        """,
    )
    done = exa("-m", "moving", "assets", "materialize", "model")
    assert "read {'PM100': 1}" in done.err
    assert done.out == "Materialized model: rebuilt PM100, model\n"
    [source, model] = exa("-m", "moving", "assets", "status", "--json").json
    assert (source["state"], source["version"]) == ("fresh", 2)
    assert (model["state"], model["version"]) == ("runnable_stale", 1)
    assert model["reasons"] == ["upstream PM100 changed (1 → 2)"]
    [build] = exa("-m", "moving", "assets", "history", "model", "--json").json
    assert build["built_from"] == {"PM100": 1}


def test_w2_nothing_is_built_without_a_function(exa):
    exa("assets", "declare", "PM100")
    exa("assets", "declare", "model", "--kind", "model", "--deps", "PM100")
    done = exa("assets", "materialize", "model", code=2)
    assert done.out == ""
    assert "model is declared without a production function" in done.err
    assert "-m MODULE" in done.err
    assert done.is_quiet
    assert exa.versions() == {"PM100": 0, "model": 0}
    assert exa("assets", "history", "model").out == ""


def test_w3_a_typo_is_told_with_the_nearest_names_and_leaves_no_trace(seed):
    before = seed.files()
    done = seed("-m", "pipeline", "assets", "materialize", "jpcp_modle", code=2)
    assert done.out == ""
    assert "No asset named 'jpcp_modle' is declared. Did you mean jpcp_model" in done.err
    for command in ("status", "history", "plan", "source-changed", "adopt"):
        asked = seed("-m", "pipeline", "assets", command, "jpcp_modle", code=2)
        assert "Did you mean jpcp_model" in asked.err
        assert asked.is_quiet
    assert set(seed.files()) - set(before) == set()
    listed = seed("-m", "pipeline", "assets", "list", "--all", "--json").json
    assert [row["name"] for row in listed] == ["PM100", "jpcp_features", "jpcp_model"]


def test_w4_a_function_gets_all_declared_inputs(plant):
    assert sorted(plant.lines("w4.log")) == [
        '[{"gold": 7}, {"trace": 1}]',
        '{"extra": 1, "prices": 1, "trace": 1}',
    ]
    [build] = plant("assets", "history", "w4", "--json").json
    assert build["built_from"] == {"trace": 1, "prices": 1}
    [build] = plant("assets", "history", "w4_outside", "--json").json
    assert build["built_from"] == {"trace": 1, "prices": 1, "extra": 1}


def test_w5_force_leaves_sources_and_fresh_ancestors_alone(plant):
    before = plant.versions()
    done = plant("assets", "materialize", "w5_model", "--force")
    assert done.out == (
        "Materialized w5_model: rebuilt w5_model\n  skipped (fresh): trace, w5_features\n"
    )
    assert plant.versions() == {**before, "w5_model": 2}
    assert plant.lines("w5.log").count("model") == 2
    assert plant.states()["w5_other"] == "fresh"


def test_w6_an_identical_rebuild_does_not_make_downstream_stale(plant):
    plant("assets", "source-changed", "weather")
    assert plant.states()["w6_reader"] == "runnable_stale"
    done = plant("assets", "materialize", "w6_reader")
    assert done.out == (
        "Materialized w6_reader: rebuilt w6_same\n"
        "  skipped (fresh): weather\n"
        "  unchanged (not rebuilt): w6_reader\n"
    )
    assert plant.lines("w6.log") == ["same", "reader", "same"]
    versions, states = plant.versions(), plant.states()
    assert (versions["weather"], versions["w6_same"], versions["w6_reader"]) == (2, 1, 1)
    assert (states["w6_same"], states["w6_reader"]) == ("fresh", "fresh")


def test_w7_changed_code_makes_stale_and_a_changed_comment_does_not(plant):
    def reasons(text):
        plant.write("seven.py", text)
        [verdict] = plant("assets", "status", "w7", "--json").json
        return [r for r in verdict["reasons"] if "weather changed" not in r]

    assert reasons(W7) == []
    assert (
        reasons(W7.replace("    return helper(1)", "    # ten more\n    return helper( 1 )")) == []
    )
    assert reasons(W7.replace("helper(1)", "helper(2)")) == ["code changed"]
    assert reasons(W7.replace("number + LIMIT", "number - LIMIT")) == ["code changed"]
    assert reasons(W7.replace("LIMIT = 10", "LIMIT = 11")) == ["code changed"]
    assert reasons(W7.replace('"trace", ', "")) == ["upstream trace removed"]
    added = W7.replace('"trace", ', '"trace", "extra", ')
    assert reasons(added) == ["upstream extra not recorded at build"]
    assert reasons(W7) == []


def test_w8_an_undeclared_upstream_is_told_with_the_command_that_declares_it(exa):
    exa("assets", "declare", "features", "--deps", "PM100")
    exa("assets", "declare", "model", "--kind", "model", "--deps", "features")
    assert exa("assets", "graph").out == (
        "PM100 (undeclared)\nfeatures ← PM100\nmodel ← features\n"
    )
    assert exa.states() == {
        "PM100": "undeclared",
        "features": "stale_waiting_for_upstream",
        "model": "stale_waiting_for_upstream",
    }
    assert "exa assets declare PM100" in exa("assets", "status", "features").out
    done = exa("assets", "materialize", "model", code=2)
    assert "PM100 is undeclared → exa assets declare PM100" in done.err
    assert done.is_quiet
    assert exa.versions() == {"PM100": 0, "features": 0, "model": 0}
    assert exa("assets", "status", "--check", code=3)


def test_w8_an_upstream_that_only_the_command_line_names_stays_undeclared_with_a_module(exa):
    exa("assets", "declare", "model", "--kind", "model", "--deps", "PM100")
    exa.write("one.py", "from examlops_dagster import asset\n\n@asset\ndef model(**up): ...\n")
    states = exa.states("-m", "one")
    assert states == {"PM100": "undeclared", "model": "stale_waiting_for_upstream"}


def test_w8_every_problem_of_a_module_is_told_at_once_with_file_and_line(exa):
    path = exa.write(
        "wrong.py",
        """\
        from examlops_dagster import asset

        @asset(deps=["b"])
        def a(**up): ...

        @asset(deps=["a"])
        def b(**up): ...

        @asset(deps=["nowhere"])
        def c(**up): ...

        @asset(kind="No Kind", resources={"gpu": 1})
        def d(): ...
        """,
    )
    for command in (("status",), ("graph",), ("plan",), ("materialize", "a")):
        done = exa("-m", "wrong", "assets", *command, code=2)
        assert done.is_quiet
        assert "cycle: a ← b ← a" in done.err or "cycle: b ← a ← b" in done.err
        assert f"{path}:9: c: unknown upstream 'nowhere'" in done.err
        assert f"{path}:12: asset 'd': kind 'No Kind'" in done.err
        assert f"{path}:12: asset 'd': unknown resource 'gpu'" in done.err or "gpu" in done.err
        assert "4 problems in the declarations" in done.err


def test_w8_a_cycle_on_the_command_line_is_refused_and_not_recorded(exa):
    exa("assets", "declare", "a", "--deps", "b")
    done = exa("assets", "declare", "b", "--deps", "a", code=2)
    assert "cycle: " in done.err
    assert done.is_quiet
    assert exa("assets", "graph").out == "b (undeclared)\na ← b\n"
    for words in (("x", "--kind", "No Kind"), ("x", "--partitions", "sometimes:"), ("  ",)):
        assert exa("assets", "declare", *words, code=2).is_quiet


def test_w9_two_commands_build_the_same_asset_once(exa):
    exa.write(
        "slow.py",
        """\
        import time
        from pathlib import Path

        from examlops_dagster import asset

        HERE = Path(__file__).parent

        @asset
        def root():
            with (HERE / "calls").open("a") as file:
                file.write("called\\n")
            while not (HERE / "go").exists():
                time.sleep(0.02)
        """,
    )
    exa("init")
    first = exa.start("-m", "slow", "assets", "materialize", "root")
    first.until_file("calls")
    assert exa.states("-m", "slow") == {"root": "running"}
    second = exa.start("-m", "slow", "assets", "materialize", "root")
    second.until("root is being built by run")
    exa.write("go", "go")
    assert first.finish().out == "Materialized root: rebuilt root\n"
    assert "unchanged (not rebuilt): root" in second.finish().out
    assert exa.lines("calls") == ["called"]
    builds = exa("-m", "slow", "assets", "history", "root", "--json").json
    assert [(b["state"], b["version"]) for b in builds] == [("unchanged", 1), ("succeeded", 1)]
    assert exa.states("-m", "slow") == {"root": "fresh"}


def test_w26_the_status_of_a_ladder_takes_no_time(exa):
    layers = """\
        from examlops_dagster import asset

        above = ["trace"]
        for layer in range(40):
            names = [f"l{layer}_a", f"l{layer}_b"]
            for name in names:
                asset(name, deps=ABOVE)(lambda **up: None)
            above = names
        """
    exa.write("ladder.py", layers.replace("ABOVE", "above"))
    exa.write("flat.py", layers.replace("ABOVE", '["trace"]'))
    exa("assets", "declare", "trace")

    def spent(module):
        """Give the rows, and the seconds of the processor: others may keep it busy."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = exa("-m", module, "assets", "status", "--json").json
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(rows) == 81
        assert {row["state"] for row in rows} == {"runnable_stale"}
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert spent("ladder") < 3 * spent("flat") + 1


def test_w29_exit_codes_say_what_happened_and_no_traceback_is_shown(plant):
    assert plant("assets", "status", "prices", "--check").code == 0
    plant.write("later.py", "from examlops_dagster import asset\n\n@asset\ndef later(): ...\n")
    stale = plant("-m", "later", "assets", "status", "later", "--check", code=3)
    assert "never materialized" in stale.out
    assert stale.err == ""
    planned = plant("-m", "later", "assets", "plan", "later")
    assert "later  build   never materialized" in planned.out
    assert plant.states("-m", "later")["later"] == "runnable_stale"  # plan changes nothing
    assert "--check" in plant("assets", "status", "--help").out
    for words in ((), ("assets",), ("assets", "nosuch"), ("assets", "status", "--nosuch")):
        assert plant(*words, code=2).is_quiet
