"""Homes that were copied, moved or cannot be made, and databases that are named wrongly."""

import os
import shutil

import pytest
from dotenv import dotenv_values
from needs import lack


@pytest.fixture
def home(exa):
    """Give a home with an asset in it."""
    exa("assets", "declare", "PM100")
    return exa


def test_a_copy_of_a_home_says_whose_assets_it_shows(home, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(home.folder, copy)
    done = home("assets", "graph", cwd=copy)
    assert done.out == "PM100 (source)\n"
    assert f"Using the home {home.folder}, which {copy / '.env'} names" in done.err
    assert f"`exa init` in {copy} makes that the home" in done.err
    assert home("assets", "graph").err == ""


def test_init_gives_a_copy_a_home_of_its_own_and_keeps_the_other_lines_of_env(home, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(home.folder, copy)
    (copy / ".env").write_text(f"TOKEN=secret\n{(copy / '.env').read_text()}LAST=1\n")
    (copy / ".env").chmod(0o600)
    assert home("init", cwd=copy).out == f"Wrote .env in {copy}\n"
    assert dotenv_values(copy / ".env") == {
        "TOKEN": "secret", "LAST": "1", "DAGSTER_HOME": str(copy),
    }  # fmt: skip
    assert (copy / ".env").stat().st_mode & 0o777 == 0o600
    home("assets", "declare", "other", cwd=copy)
    assert home("assets", "graph", cwd=copy).out == "PM100 (source)\nother (source)\n"
    assert home("assets", "graph").out == "PM100 (source)\n"


@pytest.mark.parametrize(
    "words", [("assets", "status"), ("assets", "declare", "x"), ("hpc", "jobs")]
)
def test_a_home_that_was_moved_is_told_with_the_remedy(home, tmp_path, words):
    moved = home.folder.rename(tmp_path / "moved")
    done = home(*words, cwd=moved, code=2)
    assert f"names DAGSTER_HOME={home.folder}, which is not there" in done.err
    assert done.is_quiet
    assert not home.folder.exists()
    home("init", cwd=moved)
    assert home("assets", "graph", cwd=moved).out == "PM100 (source)\n"


def test_init_says_that_a_dagster_home_of_the_environment_goes_first(exa, tmp_path):
    done = exa("init", DAGSTER_HOME=str(tmp_path / "elsewhere"))
    assert "goes before this folder → unset DAGSTER_HOME" in done.err
    assert exa("init", DAGSTER_HOME=str(exa.folder)).err == ""


def test_a_folder_in_which_no_home_can_be_made_is_told(exa):
    done = exa("assets", "declare", "x", code=1, DAGSTER_HOME="/proc/nosuch")
    assert "cannot make a home in /proc/nosuch" in done.err
    assert "name one by DAGSTER_HOME" in done.err
    assert done.is_quiet


def test_a_home_of_somebody_else_is_told_with_the_remedy(home):
    if os.geteuid() != 0:
        lack("only root can work as somebody else")
    for folder in (home.folder, *home.folder.parents[:3]):
        folder.chmod(0o755)
    done = home.python(
        """\
        import os
        import sys

        from examlops_dagster.errors import StoreError
        from examlops_dagster.store.engine import Database

        os.setgid(65534)
        os.setuid(65534)
        try:
            with Database("platform.db").read():
                pass
        except StoreError as error:
            sys.exit(str(error))
        """,
        code=1,
    )
    assert "it is not yours to write: work as its owner, ask a running exa serve" in done.err


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "EXAMLOPS_DB_URL",
            "mysql://me:secret@host/x",
            "mysql://..., which is not a postgresql://",
        ),
        ("EXAMLOPS_DB_URL", "some/where.db", "'some/where.db', which is not a postgresql:// URL"),
        ("PLATFORM_DB", "postgresql://me:secret@host/x", "belongs into EXAMLOPS_DB_URL"),
    ],
)
def test_a_database_that_is_named_wrongly_is_told_and_not_made(exa, variable, value, told):
    exa("init")
    for words in (("declare", "x"), ("status",)):
        done = exa("assets", *words, code=2, **{variable: value})
        assert told in done.err
        assert "secret" not in done.err
        assert done.is_quiet
    assert {p.name for p in exa.folder.iterdir()} == {
        "dagster.yaml", "workspace.yaml", ".env", ".gitignore",
    }  # fmt: skip


def test_a_relative_platform_db_is_below_the_home_wherever_the_command_is_given(exa):
    below = exa.folder / "a"
    below.mkdir()
    exa("init")
    exa("assets", "declare", "PM100", cwd=below, PLATFORM_DB="data/own.db")
    assert exa("assets", "graph", PLATFORM_DB="data/own.db").out == "PM100 (source)\n"
    assert (exa.folder / "data" / "own.db").is_file()
    assert list(below.iterdir()) == []


def test_init_below_a_home_tells_of_the_one_above_and_makes_another(home):
    below = home.folder / "a" / "b"
    below.mkdir(parents=True)
    done = home("init", cwd=below)
    assert done.out == f"Wrote dagster.yaml, workspace.yaml, .env, .gitignore in {below}\n"
    assert f"There is a home above, {home.folder}: commands given in {below} and below" in done.err
    assert home("assets", "graph", cwd=below).out.startswith("No assets declared")
    assert home("init", cwd=below).err == ""
    assert home("init", cwd=home.folder).err == ""


def test_init_where_there_is_no_home_above_says_nothing_more(exa):
    assert exa("init").err == ""
