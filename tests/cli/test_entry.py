"""The command itself: help, version, completion, and groups of other distributions."""

import subprocess

import pytest
from command import COMMAND

from examlops_dagster.version import __version__

COMMANDS = {
    *("declare", "undeclare", "graph", "list", "status", "plan", "materialize"),
    *("source-changed", "report", "adopt", "history"),
}


def listed(text):
    """Give the commands that a help names."""
    lines = text.partition("Commands:\n")[2].splitlines()
    return {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}


@pytest.fixture
def with_other(exa):
    """Give the command beside another distribution that has an ``exa``."""
    site = exa.folder / "site"
    (site / "examlops-9.0.dist-info").mkdir(parents=True)
    exa.write("site/examlops-9.0.dist-info/METADATA", "Name: examlops\nVersion: 9.0\n")
    exa.write(
        "site/examlops-9.0.dist-info/entry_points.txt",
        "[console_scripts]\nexa = other_examlops:main\n",
    )
    exa.write(
        "site/other_examlops.py",
        "import sys\n\n\ndef main():\n    print('the other', *sys.argv[1:])\n    sys.exit(7)\n",
    )
    return exa


def test_the_version_is_told(exa):
    assert exa("--version").out == f"examlops-dagster {__version__}\n"


def test_every_command_explains_itself(exa):
    groups = listed(exa("--help").out)
    commands = listed(exa("assets", "-h").out)
    groups_within = {"approvals", "audit", "data", "hpc"}
    assert groups >= {"assets", "hpc", "init"}
    assert commands >= COMMANDS
    leaves = [(group,) for group in groups - groups_within - {"assets"}]
    leaves += [("assets", command) for command in commands]
    for group in sorted(groups_within):
        leaves += [(group, command) for command in listed(exa(group, "-h").out)]
    for words in leaves:
        explained = exa(*words, "--help").out
        assert "--json" in explained
        if words[0] not in ("approvals", "audit", "hpc", "init"):  # these load no module
            assert "-m, --module" in explained
            assert "-f, --file" in explained
    assert exa.files() == {}


@pytest.mark.parametrize(
    "group", [(), ("assets",), ("data",), ("hpc",), ("audit",), ("approvals",)]
)
def test_a_list_of_commands_cuts_no_line_off(exa, group):
    lines = exa(*group, "--help").out.partition("Commands:\n")[2].splitlines()
    assert [line for line in lines if line.endswith("...")] == []


def test_the_help_says_where_modules_come_from_and_what_exit_codes_mean(exa):
    told = exa("--help").out
    assert "EXAMLOPS_MODULES" in told
    assert "Exit codes: 0 done" in told


def test_a_group_that_we_do_not_have_goes_to_another_distribution(with_other):
    path = {"PYTHONPATH": str(with_other.folder / "site")}
    words = ("pipeline", "run", "--model", "JPCP", "--dataset", "PM100Dataset")
    assert with_other(*words, code=7, **path).out == f"the other {' '.join(words)}\n"
    quiet = with_other("--json", "-m", "x", "models", "list", code=7, **path)
    assert quiet.out == "the other --json -m x models list\n"
    assert with_other("assets", "graph", **path).out.startswith("No assets declared.")
    assert "source-changed" in with_other("assets", "--help", **path).out


def test_a_group_that_nobody_has_is_told(exa):
    done = exa("pipeline", "run", code=2)
    assert "No such command 'pipeline'" in done.err
    assert "another distribution" in done.err
    assert done.is_quiet
    typo = exa("asset", "graph", code=2)
    assert "No such command 'asset'" in typo.err
    assert "Did you mean 'assets'?" in typo.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_can_be_shown(exa, shell):
    shown = exa("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_EXA_COMPLETE" in shown.out


def complete(exa, line):
    words = line.split(" ")
    return exa(
        _EXA_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), code=None
    ).out.split()


def test_the_shell_completes_commands_and_names_of_assets(seed):
    seed("assets", "declare", "PM200")
    assert complete(seed, "exa assets sour") == ["source-changed"]
    assert complete(seed, "exa assets status PM") == ["PM100", "PM200"]
    assert complete(seed, "exa assets materialize PM100 PM2") == ["PM200"]
    assert complete(seed, "exa assets status jp") == []
    assert complete(seed, "exa -m pipeline assets status jp") == ["jpcp_features", "jpcp_model"]
    assert complete(seed, "exa assets status -m pipeline jp") == ["jpcp_features", "jpcp_model"]
    assert complete(seed, "exa -m broken assets status jp") == []


def test_the_command_has_a_second_name_that_nothing_else_takes(exa):
    second = COMMAND.with_name("examlops-dagster")
    done = subprocess.run(
        [second, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == exa("--version").out
