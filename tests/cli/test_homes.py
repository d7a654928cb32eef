"""Where a project lives, and who makes it."""

import json
import sqlite3
from pathlib import Path

import pytest
import yaml
from dotenv import dotenv_values

from examlops_dagster.home import find_home

CHECKOUT = Path(__file__).parents[2]
MADE = {"dagster.yaml", "workspace.yaml", ".env", ".gitignore"}


@pytest.fixture
def awkward(exa):
    """Give the command in a folder whose name has to be quoted everywhere."""
    exa.folder = exa.folder / 'it\'s a "folder"; with \\ and ümlauts'
    exa.folder.mkdir()
    return exa


def names(exa):
    return {path.name for path in exa.folder.iterdir()}


def test_init_makes_a_home_and_changes_nothing_a_second_time(exa):
    exa.write(".gitignore", "data/")
    exa.write(".env", "TOKEN=secret")
    done = exa("init")
    assert done.out == (f"Wrote dagster.yaml, workspace.yaml, .env, .gitignore in {exa.folder}\n")
    assert names(exa) == MADE
    assert exa.lines(".gitignore")[:2] == ["data/", ".env"]
    assert dotenv_values(exa.folder / ".env") == {
        "TOKEN": "secret",
        "DAGSTER_HOME": str(exa.folder),
    }
    before = exa.files()
    again = exa("init", "--json").json
    assert again["ok"]
    assert again["written"] == []
    assert exa.files() == before


def test_the_home_is_quoted_so_that_dotenv_reads_it_back(awkward, monkeypatch):
    awkward("init")
    assert dotenv_values(awkward.folder / ".env") == {"DAGSTER_HOME": str(awkward.folder)}
    monkeypatch.setenv("DAGSTER_HOME", "")  # set and undone, since finding the home sets it
    assert find_home(awkward.folder).folder == awkward.folder
    awkward("assets", "declare", "PM100")
    assert awkward.versions() == {"PM100": 0}


def test_the_first_command_that_writes_makes_the_home_and_says_so(exa):
    done = exa("assets", "declare", "PM100")
    assert done.out == "Declared dataset asset PM100\n"
    assert done.err.startswith("No home yet: wrote dagster.yaml, ")
    assert str(exa.folder) in done.err
    assert names(exa) == {*MADE, "platform.db"}
    assert exa("assets", "declare", "other").err == ""


def test_a_command_that_reads_answers_as_for_an_empty_home_and_writes_nothing(exa):
    exa.write("one.py", "from examlops_dagster import asset\n\n@asset\ndef model(): ...\n")
    before = exa.files()
    for command in ("graph", "list", "status"):
        assert exa("assets", command).out.startswith("No assets declared.")
    assert exa("assets", "plan").out == "Nothing to rebuild.\n"
    assert "No asset named 'x'" in exa("assets", "history", "x", code=2).err
    assert exa.states("-m", "one") == {"model": "runnable_stale"}
    assert exa("-m", "one", "assets", "plan", "model").code == 0
    assert "model was never built." in exa("-m", "one", "assets", "history", "model").err
    assert exa.files() == before


def test_a_request_that_cannot_be_carried_out_makes_no_home(exa):
    for words in (
        ("materialize", "x"),
        ("source-changed", "x"),
        ("-m", "nosuch", "materialize", "x"),
        ("declare", "x", "--kind", "No Kind"),
        ("undeclare", "x"),
    ):
        modules = words[:2] if words[0] == "-m" else ()
        exa(*modules, "assets", *words[len(modules) :], code=2)
        assert names(exa) == set()


def test_a_subfolder_finds_the_home_above_it(exa):
    exa("assets", "declare", "PM100")
    below = exa.folder / "a" / "b"
    below.mkdir(parents=True)
    assert exa("assets", "graph", cwd=below).out == "PM100 (source)\n"
    assert exa("assets", "declare", "other", cwd=below).err == ""
    assert list(below.iterdir()) == []
    assert exa("assets", "graph").out == "PM100 (source)\nother (source)\n"


def test_dagster_home_overrides_the_folder(exa, tmp_path):
    exa("assets", "declare", "here")
    elsewhere = tmp_path / "else where"
    named = {"DAGSTER_HOME": str(elsewhere)}
    assert exa("assets", "graph", **named).out.startswith("No assets declared.")
    assert not elsewhere.exists()
    assert str(elsewhere) in exa("assets", "declare", "there", **named).err
    assert exa("assets", "graph", **named).out == "there (source)\n"
    assert exa("assets", "graph").out == "here (source)\n"
    refused = exa("assets", "graph", code=2, DAGSTER_HOME="some/where")
    assert "DAGSTER_HOME='some/where' is not an absolute path" in refused.err
    assert refused.is_quiet


def test_platform_db_names_the_database(exa, tmp_path):
    path = tmp_path / "data bases" / "own.db"
    named = {"PLATFORM_DB": str(path)}
    assert exa("assets", "graph", **named).out.startswith("No assets declared.")
    assert not path.exists()
    exa("assets", "declare", "PM100", **named)
    assert exa("assets", "graph", **named).out == "PM100 (source)\n"
    assert exa("assets", "graph").out.startswith("No assets declared.")
    assert names(exa) == MADE
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT name FROM declarations").fetchall() == [("PM100",)]
    database.close()
    unusable = exa("assets", "declare", "x", code=1, PLATFORM_DB="/proc/no/such.db")
    assert "PLATFORM_DB names another place" in unusable.err
    assert unusable.is_quiet


def test_a_platform_db_that_is_none_is_told_without_a_traceback(exa):
    exa("init")
    exa.write("platform.db", "this is no database at all, and longer than a header\n" * 9)
    done = exa("assets", "status", "--json", code=1)
    assert done.is_quiet
    assert "platform.db" in json.loads(done.out)["error"]


def test_the_home_that_init_makes_is_set_as_this_checkout_is(exa):
    """One that differs would show Dagster's newsletter, or keep the place of a killed run."""
    exa("init")
    for name in ("dagster.yaml", "workspace.yaml"):
        ours = yaml.safe_load((CHECKOUT / name).read_text(encoding="utf-8"))
        assert yaml.safe_load((exa.folder / name).read_text(encoding="utf-8")) == ours
