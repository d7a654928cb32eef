"""What the tests of schedulers share: jobs, their states, scripted commands."""

import json
import uuid
from datetime import datetime, timezone
from pathlib import Path

from waiting import wait_until

from examlops_dagster.schedulers.base import JobRef, Submission, job_name

FAKES = Path(__file__).resolve().parents[1] / "fakes"


def ended(scheduler, *jobs):
    """Wait until every job is final, and give the states."""

    def look():
        found = scheduler.poll(jobs)
        return found if all(status.state.final for status in found.values()) else None

    found = wait_until(look, step=0.3)
    return [found[job] for job in jobs]


def reaches(scheduler, job, *states):
    return wait_until(
        lambda: next((s for s in scheduler.poll([job]).values() if s.state in states), None),
        step=0.2,
    )


class Work:
    """Makes submissions of shell scripts, each in a folder of its own."""

    def __init__(self, root):
        self.root = root

    def __call__(self, body, *, folder=None, asset="model", **settings):
        token = uuid.uuid4().hex
        folder = folder or self.root / token
        folder.mkdir(exist_ok=True)
        script = folder / "run.sh"
        script.write_text(f"#!/usr/bin/env bash\n{INDEX}\n{body}\n")
        script.chmod(0o700)
        return Submission(token, job_name(asset, token), script, folder, **settings)


INDEX = (
    "index=${SLURM_ARRAY_TASK_ID:-${FLUX_JOB_CC:-${EXAMLOPS_ARRAY_INDEX:-0}}}; "
    "index=$((index + ${EXAMLOPS_ARRAY_OFFSET:-0}))"
)


class FakeSlurm:
    """Slurm's commands as a scenario plays them; see fakes/slurm/play."""

    def __init__(self, path):
        self._path = path
        self._answers = {}
        self._write()

    def plays(self, program, out="", err="", code=0, **more):
        answer = {"out": out, "err": err, "code": code, **more}
        self._answers.setdefault(program, []).append(answer)
        self._write()
        return self

    def calls(self, program=None):
        try:
            lines = self._path.with_suffix(".calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        calls = [json.loads(line) for line in lines]
        return [call for call in calls if program in (None, call["program"])]

    def _write(self):
        self._path.write_text(json.dumps(self._answers))


TOKEN = "abcdef0123456789"
NAME = job_name("model", TOKEN)
SUBMITTED_AT = datetime(2026, 11, 30, 12, 0, tzinfo=timezone.utc)


def a_job(job_id="5", index=None, **more):
    return JobRef("slurm", job_id, TOKEN, SUBMITTED_AT, index=index, **more)


def queue(job_id, state, reason="None", name=NAME, nodes="node1"):
    """Write a line of squeue, as slurm_rows.SQUEUE_FORMAT asks for it."""
    times = "2026-11-30T12:00:01|N/A|2026-11-30T12:00:00"
    return f"{job_id}|{state}|{nodes}|{times}|{reason}|{name}\n"


def account(job_id, state, code="0:0", name=NAME, submitted="2026-11-30T12:00:00"):
    """Write a line of sacct, as slurm_rows.SACCT_FORMAT asks for it."""
    return f"{job_id}|{state}|{code}|{submitted}|{submitted}|{submitted}|node1|{name}\n"
