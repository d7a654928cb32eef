"""One build as a batch job: found again or submitted, waited for, and taken apart."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.jobs import JobsLedger
from examlops_dagster.core.seams import BuildRequest, BuildResult, Progress
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    ResultError,
)
from examlops_dagster.orchestrators.call_files import read_outcome
from examlops_dagster.orchestrators.cancelling import Cancelling
from examlops_dagster.orchestrators.ends import End, Listener, Patience, Watch
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.outdated import earlier_rows, end_outdated, outdated_of
from examlops_dagster.orchestrators.outlets import read_outlets
from examlops_dagster.orchestrators.programs import versions_of
from examlops_dagster.orchestrators.reported import Reported, exception_text
from examlops_dagster.orchestrators.requests import build_error, limit_seconds, resources_of
from examlops_dagster.orchestrators.submitting import Job, Quiet, Submitting
from examlops_dagster.orchestrators.told import Told
from examlops_dagster.orchestrators.waiting import Waiting
from examlops_dagster.schedulers.base import SIGNALLED, FailureClass, JobState, JobStatus, Scheduler
from examlops_dagster.schedulers.folder import JobFolder, read_json
from examlops_dagster.schedulers.messages import Message
from examlops_dagster.schedulers.resources import avoided, avoiding
from examlops_dagster.schedulers.tasks import known_id
from examlops_dagster.schedulers.whole_numbers import whole_number
from examlops_dagster.settings import HPC_INFRA_RETRIES

_PROGRAM_KNOWS = (JobState.FAILED, JobState.OUT_OF_MEMORY)
"""Ends of which the last line of stderr may tell the cause; others come from outside."""

_logger = logging.getLogger(__name__)


class BatchBuild:
    """Runs one request as a job; see SchedulerOrchestrator for the parameters."""

    def __init__(
        self,
        request: BuildRequest,
        entrypoint: Entrypoint | None,
        scheduler: Scheduler,
        watch: Watch,
        *,
        jobs: JobsLedger | None,
        environment: Mapping[str, str],
        patience: Patience,
        progress: Progress | None,
        cancelling: Cancelling | None = None,
    ) -> None:
        self.request = request
        self.submitting = Submitting(
            request, entrypoint, scheduler, jobs, environment, progress, cancelling
        )
        self.entrypoint = entrypoint
        self.scheduler = scheduler
        self.watch = watch
        self.environment = environment
        self.patience = patience
        self.job: Job | None = None
        self.reported = Reported.of(request)
        self.resources: Mapping[str, Any] = request.resources
        self.delay_seconds = 0.0
        """How long to wait before another job is submitted."""
        self._retries = whole_number(environment, HPC_INFRA_RETRIES, 1)
        self._failures = 0
        self._then = "submitting another"
        self._waiting: Waiting | None = None
        self._waited = False
        self._exception: Mapping[str, Any] | None = None
        self._told: Told | None = None

    def run(self) -> BuildResult:
        """Find a job of this attempt or submit one, and wait until one of them ends for good."""
        resources_of(self.request)
        self._take_up()
        while True:
            if self.job is None:
                self.job = self.submitting.submit(self.resources, self.took)
            result = self._until_end(self.job)
            if result is not None:
                return result
            if self.delay_seconds:
                self.request.pause(self.delay_seconds)

    def taken_up(self) -> BuildResult | None:
        """Wait for the job that an earlier request left of this attempt, and submit none.

        Returns
        -------
        BuildResult | None
            None where there is none, or where it was cancelled, or the cluster failed it.
        """
        self._then = "it is built elsewhere"
        self._take_up()
        return None if self.job is None else self._until_end(self.job)

    def _take_up(self) -> None:
        """Find a job of this attempt, and see that there is none of an older one beside it."""
        self.job = self.submitting.earlier()
        if self.job is None:
            outdated = outdated_of(self.submitting, earlier_rows(self.submitting))
            for error in end_outdated(outdated, self.patience.cancel).values():
                raise error

    def _until_end(self, job: Job) -> BuildResult | None:
        end = self.wait_for(job).until_end(self.request.pause)
        if end.leaves_job:
            self.submitting.cancel(job, self.patience.cancel)
        return self.ended(end)

    def ended(self, end: End) -> BuildResult | None:
        """Record the end of the job, and give the result; None asks for another job.

        Raises
        ------
        AssetBuildError
            If it ended without a result, for good.
        """
        job = self.job
        assert job is not None
        self._ended(job, end)
        if end.state is JobState.COMPLETED:
            return self._result(job, end)
        if end.state is JobState.CANCELLED and job.found_again:
            self.delay_seconds = 0.0
            self.submitting.tell(f"job {job.row.job_id} was cancelled meanwhile; {self._then}")
        elif end.state.failure is FailureClass.INFRASTRUCTURE and self._retries > 0:
            self._retries -= 1
            self.delay_seconds = self.patience.again * 2**self._failures
            self._failures += 1
            self.submitting.tell(
                f"job {job.row.job_id} ended {end.state.word}; {self._then}"
                + (f" in {self.delay_seconds:g} s" if self.delay_seconds else "")
            )
            if end.state.blames_node:
                self.resources = avoiding(self.resources, [end.status.nodes])
        else:
            raise self._error(job, end)
        self.job = None
        return None

    def interrupted(self, meant: bool) -> bool:
        """Cancel the job, if that is what was meant, and see that it is gone; else leave it.

        Returns
        -------
        bool
            Whether it goes on.
        """
        job = self.job
        if self._told is not None:
            self._told.save()
        if job is None:
            return False
        if job.ref is None:
            with Quiet():
                job.ref = self.submitting.found(job.row)
        if job.ref is None:
            return False
        name, number = self.submitting.name(job), known_id(self.scheduler, job.ref)
        if not meant:
            self.submitting.tell(
                f"{name} is left running → exa hpc logs {number} --follow; the next request takes "
                "it up"
            )
            return True
        status = self.submitting.cancel(job, self.patience.cancel)
        if status.state.final:
            self.submitting.tell(f"{name} is gone ({status.state.word})")
            self.submitting.record(job, state=status.state.word, reason="interrupted")
            return False
        shown = status.native or status.state.word
        self.submitting.tell(
            f"{name} was cancelled, but is still there ({shown}) → exa hpc cancel {number}"
        )
        return True

    def took(self, job: Job) -> None:
        """Have a job, also while its reply is still to come."""
        self.job = job

    def slim(self) -> None:
        """Let the values go that were written for the job: those of many keys need much room."""
        kept = versions_of(self.request)
        self.request = replace(self.request, arguments=kept)
        self.submitting.request = self.request

    def wait_for(
        self,
        job: Job,
        watch: Watch | None = None,
        names: Callable[[], Container[str]] | None = None,
    ) -> Waiting:
        """Give the wait for a job, which is ours from now on.

        Parameters
        ----------
        watch, names
            See Waiting; None asks the scheduler for this job alone.
        """
        assert job.ref is not None
        self.job = job
        if self._waited:
            self._restarted()
        self._waited, self._exception = True, None
        self._told = Told(job.folder.told, job.folder.messages, self.request.run_id)
        wanted = resources_of(self.request)
        # one of several threads that wait, or one of several keys
        mixes = threading.current_thread() is not threading.main_thread() or names is not None
        self._waiting = Waiting(
            job.ref,
            job.folder,
            watch or self.watch,
            Listener(lambda status: self._changed(job, status), self._hear, self._restarted),
            queue_seconds=wanted.queue_time_seconds,
            limit_seconds=limit_seconds(self.request),
            several_nodes=(wanted.nodes or 1) > 1 or (wanted.ntasks or 1) > 1,
            patience=self.patience,
            names=names,
            result=None if self.entrypoint is None else job.folder.outputs / "result.json",
            label=str(self.request.node) if mixes else "",
        )
        return self._waiting

    def _ended(self, job: Job, end: End) -> None:
        assert job.ref is not None
        assert self._waiting is not None
        self.watch.forget(job.ref)
        closed = self._waiting.messages.closed
        if closed is not None:
            self._exception = closed.exception
            self._hear(closed)
        status = end.status
        started = status.started_at or job.row.started_at
        ended = status.ended_at or (end.exit.time if end.exit is not None else None)
        ended = ended or datetime.now(timezone.utc)
        if started is not None:
            ended = max(started, ended)  # an exit record has whole seconds
        self.submitting.record(
            job,
            state=end.state.word,
            reason=end.reason,
            started_at=started,
            ended_at=ended,
            exit_code=end.exit_code,
            hosts=status.nodes or (end.exit.host if end.exit is not None else ""),
        )

    def _changed(self, job: Job, status: JobStatus) -> None:
        because = f" ({status.reason})" if status.reason else ""
        unanswered = status.state is JobState.UNKNOWN and status.seen_at is None
        if not status.state.final and not unanswered:  # the end is recorded when it is proved
            job.found_again = False
            self.submitting.record(
                job,
                state=status.state.word,
                reason=status.reason,
                started_at=status.started_at or job.row.started_at,
                hosts=status.nodes or job.row.hosts,
            )
        self.submitting.tell(f"{self.submitting.name(job)} → {status.state.word}{because}")

    def _hear(self, message: Message) -> None:
        self.reported.hear(message)
        if message.method == "log" and self._told is not None and self._told.has():
            return
        if self.request.heard is not None:
            self.request.heard(message.method, message.params)

    def _restarted(self) -> None:
        """Forget what was said by an attempt that no longer counts."""
        self.reported.clear()
        if self._told is not None:
            self._told.again()
        if self.request.heard is not None:
            self.request.heard("restarted", {})

    def _outlets(self, folder: JobFolder) -> tuple[Metadata, ...]:
        """Give the datasets that the program says it wrote."""
        found, problems = read_outlets(folder.outlets)
        for problem in problems:
            self._hear(Message("log", {"level": "WARNING", "message": problem}))
        return (*found, *self.reported.events)

    def _result(self, job: Job, end: End) -> BuildResult:
        provenance = {
            "orchestrator": "scheduler",
            "scheduler": self.scheduler.name,
            "hpc_job_id": job.row.job_id,
            **({"hpc_cluster": job.row.cluster} if job.row.cluster else {}),
            **({"node": job.row.hosts} if job.row.hosts else {}),
        }
        if self.entrypoint is None:
            reported = self.reported
            return BuildResult(
                None,
                reported.data_version,
                reported.metadata,
                provenance,
                events=self._outlets(job.folder),
            )
        found = read_outcome(self.request, job.folder)
        if found is None:
            reason = f"its result cannot be read: {job.folder.outputs}"
            raise self._error(job, replace(end, state=JobState.FAILED, reason=reason))
        outcome, code_version = found
        if code_version and self.request.code_version not in ("", code_version):
            provenance["hpc_code_version"] = code_version
            _logger.warning(
                "%s: the job imported other code (%s) than was submitted (%s)",
                self.request.node,
                code_version,
                self.request.code_version,
            )
        result = outcome.as_result(provenance)
        return replace(
            result,
            data_version=result.data_version or self.reported.data_version,
            metadata={**self.reported.metadata, **result.metadata},
            events=(*result.events, *self._outlets(job.folder)),
        )

    def _error(self, job: Job, end: End) -> AssetBuildError:
        error = read_json(job.folder.outputs / "error.json") if end.exit is not None else None
        if not isinstance(error, dict):
            error = {}
        last = str(error.get("reason") or "")
        if not last and end.state in _PROGRAM_KNOWS and (end.exit_code or 0) <= SIGNALLED:
            last = _last_line(job.folder, getattr(self.scheduler, "own_lines", None))
        reason = f"{self.submitting.name(job)} ended {end.state.word}"
        if end.reason:
            reason += f" ({end.reason})"
        if elsewhere := ", ".join(avoided(self.resources)):
            reason += f", away from {elsewhere}, which failed before"
        if last and last not in reason:
            reason += f": {last}"
        details = [
            f"scheduler: {self.scheduler.name}",
            f"job: {job.row.job_id}",
            f"state: {end.state.word}{f' ({end.status.native})' if end.status.native else ''}",
            f"reason: {end.reason or '-'}",
            f"node: {job.row.hosts or '-'}",
            f"folder: {job.folder.path}",
            str(error.get("details") or exception_text(self._exception)),
            job.folder.last_lines(),
        ]
        kind: type[AssetBuildError] = AssetBuildError
        if end.state in (JobState.TIMEOUT, JobState.DEADLINE):
            kind = BuildTimeoutError
        elif end.state is JobState.CANCELLED:
            kind = BuildCancelledError
        elif error.get("unusable"):
            kind = ResultError
        return build_error(self.request, reason, "\n".join(d for d in details if d), kind)


def _last_line(folder: JobFolder, not_its: re.Pattern[str] | None) -> str:
    lines = [line.strip() for line in folder.last_lines().splitlines()]
    its = [line for line in lines if line and not (not_its and not_its.match(line))]
    return its[-1] if its else ""
