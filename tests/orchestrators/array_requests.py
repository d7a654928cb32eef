"""What the tests of arrays share: requests for many keys, and schedulers that play a script."""

import itertools
from dataclasses import replace
from datetime import datetime, timezone

from job_requests import Scripted, job_request, leave_exit

from examlops_dagster.core.records import Node
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus
from examlops_dagster.schedulers.folder import JobFolder, write_json


def key_requests(function, keys, arguments=lambda key: {"key": key}, **how):
    """Give a request for each key, one by one."""
    for number, key in enumerate(keys):
        made = job_request(function, arguments(key), partition=key, **how)
        fingerprint = f"print of {key}"
        yield replace(made, build_id=f"build-{number}-{key}", fingerprint=fingerprint)


def by_key(results):
    """Run, and give what became of each key."""
    return {request.node.partition: outcome for request, outcome in results}


class ScriptedArray(Scripted):
    """A Slurm that says what a test tells it to, for each task."""

    def __init__(self, **more):
        super().__init__(JobStatus(JobState.UNKNOWN), **more)
        self.told = {}
        self.polls = 0
        self.numbers = itertools.count(100)
        self.lost = 0

    def submit(self, submission):
        self.submissions.append(submission)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        refs = self.refs(submission, str(next(self.numbers)))
        self.on_submit(submission)
        return refs

    def refs(self, submission, number):
        ref = JobRef(self.name, number, submission.token, datetime.now(timezone.utc))
        if submission.array is None:
            return [ref]
        left = [n for n in range(submission.array) if n not in submission.submitted]
        return [replace(ref, index=n) for n in left]

    def find(self, token, since):
        answer = self.found.pop(0) if self.found else []
        if isinstance(answer, BaseException):
            raise answer
        return [JobRef(self.name, number, token, since, index=n) for number, n in answer]

    def poll(self, jobs):
        self.polls += 1
        now = datetime.now(timezone.utc)
        found = {}
        for job in jobs:
            status = self.told.get((job.job_id, job.index), JobStatus(JobState.PENDING))
            if job in self.cancelled:
                status = JobStatus(JobState.CANCELLED)
            found[job] = replace(status, seen_at=now)
        return found


def end_task(submission, index, code=0, result=True):
    """Do what run.sh and the job of a task do at their end."""
    folder = JobFolder(submission.folder, index)
    folder.outputs.mkdir(exist_ok=True)
    if result:
        (folder.outputs / "value.json").write_text(str(index))
        files = {"value": {"file": "value.json", "format": "json"}}
        found = {"data_version": None, "update_detected": None, "code_version": "", "files": files}
        write_json(folder.outputs / "result.json", found, durable=False)
    ended = {"token": submission.token, "code": code, "host": "n1"}
    write_json(folder.exit_file, ended, durable=False)


def end_all(submission):
    """End every task of a submission well."""
    if submission.array is None:
        leave_exit(submission)
        return
    for index in range(submission.array):
        end_task(submission, index)


def status(word, **more):
    return JobStatus(JobState[word], **more)


def node(key):
    return Node("numbers", key)
