"""Submits a job once, finds it again, and cancels it: what happens to a job besides its run."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from examlops_dagster.core.jobs import HpcJob, JobsLedger
from examlops_dagster.core.seams import BuildRequest, Progress
from examlops_dagster.errors import AssetBuildError, ExamlopsError, LaunchError
from examlops_dagster.orchestrators.cancelling import Cancelling
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.prepared import write_job
from examlops_dagster.orchestrators.requests import (
    build_error,
    resources_of,
    unknown_earlier,
    unwritten,
)
from examlops_dagster.schedulers.base import JobRef, JobState, JobStatus, Scheduler, Submission
from examlops_dagster.schedulers.folder import JobFolder
from examlops_dagster.schedulers.folders import far_end_of, folders_of
from examlops_dagster.schedulers.tasks import known_id, ref_of

SUBMIT_TRIES = 4
SUBMIT_DELAY_SECONDS = 1.0
_ABSENT_ANSWERS = 3
"""In a row that know nothing of a job that was cancelled: it is gone, and forgotten."""

_logger = logging.getLogger(__name__)


@dataclass
class Job:
    """A job while somebody waits for it.

    Attributes
    ----------
    row
        As it is remembered.
    folder
        Its files.
    ref
        Identifies it to the scheduler; None until its reply came.
    found_again
        Whether somebody else submitted it, who is gone.
    """

    row: HpcJob
    folder: JobFolder
    ref: JobRef | None = None
    found_again: bool = False


Find = Callable[[HpcJob], list[JobRef]]
"""Looks a submit up by the token of one of its rows."""


class Submitting:
    """The dealings with a scheduler over one request.

    Parameters
    ----------
    request, entrypoint
        What is to be run.
    scheduler
        Where.
    jobs
        Remembers jobs.
    environment
        The submitter's.
    progress
        Told what happens.
    cancelling
        Cancels jobs together with those of other threads; None cancels each by itself.
    """

    def __init__(
        self,
        request: BuildRequest,
        entrypoint: Entrypoint | None,
        scheduler: Scheduler,
        jobs: JobsLedger | None,
        environment: Mapping[str, str],
        progress: Progress | None,
        cancelling: Cancelling | None = None,
    ) -> None:
        self.request = request
        self.entrypoint = entrypoint
        self.scheduler = scheduler
        self.jobs = jobs
        self.environment = environment
        self.progress = progress
        self._cancelling = cancelling
        self._folders = folders_of(scheduler, environment)

    def earlier(self) -> Job | None:
        """Take over a job of the same attempt that outlived its waiter.

        Raises
        ------
        AssetBuildError
            If it is not known whether there is one: another one might be a second.
        """
        if self.jobs is None or not self.request.fingerprint:
            return None
        try:
            rows = self.jobs.unclaimed(self.request.node, self.request.fingerprint)
        except ExamlopsError as error:
            raise unknown_earlier(self.request, error) from error
        return self.taken_over(rows, self.find)

    def taken_over(self, rows: Sequence[HpcJob], find: Find) -> Job | None:
        """Take over one of the jobs of this attempt that outlived their waiter.

        Parameters
        ----------
        rows
            Newest first.
        find
            Looks a submit up that left no id.
        """
        for row in rows:
            job = self.opened(row, find)
            if job is None or job.ref is None:
                continue
            if not job.folder.path.is_dir():
                self._give_up(job, job.ref)
                continue
            self.record(
                job,
                job_id=known_id(self.scheduler, job.ref),
                cluster=job.ref.cluster,
                build_id=self.request.build_id,
                run_id=self.request.run_id,
            )
            self.tell(f"taking over {self.name(job)}")
            return job
        return None

    def opened(self, row: HpcJob, find: Find | None = None) -> Job | None:
        """Give a job that somebody else submitted; None for one of elsewhere, or that never came.

        Raises
        ------
        AssetBuildError
            If the scheduler does not say whether it took it.
        """
        path = Path(row.folder)
        # of a folder that is gone nobody knows the host any more
        end = far_end_of(path) if path.is_dir() else self._folders.far_end
        if row.scheduler != self.scheduler.name or not end.is_same(self._folders.far_end):
            return None
        job = Job(row, self._folders.at(path, row.array_index), found_again=True)
        job.ref = ref_of(row) if row.job_id else self.found(row, find)
        if job.ref is None and not self._withdrawn(job):
            job.ref = self.found(row)
        if job.ref is None:
            reason = "it never reached the scheduler"
            self.record(job, state=JobState.REFUSED.word, reason=reason)
            return None
        return job

    def _give_up(self, job: Job, ref: JobRef) -> None:
        """Let a job go whose folder was removed: what it made cannot be had any more.

        Raises
        ------
        AssetBuildError
            If it is not known to have ended: another one beside it would be a second copy.
        """
        try:
            status = self.scheduler.poll([ref])[ref]
        except LaunchError as error:
            status = JobStatus(JobState.UNKNOWN, reason=str(error))
        is_forgotten = status.state is JobState.UNKNOWN and status.seen_at is not None
        if not status.state.final and not is_forgotten:
            raise build_error(
                self.request,
                f"{self.name(job)} is {status.state.word}, and its folder was removed, which its "
                f"result would be in ({job.row.folder}) → exa hpc cancel "
                f"{known_id(self.scheduler, ref)}, and ask again",
            )
        reason = "its folder was removed, and its result with it"
        self.record(
            job, job_id=known_id(self.scheduler, ref), state=JobState.LOST.word, reason=reason
        )
        self.tell(f"{self.name(job)} is given up: {reason}")

    def found(self, row: HpcJob, find: Find | None = None) -> JobRef | None:
        """Look for a job without an id: at the scheduler, which forgets, and in its folder."""
        found = [ref for ref in (find or self.find)(row) if ref.index == row.array_index]
        if found:
            return found[0]
        if self._folders.at(Path(row.folder), row.array_index).has_run:
            return ref_of(row)
        return None

    def submit(self, resources: Mapping[str, Any], started: Callable[[Job], None]) -> Job:
        """Submit a job, its token on disk before; ``started`` gets it before the reply.

        Raises
        ------
        AssetBuildError
            If the scheduler refused it, or does not say whether it took it.
        """
        token = secrets.token_hex(16)
        folder = self._folders.new(token)
        now = datetime.now(timezone.utc)
        try:
            submission = write_job(
                replace(self.request, resources=resources),
                token,
                folder,
                scheduler=self.scheduler.name,
                entrypoint=self.entrypoint,
                environment=self.environment,
                submitted_at=now,
            )
        except OSError as error:
            reason = f"the folder of its job cannot be written: {error}"
            raise build_error(self.request, reason) from error
        job = Job(self.row(token, folder, now), folder)
        try:
            started(job)
            if self.jobs is not None:
                self.jobs.record(job.row)
        except ExamlopsError as error:
            raise unwritten(self.request, error) from error
        job.ref = self._submitted(job, submission)
        self.record(
            job,
            job_id=job.ref.job_id,
            cluster=job.ref.cluster,
            submitted_at=job.ref.submitted_at,
            state=JobState.PENDING.word,
        )
        self.tell(f"submitted {self.name(job)}")
        return job

    def _submitted(self, job: Job, submission: Submission) -> JobRef:
        """Submit once: a reply that was lost is looked for before anything is tried again."""
        for attempt in range(1, SUBMIT_TRIES + 1):
            try:
                return self.scheduler.submit(submission)[0]
            except LaunchError as error:
                if not error.transient:
                    raise self._refused(job, str(error)) from error
                found = self.found(job.row)
                if found is not None:
                    return found
                last = error
                self.tell(f"the submit is tried again: {error}")
            self.request.pause(SUBMIT_DELAY_SECONDS * attempt)
        if not self._withdrawn(job) and (found := self.found(job.row)) is not None:
            return found
        raise self._refused(job, f"it did not answer {SUBMIT_TRIES} times: {last}") from last

    def _withdrawn(self, job: Job) -> bool:
        """Keep a job that nobody knows of from running later; False if it runs by now.

        Raises
        ------
        AssetBuildError
            If nobody can say that.
        """
        try:
            return job.folder.withdraw()
        except LaunchError as error:
            raise self._unsaid(job.row, error) from error

    def find(self, row: HpcJob) -> list[JobRef]:
        """Look a submit up by its token.

        Raises
        ------
        AssetBuildError
            If the scheduler does not say: nothing may be submitted then.
        """
        for attempt in range(1, SUBMIT_TRIES + 1):
            try:
                return self.scheduler.find(row.token, row.submitted_at)
            except LaunchError as error:
                last = error
            self.request.pause(SUBMIT_DELAY_SECONDS * attempt)
        raise self._unsaid(row, last) from last

    def _unsaid(self, row: HpcJob, why: LaunchError) -> AssetBuildError:
        return build_error(
            self.request,
            f"{self.scheduler.name} does not say whether it took the job {row.token[:8]} ({why}) "
            "→ ask again: it is looked up before another is submitted",
        )

    def _refused(self, job: Job, words: str) -> AssetBuildError:
        self.record(job, state=JobState.REFUSED.word, reason=words)
        reason = f"{self.scheduler.name} refused the job of {self.request.node}: {words}"
        return build_error(self.request, reason, f"{reason}\nfolder: {job.folder.path}")

    def cancel(self, job: Job, seconds: float) -> JobStatus:
        """Cancel, and wait until the scheduler says that it is gone, for so many seconds."""
        assert job.ref is not None
        if self._cancelling is not None:
            return self._cancelling.cancel(job.ref, seconds)
        return cancel_all(self.scheduler, [job.ref], seconds)[job.ref]

    def name(self, job: Job) -> str:
        """Name a job for people."""
        return f"job {job.row.job_id or job.row.token[:8]} on {self.scheduler.name}"

    def tell(self, text: str) -> None:
        """Say what happens."""
        _logger.info("%s: %s", self.request.node, text)
        if self.progress is not None:
            self.progress(f"{self.request.node}: {text}")
        if self.request.told is not None:
            self.request.told(text)

    def row(self, token: str, folder: JobFolder, now: datetime, index: int | None = None) -> HpcJob:
        """Give what is remembered of a job before it is submitted."""
        wanted = resources_of(self.request)
        per_node = (
            wanted.gpus_per_node.count * (wanted.nodes or 1) if wanted.gpus_per_node else None
        )
        return HpcJob(
            token,
            self.scheduler.name,
            now,
            self.request.node,
            str(folder.path),
            model=f"asset:{self.request.node.asset}",
            fingerprint=self.request.fingerprint,
            build_id=self.request.build_id,
            run_id=self.request.run_id,
            nodes=wanted.nodes,
            gpus=wanted.gpus.count if wanted.gpus else per_node,
            cpus=wanted.cpus_per_task,
            array_index=index,
        )

    def record(self, job: Job, **changes: Any) -> None:
        """Remember what changed of a job."""
        job.row = replace(job.row, **changes)
        if self.jobs is None:
            return
        # nothing follows an end; a database that was locked for a minute may be free again
        for _ in range(2 if JobState[job.row.state].final else 1):
            with Quiet():
                self.jobs.record(job.row)
                return


def cancel_all(
    scheduler: Scheduler, jobs: Sequence[JobRef], seconds: float
) -> dict[JobRef, JobStatus]:
    """Cancel many jobs with few commands, and wait for so many seconds until they are gone."""
    deadline = time.monotonic() + seconds
    again = 0.0
    absent = dict.fromkeys(jobs, 0)
    found = dict.fromkeys(jobs, JobStatus(JobState.UNKNOWN))
    left = list(jobs)
    while left and time.monotonic() < deadline:
        try:
            if time.monotonic() >= again:
                again = time.monotonic() + 10
                scheduler.cancel(left)
            for job, status in scheduler.poll(left).items():
                known = status.state is not JobState.UNKNOWN or status.seen_at is None
                absent[job] = 0 if known else absent[job] + 1
                gone = absent[job] >= _ABSENT_ANSWERS
                found[job] = replace(status, state=JobState.CANCELLED) if gone else status
        except LaunchError as error:
            _logger.warning("%s: %s", scheduler.name, error)
        left = [job for job in left if not found[job].state.final]
        if left:
            time.sleep(0.05 if getattr(scheduler, "is_free_to_ask", False) else 1.0)
    return found


class Quiet:
    """Lose a row of a job rather than a build."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, ExamlopsError):
            _logger.warning("what became of a job could not be recorded: %s", error)
            return True
        return False
