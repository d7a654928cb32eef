"""One build as a batch job: found again or submitted, waited for, and taken apart."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from examlops_dagster.core.jobs import JobsLedger
from examlops_dagster.core.seams import BuildRequest, BuildResult, Progress
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    ResultError,
)
from examlops_dagster.orchestrators.ends import End, Listener, Patience, Watch
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.prepared import (
    build_error,
    read_outcome,
    resources_of,
)
from examlops_dagster.orchestrators.reported import Reported
from examlops_dagster.orchestrators.submitting import Job, Quiet, Submitting
from examlops_dagster.orchestrators.waiting import Waiting
from examlops_dagster.schedulers.base import (
    FailureClass,
    JobState,
    JobStatus,
    Scheduler,
)
from examlops_dagster.schedulers.folder import JobFolder, read_json
from examlops_dagster.schedulers.messages import Message

RETRIES_VARIABLE = "EXAMLOPS_HPC_INFRA_RETRIES"

_PROGRAM_KNOWS = (JobState.FAILED, JobState.OUT_OF_MEMORY)
"""Ends of which the last line of stderr may tell the cause; others come from outside."""

_SIGNALLED = 128
"""Above which an exit code says by which signal a program was ended; so a shell counts."""

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
    ) -> None:
        self.request = request
        self.submitting = Submitting(request, entrypoint, scheduler, jobs, environment, progress)
        self.entrypoint = entrypoint
        self.scheduler = scheduler
        self.watch = watch
        self.environment = environment
        self.patience = patience
        self.job: Job | None = None
        self.reported = Reported(request.node.asset)
        self._resources: Mapping[str, Any] = request.resources

    def run(self) -> BuildResult:
        """Find a job of this attempt or submit one, and wait until one of them ends for good."""
        retries = _number(self.environment.get(RETRIES_VARIABLE), 1)
        resources_of(self.request)
        self.job = self.submitting.earlier()
        while True:
            if self.job is None:
                self.job = self.submitting.submit(self._resources, self._took)
            job = self.job
            end = self._wait(job)
            if end.state is JobState.COMPLETED:
                return self._result(job, end)
            if end.state is JobState.CANCELLED and job.found_again:
                self.submitting.tell(
                    f"job {job.row.job_id} was cancelled meanwhile; submitting another"
                )
            elif end.state.failure is FailureClass.INFRASTRUCTURE and retries > 0:
                retries -= 1
                self.submitting.tell(
                    f"job {job.row.job_id} ended {end.state.word}; submitting another"
                )
                self._avoid(end)
            else:
                raise self._error(job, end)
            self.job = None

    def interrupted(self, meant: bool) -> bool:
        """Cancel the job, if that is what was meant, and see that it is gone; else leave it.

        Returns
        -------
        bool
            Whether it goes on.
        """
        job = self.job
        if job is None:
            return False
        if job.ref is None:
            with Quiet():
                job.ref = next(iter(self.submitting.find(job.row)), None)
        if job.ref is None:
            return False
        name, number = self.submitting.name(job), job.ref.job_id
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

    def _took(self, job: Job) -> None:
        self.job = job

    def _wait(self, job: Job) -> End:
        assert job.ref is not None
        self.reported.clear()
        wanted = resources_of(self.request)
        waiting = Waiting(
            job.ref,
            job.folder,
            self.watch,
            Listener(lambda status: self._changed(job, status), self._hear, self.reported.clear),
            queue_seconds=wanted.queue_time_seconds,
            several_nodes=(wanted.nodes or 1) > 1 or (wanted.ntasks or 1) > 1,
            patience=self.patience,
            pause=self.request.pause,
        )
        end = waiting.until_end()
        self.watch.forget(job.ref)
        if not end.status.state.final and end.state in (JobState.REFUSED, JobState.TIMEOUT):
            self.submitting.cancel(job, self.patience.cancel)
        status = end.status
        ended = end.exit.time if end.exit is not None else None
        self.submitting.record(
            job,
            state=end.state.word,
            reason=end.reason,
            started_at=status.started_at,
            ended_at=status.ended_at or ended or datetime.now(timezone.utc),
            exit_code=end.exit_code,
            hosts=status.nodes or (end.exit.host if end.exit is not None else ""),
        )
        return end

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
        if self.request.heard is not None:
            self.request.heard(message.method, message.params)

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
            return BuildResult(None, reported.data_version, reported.metadata, provenance)
        deadline = time.monotonic() + self.patience.files
        found = read_outcome(self.request, job.folder)
        while found is None and time.monotonic() < deadline:
            self.request.pause(0.1)
            found = read_outcome(self.request, job.folder)
        if found is None:
            raise self._error(job, replace(end, reason=f"it left no result in {job.folder.path}"))
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
        )

    def _error(self, job: Job, end: End) -> AssetBuildError:
        error = read_json(job.folder.outputs / "error.json") if end.exit is not None else None
        if not isinstance(error, dict):
            error = {}
        last = str(error.get("reason") or "")
        if not last and end.state in _PROGRAM_KNOWS and (end.exit_code or 0) <= _SIGNALLED:
            last = _last_line(job.folder)
        reason = f"{self.submitting.name(job)} ended {end.state.word}"
        if end.reason:
            reason += f" ({end.reason})"
        if last and last not in reason:
            reason += f": {last}"
        details = [
            f"scheduler: {self.scheduler.name}",
            f"job: {job.row.job_id}",
            f"state: {end.state.word}{f' ({end.status.native})' if end.status.native else ''}",
            f"reason: {end.reason or '-'}",
            f"node: {job.row.hosts or '-'}",
            f"folder: {job.folder.path}",
            str(error.get("details") or ""),
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

    def _avoid(self, end: End) -> None:
        """Ask Slurm for another node than the one that failed."""
        if self.scheduler.name == "slurm" and end.status.nodes:
            own = dict(self._resources.get("slurm") or {})
            former = f"{own['exclude']}," if own.get("exclude") else ""
            own["exclude"] = f"{former}{end.status.nodes}"
            self._resources = {**self._resources, "slurm": own}


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.strip().isdigit() else default


def _last_line(folder: JobFolder) -> str:
    lines = [line for line in folder.last_lines().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
