"""`exa --url` asks a server, and says the same as without it."""

import json
import subprocess
import sys

import pytest
from served import ODD, TOKEN, until

pytestmark = pytest.mark.usefixtures("at_rest")

COMMANDS = (
    ("assets", "status"), ("assets", "status", "--json"), ("assets", "status", "by/part"),
    ("assets", "status", "by/part", "--partition", "b", "--json"), ("assets", "status", ODD),
    ("assets", "graph"), ("assets", "graph", "--json"), ("assets", "plan"),
    ("assets", "plan", "report", "--force", "--json"),
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_server_says_what_the_home_says(served, words):
    here = served.exa("-m", "pipeline", *words)
    assert served.exa("--url", served.url, *words).stdout == here.stdout
    assert served.exa(*words, "--url", served.url).stdout == here.stdout


def test_check_counts_what_the_server_says(served):
    served.exa("--url", served.url, "assets", "status", "--check", code=3)


def test_errors_are_those_of_the_command_line(served):
    done = served.exa("--url", served.url, "assets", "status", "jpcp_modle", code=2)
    assert "jpcp_model" in done.stderr
    served.exa("--url", served.url, "assets", "status", "--partition", "a", code=2)
    done = served.exa("--url", served.url, "assets", "list", code=2)
    assert "--url is for" in done.stderr


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://", "http://h:99999"])
def test_what_is_no_address_is_told(served, url):
    done = served.exa("--url", url, "assets", "status", code=2)
    assert "is not an address" in done.stderr


def test_a_server_that_is_not_there_is_told(served):
    done = served.exa("--url", "http://127.0.0.1:9", "assets", "status", code=1)
    assert "nobody answers at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_server_is_told_apart(served):
    done = served.exa("--url", f"{served.url}/elsewhere", "assets", "status", code=1)
    assert "not as exa serve does" in done.stderr


def test_run_needs_the_token(served):
    done = served.exa("--url", served.url, "run", code=1)
    assert "EXAMLOPS_API_TOKEN" in done.stderr
    served.exa("--url", served.url, "run", "--in-process", code=2, EXAMLOPS_API_TOKEN=TOKEN)


def test_run_launches_what_is_due(served):
    done = served.exa("--url", served.url, "run", "jpcp_model", EXAMLOPS_API_TOKEN=TOKEN)
    assert "Launched" in done.stdout or "Nothing is due." in done.stdout
    until(lambda: served.detail("jpcp_model")["fresh"], served.log.read_text)
    done = served.exa("--url", served.url, "run", "jpcp_model", "--json", EXAMLOPS_API_TOKEN=TOKEN)
    assert json.loads(done.stdout)["runs"] == []


def test_neither_dagster_nor_a_project_is_imported(served):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "examlops_dagster.cli", "--url", served.url,
         "assets", "status"],
        cwd=served.folder, env=served.environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not {"dagster", "sqlite3", "urllib.request", "examlops_dagster.project"} & names
