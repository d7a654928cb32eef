"""``exa hpc jobs`` while nobody waits: the scheduler is asked, seldom, shortly, and never in vain."""

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fluxes import FAKES
from waiting import slowness, wait_until

PIPELINE = """\
import time
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


@asset
def model():
    (HERE / "building").write_text("yes")
    deadline = time.monotonic() + 600
    while (HERE / "slow").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return 1
"""
LIMIT_SECONDS = 60


class Site:
    """A project with a fake Flux of its own, whose commands are counted."""

    def __init__(self, exa, folder):
        self.exa = exa
        self._flux = folder / "flux instance"
        self._flux.mkdir()
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._calls = folder / "flux calls"
        self.answer_with(f'exec {shlex.quote(str(FAKES / "flux"))} "$@"')

    def answer_with(self, line):
        script = self._bin / "flux"
        script.write_text(f'#!/bin/sh\necho "$1" >> {shlex.quote(str(self._calls))}\n{line}\n')
        script.chmod(0o755)

    @property
    def questions(self):
        return self._calls.read_text().split().count("jobs")

    @property
    def environment(self):
        return {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "FAKE_FLUX": str(self._flux),
            "XDG_RUNTIME_DIR": "",
            "EXAMLOPS_HPC_SCHEDULER": "flux",
            "EXAMLOPS_HPC_POLL_SECONDS": "600",
        }

    def leave_a_job(self):
        """Have a job run whose waiter was killed."""
        self.exa.write("slow", "")
        words = ("assets", "materialize", "model", "--orchestrator", "scheduler")
        command = self.exa.start(*words, **self.environment)
        command.until_file("building")
        command.send(signal.SIGKILL)
        command.finish(code=-signal.SIGKILL)

    def lose_the_nodes(self):
        """Take the job away, without a word of it in its folder, and wait until Flux says so."""
        (self._flux / "lost").write_text("node1\nnode2")
        wait_until(lambda: '"INACTIVE"' in self._run("jobs", "-a", "--json"))

    def forget_the_last_answer(self):
        for path in (self.exa._cache / "examlops" / "watch").glob("*.json"):
            path.unlink()

    def end(self):
        self._run("cancel", "--all")

    def _run(self, *argv):
        environment = {**os.environ, "FAKE_FLUX": str(self._flux)}
        return subprocess.run(
            [FAKES / "flux", *argv], env=environment, capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        ).stdout  # fmt: skip

    def job(self, *words, **environment):
        done = self.exa("hpc", "jobs", "--json", *words, **{**self.environment, **environment})
        [row] = done.json
        return row, done.err

    def asked_job(self):
        """Give the job as Flux sees it now; on a busy machine its answer may come too late."""

        def asked():
            self.forget_the_last_answer()
            row, told = self.job()
            return None if told else row

        return wait_until(asked)


@pytest.fixture
def site(exa, tmp_path):
    exa.apart(PIPELINE, tmp_path / "cache of its own")
    found = Site(exa, tmp_path)
    yield found
    found.end()


def test_what_became_of_a_job_is_shown_and_left_to_the_next_request(site):
    site.leave_a_job()
    row = site.asked_job()
    assert (row["state"], row["hosts"]) == ("RUNNING", "node1")
    site.lose_the_nodes()
    row = site.asked_job()
    assert row["state"] == "NODE_FAIL"
    assert "the scheduler says NODE_FAIL" in row["reason"]
    assert row["reason"].endswith("; the next request for it records that")
    recorded, _ = site.job("--no-poll")
    assert recorded["state"] in ("SUBMITTING", "PENDING", "RUNNING")
    assert "NODE_FAIL" in site.exa("hpc", "jobs", **site.environment).out


def test_lists_in_a_row_ask_once(site):
    site.leave_a_job()
    site.forget_the_last_answer()
    before = site.questions
    for _ in range(3):
        site.job()
    assert site.questions == before + 1
    site.job("--no-poll")
    assert site.questions == before + 1


def test_a_scheduler_that_does_not_answer_holds_the_list_up_for_seconds_only(site):
    site.leave_a_job()
    recorded, _ = site.job("--no-poll")
    site.forget_the_last_answer()
    site.answer_with("exec sleep 600")
    began = time.monotonic()
    row, told = site.job()
    assert time.monotonic() - began < LIMIT_SECONDS * slowness()
    assert row == recorded
    assert "flux gave no answer within 5 s; states are those of the last answer" in told
    row, told = site.job()  # and it is not asked again at once
    assert (row, told) == (recorded, "")


def test_without_the_command_of_the_scheduler_the_record_is_shown(site):
    site.leave_a_job()
    recorded, _ = site.job("--no-poll")
    site.forget_the_last_answer()
    assert site.job(PATH=os.environ["PATH"]) == (recorded, "")


def test_jobs_of_another_host_are_not_asked_for_here(site):
    site.leave_a_job()
    recorded, _ = site.job("--no-poll")
    intent = Path(recorded["folder"], "submit.json")
    intent.write_text(json.dumps({**json.loads(intent.read_text()), "ssh_host": "login"}))
    site.forget_the_last_answer()
    before = site.questions
    assert site.job()[0] == recorded
    assert site.questions == before
