"""What the tests of jobs share: requests, a ledger in memory, and a scheduler that plays a script."""

import os
from datetime import datetime, timezone

import job_functions as functions

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT, Declaration, Upstream
from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.ledger.jobs import OPEN_STATES
from examlops_dagster.orchestrators.ends import Patience
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus
from examlops_dagster.schedulers.mock import MockScheduler

IMPATIENT = Patience(
    settle=1.0, clean_settle=0.3, files=0.6, refuse=0.2, lost=0.5, cancel=60.0, again=0.0
)


def job_request(function, arguments=None, *, name="numbers", partition="", resources=None, **more):
    timeout = more.pop("timeout_seconds", DEFAULT_TIMEOUT)
    fingerprint = more.pop("fingerprint", "")
    heard = more.pop("heard", None)
    given = {"PM100": 3} if arguments is None else arguments
    declaration = Declaration(
        name, function=function, upstreams=(Upstream("PM100"),), timeout_seconds=timeout, **more
    )
    return BuildRequest(
        declaration,
        Node(name, partition),
        1,
        "build-1",
        given,
        {},
        timeout,
        resources or {},
        fingerprint,
        heard=heard,
    )


class MemoryJobs:
    """A JobsLedger in memory."""

    def __init__(self):
        self.rows = {}
        self.states = []

    def record(self, job):
        assert isinstance(job, HpcJob)
        self.record_all([job])

    def record_all(self, jobs):
        for job in jobs:
            self.rows[job.key] = job
            self.states.append(job.state)

    def unclaimed_of(self, asset):
        found = {}
        for job in reversed(self.rows.values()):
            if job.node.asset == asset and job.state in OPEN_STATES:
                found.setdefault(job.node, []).append(job)
        return found

    def unclaimed(self, node, fingerprint):
        return [
            job
            for job in reversed(self.rows.values())
            if (job.node, job.fingerprint) == (node, fingerprint) and job.state in OPEN_STATES
        ]

    @property
    def only(self):
        [row] = self.rows.values()
        return row


class Mock:
    """A mock cluster of its own, with the orchestrator that uses it."""

    def __init__(self, folder, **variables):
        self.environment = {
            **os.environ,
            "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
            "EXAMLOPS_HPC_WORKDIR": str(folder / "spool"),
            **variables,
        }
        self.folder = folder
        self.jobs = MemoryJobs()
        self.told = []
        self.heard = []
        self.scheduler = MockScheduler(self.environment)
        self.orchestrator = self.another()

    def another(self, scheduler=None, patience=IMPATIENT):
        return SchedulerOrchestrator(
            self.jobs,
            scheduler or self.scheduler,
            self.environment,
            patience=patience,
            progress=self.told.append,
        )

    def run(self, function, arguments=None, **how):
        how.setdefault("heard", lambda method, params: self.heard.append((method, params)))
        return self.orchestrator.run(job_request(function, arguments, **how))

    @property
    def folders(self):
        return sorted((self.folder / "jobs").iterdir()) if (self.folder / "jobs").exists() else []


class Scripted:
    """A scheduler that says what a test tells it to; jobs are made by hand."""

    name = "slurm"
    is_free_to_ask = True

    def __init__(self, *statuses, submit=None, found=()):
        self.statuses = list(statuses)
        self.answers = list(submit or [])
        self.found = list(found)
        self.submissions = []
        self.cancelled = []
        self.on_submit = lambda submission: None

    def submit(self, submission):
        self.submissions.append(submission)
        self.on_submit(submission)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        number = str(100 + len(self.submissions))
        return [JobRef(self.name, number, submission.token, datetime.now(timezone.utc), "alps")]

    def find(self, token, since):
        answer = self.found.pop(0) if self.found else []
        if isinstance(answer, BaseException):
            raise answer
        return [JobRef(self.name, number, token, since) for number in answer]

    def poll(self, jobs):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if self.cancelled:
            status = JobStatus(JobState.CANCELLED)
        if isinstance(status, BaseException):
            raise status
        return dict.fromkeys(jobs, status)

    def cancel(self, jobs):
        self.cancelled.extend(jobs)


def run_scripted(mock, scripted, function=functions.versions, **how):
    return mock.another(scripted).run(job_request(function, **how))


def status(word, **more):
    more.setdefault("seen_at", datetime.now(timezone.utc))
    return JobStatus(JobState[word], **more)


def leave_exit(submission, code=0, result=True, **more):
    """Do what run.sh and the job do at their end."""
    from examlops_dagster.schedulers.folder import JobFolder, write_json

    folder = JobFolder(submission.folder)
    folder.outputs.mkdir(exist_ok=True)
    if result:
        (folder.outputs / "value.json").write_text("1")
        files = {"value": {"file": "value.json", "format": "json"}}
        found = {"data_version": None, "update_detected": None, "code_version": "", "files": files}
        write_json(folder.outputs / "result.json", found)
    write_json(folder.exit_file, {"token": submission.token, "code": code, "host": "n1", **more})
