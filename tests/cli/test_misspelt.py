"""What a user has misspelt in the environment, in ``.env`` or in pyproject.toml is told, once."""

import pytest

MODULE = "from examlops_dagster import asset\n\n@asset(timeout_seconds=None)\ndef made():\n    return 1\n"
TOLD = "EXAMLOPS_HPC_SHEDULER is no setting → did you mean EXAMLOPS_HPC_SCHEDULER?\n"


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("EXAMLOPS_HPC_SHEDULER", "EXAMLOPS_HPC_SCHEDULER"),
        ("EXAMLOPS_ASSET_ORCHESTATOR", "EXAMLOPS_ASSET_ORCHESTRATOR"),
        ("EXAMLOPS_SCHEDULER", "EXAMLOPS_HPC_SCHEDULER"),
        ("EXAMLOPS_HPC_HOST", "EXAMLOPS_HPC_SSH_HOST"),
        ("EXAMLOPS_hpc_scheduler", "EXAMLOPS_HPC_SCHEDULER"),
        ("EXAMLOP_MODULES", "EXAMLOPS_MODULES"),
        ("EXAMPLOPS_ACTOR", "EXAMLOPS_ACTOR"),
    ],
)
def test_a_variable_that_is_near_a_setting_is_told_and_stops_nothing(exa, misspelt, meant):
    done = exa("assets", "status", **{misspelt: "slurm"})
    assert done.err == f"{misspelt} is no setting → did you mean {meant}?\n"
    assert done.out.startswith("No assets declared")


@pytest.mark.parametrize(
    "variable",
    [
        "EXAMLOPS_HPC_SCHEDULER_OF_MY_SITE",
        "EXAMLOPS_HPC_TIME",
        "EXAMLOPS_PARTITION",
        "EXAMLOPS_SLURM_NODES",
        "EXAMLOPS_SLURM_TIME",
        "EXAMLOPS_POSTGRES_DSN",
        "EXAMPLE_ACTOR",
        "EXABYTE_HPC_SCHEDULER",
    ],
)
def test_variables_of_others_are_left_alone(exa, variable):
    assert exa("assets", "status", **{variable: "x"}).err == ""


@pytest.mark.parametrize(
    "words",
    [("init",), ("assets", "declare", "x", "--json"), ("hpc", "cancel", "x"), ("run", "--url", "http://127.0.0.1:9")],
)  # fmt: skip
def test_every_command_tells_it_once(exa, words):
    exa("assets", "declare", "PM100")
    done = exa(*words, code=None, EXAMLOPS_HPC_SHEDULER="slurm")
    assert done.err.count(TOLD) == 1
    assert TOLD not in done.out


def test_a_build_tells_it_once_with_all_that_it_starts(exa):
    exa.write("made.py", MODULE.replace("timeout_seconds=None", "timeout_seconds=60"))
    done = exa("assets", "materialize", "made", "-m", "made", EXAMLOPS_HPC_SHEDULER="slurm")
    assert done.out == "Materialized made: rebuilt made\n"
    assert (done.err + done.out).count("did you mean") == 1


def test_help_and_completion_say_nothing_of_it(exa):
    exa("assets", "declare", "PM100")
    assert "did you mean" not in exa("--help", EXAMLOPS_HPC_SHEDULER="slurm").err
    asked = {"COMP_WORDS": "exa assets status PM", "COMP_CWORD": "3"}
    done = exa(_EXA_COMPLETE="complete_bash", code=None, EXAMLOPS_HPC_SHEDULER="slurm", **asked)
    assert (done.out.split(), done.err) == (["PM100"], "")


def test_a_line_of_env_is_told_with_its_file(exa):
    exa("init")
    env = exa.folder / ".env"
    env.write_text(f"{env.read_text()}EXAMLOPS_HPC_SHEDULER=slurm\n")
    below = exa.folder / "below"
    below.mkdir()
    done = exa("assets", "status", cwd=below)
    assert done.err == TOLD.replace(" is", f" (in {env}) is")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[tool.examlops]\nmodule = ["made"]\n', "[tool.examlops] module in {} is no setting → did you mean modules?\n"),
        ('tool.examlops.Modules = "made"\n', "[tool.examlops] Modules in {} is no setting → did you mean modules?\n"),
        ('[tool.examlops-dagster]\nmodules = ["made"]\n', "[tool.examlops-dagster] in {} is no setting → did you mean [tool.examlops]?\n"),
        ('[tool.ExaMLOps]\nmodules = ["made"]\n', "[tool.ExaMLOps] in {} is no setting → did you mean [tool.examlops]?\n"),
        ('[tool.examlops]\nmodules = ["made"]\nowner = "me"\n[tool.example]\n', ""),
        ('[project]\nname = "exa"\ndependencies = ["examlops-dagster"]\n', ""),
    ],
)  # fmt: skip
def test_a_misspelt_key_or_table_of_pyproject_is_told(exa, text, told):
    exa.write("made.py", MODULE)
    path = exa.write("pyproject.toml", text)
    assert exa("assets", "graph").err == told.format(path)


def test_a_table_of_pyproject_that_is_none_is_an_error(exa):
    exa.write("pyproject.toml", "[tool]\ntool.x = 1\n[tool.examples]\n")
    assert exa("assets", "graph").err == ""
    exa.write("pyproject.toml", "tool.examlops = 3\n")
    assert "[tool.examlops] modules" in exa("assets", "graph", code=2).err


def test_a_code_server_says_it_in_its_log(exa):
    exa.write("made.py", MODULE)
    exa("init")
    loaded = exa.python(
        """\
        import logging

        logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
        import examlops_dagster.dagster_bridge.workspace
        """,
        EXAMLOPS_HPC_SHEDULER="slurm",
        EXAMLOPS_MODULES="made",
    )
    assert f"WARNING examlops_dagster.misspelt {TOLD}" in loaded.err


def test_processes_of_one_that_told_it_do_not_tell_it_again(exa):
    text = """\
        import os, subprocess, sys
        from examlops_dagster.home import find_home

        find_home()
        find_home()
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, "-c", os.environ["TEXT"], "child"], timeout=60, check=True)
        """
    lines = "\n".join(line.strip() if "subprocess.run" not in line else " " + line.strip()
                      for line in text.splitlines())  # fmt: skip
    done = exa.python(lines, TEXT=lines, EXAMLOPS_HPC_SHEDULER="slurm")
    assert done.err == TOLD
